"""Which floating IP stands for which address that a Service wants: pure (CCM rules S7, S10, S19, S21, S22, V10).

An address is ours by its mark: cluster and Service UID. One without a mark is the user's: it is attached and detached,
and never changed or deleted. Three kinds come to be ours later: those that Oxide's own controller made for this very
Service, one whose mark somebody has removed, and one that is named in an annotation and whose Service is gone.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from capox.ccm.placement import Family
from capox.ccm.service_mark import GO_DESCRIPTION, KIND, GoNames, is_of_service, names_for
from capox.ccm.wanted import AddressWish, Refusal, Surroundings, Wanted
from capox.ownership import parse_mark
from capox.oxide.snapshots import ObservedFloatingIp

__all__ = ["Match", "Place", "Pool", "Sight", "family_of", "find", "match"]

_OWN_NAMES: Final = 8
"""How many names of ours are looked for among those without a mark."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """A pool of addresses that the silo may use."""

    id: UUID
    family: Family


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen, as far as it decides whose an address is.

    Attributes:
        cluster_id: Which cluster this is.
        floating_ips: All of the project.
        surroundings: The nodes, and what other Services want.
        pools: The pools that are named, or why one cannot be used.
        refused: Wishes that the rack has just refused to make an address for.
        go_names: How Oxide's own controller calls its floating IPs.
    """

    cluster_id: str
    floating_ips: Sequence[ObservedFloatingIp]
    surroundings: Surroundings
    pools: Mapping[str, Pool | Refusal] = dataclasses.field(default_factory=dict)
    refused: Mapping[AddressWish, Refusal] = dataclasses.field(default_factory=dict)
    go_names: GoNames = dataclasses.field(default_factory=GoNames)

    @property
    def instance_ids(self) -> frozenset[UUID]:
        """The instances of this cluster's nodes."""
        return frozenset(target.instance_id for target in self.surroundings.targets)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A wish, and what stands for it.

    Attributes:
        wish: The wish.
        floating_ip: The floating IP; None when there is none (yet).
        is_ours: Whether it is ours to change and delete, or will be once it is made.
        is_adopted: Whether it becomes ours by being marked.
        pool: The pool that a new one is to come from; None for the default one.
        problem: Why there can be none; None when nothing stands in the way.
    """

    wish: AddressWish
    floating_ip: ObservedFloatingIp | None = None
    is_ours: bool = True
    is_adopted: bool = False
    pool: Pool | None = None
    problem: Refusal | None = None

    @property
    def is_missing(self) -> bool:
        """Whether one has to be made."""
        return self.floating_ip is None and self.problem is None


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """What a Service has and lacks.

    Attributes:
        places: Its wishes, in their order.
        extras: Those of ours that it wants no more.
        strays: Those of the user that it had and wants no more.
    """

    places: tuple[Place, ...]
    extras: tuple[ObservedFloatingIp, ...]
    strays: tuple[ObservedFloatingIp, ...]

    @property
    def floating_ips(self) -> tuple[ObservedFloatingIp, ...]:
        """All of them, what is wanted first."""
        wanted = [place.floating_ip for place in self.places if place.floating_ip is not None]
        return (*wanted, *self.extras, *self.strays)


def match(wanted: Wanted, sight: Sight) -> Match:
    """Find what stands for each wish, and what is left over."""
    ours = sorted(
        (each for each in sight.floating_ips if _is_ours(each, wanted, sight.cluster_id)),
        key=lambda each: (each.instance_id is None, str(each.ip) not in _published(wanted), each.name),
    )
    used: set[UUID] = set()
    places = []
    for wish in wanted.wishes:
        place = _referenced(wanted, wish, sight) if wish.reference else _unreferenced(wanted, wish, sight, ours, used)
        if place.floating_ip is not None:
            used.add(place.floating_ip.id)
        places.append(place)
    extras = tuple(each for each in ours if each.id not in used)
    return Match(tuple(places), extras, tuple(_strays(wanted, sight, used)))


def find(reference: str, floating_ips: Iterable[ObservedFloatingIp]) -> ObservedFloatingIp | None:
    """The floating IP that an address (in its one spelling), an id or a name means."""
    lowered = reference.lower()
    return next(
        (each for each in floating_ips if reference in {str(each.ip), each.name} or str(each.id) == lowered), None
    )


def family_of(floating_ip: ObservedFloatingIp) -> Family:
    """The family of an address."""
    return "IPv4" if floating_ip.ip.version == 4 else "IPv6"


def _is_ours(floating_ip: ObservedFloatingIp, wanted: Wanted, cluster_id: str) -> bool:
    return is_of_service(parse_mark(floating_ip.description), wanted.owner.uid, cluster_id)


def _published(wanted: Wanted) -> frozenset[str]:
    return frozenset(entry.ip for entry in wanted.published)


def _referenced(wanted: Wanted, wish: AddressWish, sight: Sight) -> Place:
    """What a wish for this very address comes to."""
    found = find(wish.reference, sight.floating_ips)
    if found is None:
        if wish.family is None:
            message = f"there is no floating IP {wish.reference!r} in the project; make it, or leave the annotation out"
            return Place(wish=wish, problem=Refusal("FloatingIPNotFound", message))
        return Place(wish=wish, problem=sight.refused.get(wish))
    if _is_ours(found, wanted, sight.cluster_id):
        return Place(wish=wish, floating_ip=found)
    problem = _objection(found, wanted, sight)
    if problem is not None:
        return Place(wish=wish, problem=problem)
    is_adopted = _is_ours_by_right(found, wanted, sight) or parse_mark(found.description) is not None
    return Place(wish=wish, floating_ip=found, is_ours=is_adopted, is_adopted=is_adopted)


def _objection(found: ObservedFloatingIp, wanted: Wanted, sight: Sight) -> Refusal | None:
    """Why a floating IP that is named is not to be had; None when it is."""
    if family_of(found) not in wanted.families:
        message = f"floating IP {found.name} ({found.ip}) is {family_of(found)}; the Service is not (spec.ipFamilies)"
        return Refusal("InvalidAnnotation", message)
    mark = parse_mark(found.description)
    if mark is not None:
        is_orphan = (mark.kind, mark.cluster_id) == (KIND, sight.cluster_id) and (
            mark.uid not in sight.surroundings.service_uids
        )
        if not is_orphan:
            message = f"floating IP {found.name} ({found.ip}) belongs to {mark.kind} {mark.namespace}/{mark.name}"
            return Refusal("AddressInUse", f"{message}; name another one")
    if found.instance_id is not None and found.instance_id not in sight.instance_ids:
        message = f"floating IP {found.name} ({found.ip}) is attached to instance {found.instance_id}"
        return Refusal("AddressInUse", f"{message}, which is no Node of this cluster; detach it there")
    for other in sight.surroundings.wanted.values():
        if other.owner.uid == wanted.owner.uid or _right(other, found) > _right(wanted, found):
            continue
        if any(find(wish.reference, (found,)) for wish in other.wishes if wish.reference):
            message = f"floating IP {found.name} ({found.ip}) is wanted by Service {other.owner}, which came first"
            return Refusal("AddressInUse", f"{message}; name another one")
    return None


def _right(wanted: Wanted, floating_ip: ObservedFloatingIp) -> tuple[bool, datetime.datetime, str]:
    """Who has the better right to an address that two Services name: whoever has it, else the older one."""
    return str(floating_ip.ip) not in _published(wanted), wanted.owner.created, wanted.owner.uid


def _unreferenced(
    wanted: Wanted, wish: AddressWish, sight: Sight, ours: Sequence[ObservedFloatingIp], used: set[UUID]
) -> Place:
    """What a wish for any address of a family or a pool comes to."""
    pool = sight.pools.get(wish.pool) if wish.pool else None
    if isinstance(pool, Refusal):
        return Place(wish=wish, problem=pool)
    if pool is not None and pool.family not in wanted.families:
        message = f"pool {wish.pool} has {pool.family} addresses; the Service has none (spec.ipFamilies)"
        return Place(wish=wish, problem=Refusal("InvalidAnnotation", message))
    family = pool.family if pool is not None else wish.family

    def is_fit(each: ObservedFloatingIp) -> bool:
        return each.id not in used and family_of(each) == family and pool in {None, Pool(each.ip_pool_id, family)}

    own = next((each for each in ours if is_fit(each)), None)
    if own is not None:
        return Place(wish=wish, floating_ip=own, pool=pool)
    adopted = next(
        (each for each in sight.floating_ips if is_fit(each) and _is_ours_by_right(each, wanted, sight)), None
    )
    if adopted is not None:
        return Place(wish=wish, floating_ip=adopted, is_adopted=True, pool=pool)
    return Place(wish=wish, pool=pool, problem=sight.refused.get(wish))


def _is_ours_by_right(floating_ip: ObservedFloatingIp, wanted: Wanted, sight: Sight) -> bool:
    """Whether one without our mark was made for this very Service all the same (V10). Never by a bare name."""
    if parse_mark(floating_ip.description) is not None:
        return False
    is_published = str(floating_ip.ip) in _published(wanted)
    names = itertools.islice(names_for(wanted.owner, sight.cluster_id), _OWN_NAMES)
    if floating_ip.name in names:
        # Ours, and somebody has written over the mark.
        return is_published
    if floating_ip.description != GO_DESCRIPTION:
        return False
    if is_published and sight.go_names.may_be(floating_ip.name, wanted.owner):
        return True
    is_here = floating_ip.instance_id is not None and floating_ip.instance_id in sight.instance_ids
    return is_here and sight.go_names.is_exactly(floating_ip.name, wanted.owner)


def _strays(wanted: Wanted, sight: Sight, used: set[UUID]) -> Iterator[ObservedFloatingIp]:
    """The user's addresses that this Service had: its status says so, they are on our nodes, and nobody wants them."""
    served = {entry.ip for entry in wanted.published if entry.mode == "Proxy"}
    others = [other for other in sight.surroundings.wanted.values() if other.owner.uid != wanted.owner.uid]
    for each in sight.floating_ips:
        is_here = each.instance_id is not None and each.instance_id in sight.instance_ids
        if each.id in used or str(each.ip) not in served or not is_here or parse_mark(each.description) is not None:
            continue
        if _is_ours_by_right(each, wanted, sight):
            continue
        references = [wish.reference for other in others for wish in other.wishes if wish.reference]
        if not any(find(reference, (each,)) for reference in references):
            yield each
