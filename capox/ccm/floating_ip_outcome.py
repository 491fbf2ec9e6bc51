"""What came of a pass over a Service's floating IPs, for its status and for people: pure, from one picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from capox.ccm import floating_ip_plan as plan
from capox.ccm.floating_ip_rack import View
from capox.ccm.placement import Lack, has_reserve
from capox.ccm.service_mark import service_description
from capox.ccm.wanted import Notice, Outcome, Wanted

__all__ = ["outcome_of"]

LACK_SECONDS: Final = 60.0
"""When to look again for a place; whoever gives one up says so earlier."""

REFUSED_SECONDS: Final = 300.0
"""When to try again what a person has to put right."""

_REASONS: Final = {
    Lack.NODES: "UnAvailableLoadBalancer",
    Lack.FAMILY: "NoNodeOfFamily",
    Lack.PORTS: "PortConflict",
    Lack.ROOM: "NoRoomOnNodes",
}


def outcome_of(view: View, wanted: Wanted) -> Outcome:
    """The outcome of a pass that came as far as it goes."""
    picture = view.picture
    problems = [place for place in picture.match.places if place.problem is not None]
    lacks = [decision for each in picture.serving if (decision := picture.decision(each)).lack is not None]
    retry_seconds = LACK_SECONDS if lacks else REFUSED_SECONDS if problems else None
    return Outcome(
        entries=plan.entries(picture),
        notices=tuple(_notices(view, wanted)),
        retry_seconds=retry_seconds,
        is_complete=picture.is_served and not lacks,
        is_waiting=any(decision.lack in {Lack.PORTS, Lack.ROOM} for decision in lacks),
    )


def _notices(view: View, wanted: Wanted) -> Iterator[Notice]:
    picture = view.picture
    for place in picture.match.places:
        if place.problem is not None:
            yield Notice(place.problem.reason, place.problem.message)
    for floating_ip in picture.serving:
        decision = picture.decision(floating_ip)
        if decision.lack is not None:
            stays = f"stays on {decision.node.name}" if decision.node is not None else "is attached to no node"
            yield Notice(_REASONS[decision.lack], f"floating IP {floating_ip.ip} {stays}: {decision.detail}")
    _, is_whole = service_description(wanted.owner, picture.cluster_id, wanted.ports, is_retained=wanted.keeps_address)
    if not is_whole:
        yield Notice(
            "PortListCut",
            f"the {len(wanted.ports)} ports do not all fit into the floating IP's description; a firewall that is "
            "managed by it does not open them all: use fewer Services' ports, or a rule of your own",
        )
    yield from _reserve(view)


def _reserve(view: View) -> Iterator[Notice]:
    """Whether the loss of a node could be made up for (4.4)."""
    picture = view.picture
    for seat in view.seats:
        if seat.owner != picture.wanted.owner.uid or seat.address not in picture.decisions:
            continue
        decision = picture.decisions[seat.address]
        if decision.node is None or decision.lack is not None:
            continue
        if not has_reserve(seat, decision.node, view.seats, view.candidates):
            yield Notice(
                "NoFailoverNode",
                f"no other node could take over when {decision.node.name} is lost: none is free of "
                f"{', '.join(str(port) for port in sorted(seat.ports))}, Ready and allowed",
            )
