"""Who sits where: the floating IPs of all Services as placement sees them, and the nodes with what the rack says: pure.

What other Services have is read from the rack and from their own objects, never from memory alone, so a restart finds
the same (S25). A mark tells the ports that a Service was placed with; ports that came since are not settled yet.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from capox.ccm.floating_ip_match_plan import Match, Sight, family_of, find
from capox.ccm.placement import Candidate, Seat
from capox.ccm.service_mark import KIND, marked_ports
from capox.ccm.wanted import Target, Wanted
from capox.ownership import OwnerMark, parse_mark
from capox.oxide.models import InstanceState
from capox.oxide.snapshots import ObservedFloatingIp, ObservedInstance

__all__ = ["Journeys", "candidates_of", "seats_of"]

_LONG_AGO: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FAILING_STATES: Final = frozenset({InstanceState.STOPPED, InstanceState.FAILED, InstanceState.DESTROYED})


@dataclasses.dataclass(frozen=True, slots=True)
class Journeys:
    """What is under way.

    Attributes:
        going: Where floating IPs are on their way to, by their ids.
        barred: Instances that have lately been refused for them.
    """

    going: Mapping[UUID, UUID] = dataclasses.field(default_factory=dict)
    barred: Mapping[UUID, frozenset[UUID]] = dataclasses.field(default_factory=dict)


def candidates_of(
    targets: Iterable[Target],
    instances: Mapping[UUID, ObservedInstance],
    floating_ips: Collection[ObservedFloatingIp],
    seats: Collection[Seat],
) -> tuple[Candidate, ...]:
    """The nodes whose instances exist. One whose instance is gone carries nothing and can take nothing."""
    seated = {seat.address for seat in seats}
    strangers: dict[UUID, int] = {}
    for each in floating_ips:
        if each.instance_id is not None and str(each.id) not in seated:
            strangers[each.instance_id] = strangers.get(each.instance_id, 0) + 1
    found = []
    for target in targets:
        instance = instances.get(target.instance_id)
        if instance is None:
            continue
        failing = target.failing
        if instance.run_state in _FAILING_STATES:
            failing = f"its instance is {instance.run_state}"
        found.append(
            Candidate(
                instance_id=target.instance_id,
                name=target.name,
                uid=target.uid,
                may_take=target.may_take and instance.run_state == InstanceState.RUNNING,
                failing=failing,
                closed=target.closed,
                families=target.families,
                taken=target.taken,
                is_control_plane=target.is_control_plane,
                other_addresses=strangers.get(target.instance_id, 0),
            )
        )
    return tuple(found)


def seats_of(
    wanted: Wanted, match: Match, sight: Sight, journeys: Journeys, refused_uids: Collection[str] = ()
) -> tuple[Seat, ...]:
    """The seats of one Service, by what it has, and those of all others.

    Args:
        wanted: The Service.
        match: What it has.
        sight: What is seen.
        journeys: What is under way.
        refused_uids: Services that cannot be served as they are: what they have attached counts, the rest does not.
    """
    own = {each.id for each in match.floating_ips}
    seats = [_own_seat(wanted, each, match, journeys) for each in match.floating_ips]
    for each in sight.floating_ips:
        if each.id in own:
            continue
        mark = parse_mark(each.description)
        other = _owner_of(each, mark, sight)
        seat = _seat(each, mark, other, journeys) if mark is None or _is_here(mark, sight) else None
        if seat is None or (mark is None and other is None):
            continue
        is_idle = seat.at is None and seat.going is None
        if is_idle and (other is None or other.owner.uid in refused_uids):
            continue
        seats.append(seat)
    return tuple(seats)


def _is_here(mark: OwnerMark, sight: Sight) -> bool:
    return (mark.kind, mark.cluster_id) == (KIND, sight.cluster_id)


def _owner_of(floating_ip: ObservedFloatingIp, mark: OwnerMark | None, sight: Sight) -> Wanted | None:
    """The Service that has a floating IP: by its mark, or, the user's, because it names or shows it."""
    everybody = sight.surroundings.wanted
    if mark is not None:
        return everybody.get(mark.uid)
    naming = [
        each
        for each in everybody.values()
        if any(find(wish.reference, (floating_ip,)) for wish in each.wishes if wish.reference)
        or any(entry.ip == str(floating_ip.ip) for entry in each.published)
    ]
    return min(naming, key=lambda each: _claim(each, floating_ip), default=None)


def _claim(wanted: Wanted, floating_ip: ObservedFloatingIp) -> tuple[bool, datetime.datetime, str]:
    is_shown = any(entry.ip == str(floating_ip.ip) for entry in wanted.published)
    return not is_shown, wanted.owner.created, wanted.owner.uid


def _seat(
    floating_ip: ObservedFloatingIp, mark: OwnerMark | None, wanted: Wanted | None, journeys: Journeys
) -> Seat | None:
    settled = marked_ports(mark) if mark is not None else None
    ports = wanted.ports if wanted is not None else settled
    if ports is None:
        return None
    if wanted is not None:
        uid, name, created = wanted.owner.uid, str(wanted.owner), wanted.owner.created
    else:
        assert mark is not None, "ports without a Service come from a mark"
        uid, name, created = mark.uid, f"{mark.namespace}/{mark.name}", _LONG_AGO
    return Seat(
        owner=uid,
        address=str(floating_ip.id),
        owner_name=name,
        created=created,
        family=family_of(floating_ip),
        ports=ports,
        settled=ports if settled is None else settled,
        at=floating_ip.instance_id,
        going=_going(floating_ip, journeys),
        barred=journeys.barred.get(floating_ip.id, frozenset()),
    )


def _own_seat(wanted: Wanted, floating_ip: ObservedFloatingIp, match: Match, journeys: Journeys) -> Seat:
    mark = parse_mark(floating_ip.description)
    seat = _seat(floating_ip, mark, wanted, journeys)
    assert seat is not None, "a Service that is there has ports"
    return dataclasses.replace(seat, prefers=_partner(floating_ip, match.floating_ips))


def _partner(floating_ip: ObservedFloatingIp, siblings: Sequence[ObservedFloatingIp]) -> UUID | None:
    """Where another address of the same Service is, best of the same family: the same node programs less (S22)."""
    places = [each for each in siblings if each.id != floating_ip.id and each.instance_id is not None]
    places.sort(key=lambda each: (family_of(each) != family_of(floating_ip), str(each.id)))
    return places[0].instance_id if places else None


def _going(floating_ip: ObservedFloatingIp, journeys: Journeys) -> UUID | None:
    target = journeys.going.get(floating_ip.id)
    return None if target == floating_ip.instance_id else target
