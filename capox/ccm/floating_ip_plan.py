"""What to do next about a Service's floating IPs: pure, from what is wanted, what was seen and where each belongs.

A plan is one step and is made anew after each. There is no move on the rack: an address is detached, and then attached
elsewhere, and every pass begins with where it is now. The order of a move is that of V7: the status names the new node
before the old one lets go, so that nodes have their rules when the first packet comes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from capox.ccm.floating_ip_match_plan import Match, Place, family_of
from capox.ccm.placement import Candidate, Decision, Family, Lack
from capox.ccm.service_mark import GO_DESCRIPTION, retained_description, service_description
from capox.ccm.wanted import Entry, Wanted
from capox.oxide.models import InstanceState
from capox.oxide.snapshots import ObservedFloatingIp

__all__ = [
    "Attach",
    "Create",
    "Delete",
    "Detach",
    "Finished",
    "LetGo",
    "Picture",
    "Prepare",
    "Stamp",
    "Steady",
    "Step",
    "Stuck",
    "entries",
    "plan_release",
    "plan_step",
]

_CAN_CHANGE: Final = frozenset({InstanceState.RUNNING, InstanceState.STOPPED, InstanceState.REBOOTING})
_IS_HOPELESS: Final = frozenset({InstanceState.FAILED})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that decides about the next step.

    Attributes:
        wanted: What the Service wants.
        cluster_id: Which cluster this is.
        match: What it has and lacks.
        decisions: Where each of its floating IPs belongs, by the ids as text.
        private: The addresses of primary interfaces, by instance and family.
        run_states: The states of the instances that exist.
        instance_ids: The instances of this cluster's nodes.
    """

    wanted: Wanted
    cluster_id: str
    match: Match
    decisions: Mapping[str, Decision] = dataclasses.field(default_factory=dict)
    private: Mapping[tuple[UUID, Family], str] = dataclasses.field(default_factory=dict)
    run_states: Mapping[UUID, str] = dataclasses.field(default_factory=dict)
    instance_ids: Collection[UUID] = frozenset()

    def decision(self, floating_ip: ObservedFloatingIp) -> Decision:
        """Where one belongs."""
        return self.decisions.get(str(floating_ip.id), Decision(None))

    @property
    def is_served(self) -> bool:
        """Whether every address that is wanted is there and attached, so that others can go."""
        return all(
            place.floating_ip is not None and place.floating_ip.instance_id is not None
            for place in self.match.places
            if place.wish.is_required or place.problem is None
        )

    @property
    def serving(self) -> tuple[ObservedFloatingIp, ...]:
        """The floating IPs that have to work now: what is wanted, and as long as that does not, what was before."""
        places = tuple(place.floating_ip for place in self.match.places if place.floating_ip is not None)
        return places if self.is_served else (*places, *self.match.extras, *self.match.strays)

    @property
    def shown(self) -> tuple[ObservedFloatingIp, ...]:
        """What the status speaks of.

        What is wanted no more stays in it until it is detached: it tells after a crash what has to be given up.
        """
        leftovers = (*self.match.extras, *self.match.strays) if self.is_served else ()
        return (*self.serving, *(each for each in leftovers if each.instance_id is not None))


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """Make a floating IP for a wish."""

    place: Place
    description: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stamp:
    """Write the mark anew, or for the first time."""

    floating_ip: ObservedFloatingIp
    description: str


@dataclasses.dataclass(frozen=True, slots=True)
class Prepare:
    """Have the status say this before the next step.

    Attributes:
        entries: What it says.
        is_graceful: Whether the old holder still works, so that there is time for the nodes to follow.
    """

    entries: tuple[Entry, ...]
    is_graceful: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Attach:
    """Attach a floating IP to a node's instance."""

    floating_ip: ObservedFloatingIp
    to: Candidate


@dataclasses.dataclass(frozen=True, slots=True)
class Detach:
    """Detach a floating IP from where it is; `to` is who gets it next, None when nobody does."""

    floating_ip: ObservedFloatingIp
    to: Candidate | None


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Delete a floating IP of ours that is attached to nothing."""

    floating_ip: ObservedFloatingIp


@dataclasses.dataclass(frozen=True, slots=True)
class LetGo:
    """Take the mark off one that is kept; it is the user's then."""

    floating_ip: ObservedFloatingIp
    description: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stuck:
    """Nothing can be done until an instance has got on.

    Attributes:
        floating_ip: What cannot be moved.
        cause: Why.
        is_passing: Whether it passes by itself within moments.
    """

    floating_ip: ObservedFloatingIp
    cause: str
    is_passing: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Steady:
    """Everything is as far as it goes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left."""


Step: TypeAlias = Create | Stamp | Prepare | Attach | Detach | Delete | LetGo | Stuck | Steady | Finished


def plan_step(picture: Picture) -> Step:
    """The next step towards addresses that are there and where they belong."""
    for place in picture.match.places:
        if place.is_missing:
            return Create(place, _description(picture)[0])
        if place.is_adopted and place.floating_ip is not None:
            return Stamp(place.floating_ip, _description(picture)[0])
    stuck: Stuck | None = None
    for floating_ip in picture.serving:
        step = _plan_holder(picture, floating_ip)
        if isinstance(step, Stuck):
            stuck = stuck or step
        elif step is not None:
            return step
    step = _plan_leftovers(picture) if picture.is_served else None
    if isinstance(step, Stuck):
        stuck = stuck or step
    elif step is not None:
        return step
    return _plan_mark(picture) or stuck or Steady()


def plan_release(picture: Picture) -> Step:
    """The next step towards nothing being left."""
    match = picture.match
    for place in match.places:
        floating_ip = place.floating_ip
        if floating_ip is None:
            continue
        if place.is_adopted and floating_ip.description == GO_DESCRIPTION:
            return Stamp(floating_ip, _description(picture)[0])
        # One whose mark somebody has taken off is let go, but never deleted (S10).
        step = _release(picture, floating_ip, is_ours=place.is_ours and not place.is_adopted)
        if step is not None:
            return step
    for floating_ip in match.extras:
        step = _release(picture, floating_ip, is_ours=True)
        if step is not None:
            return step
    for floating_ip in match.strays:
        step = _release(picture, floating_ip, is_ours=False)
        if step is not None:
            return step
    return Finished()


def entries(picture: Picture, coming: Sequence[tuple[UUID, Family]] = ()) -> tuple[Entry, ...]:
    """What the status says: the addresses from outside first (V2), then that of each node that has one of them now.

    Args:
        picture: What was seen.
        coming: Nodes that are about to get one.
    """
    outside, inside = [], []
    published = {entry.ip for entry in picture.wanted.published}
    for each in picture.shown:
        decision, holder = picture.decision(each), each.instance_id
        must_leave = _must_leave(picture, each)
        is_on_its_way = holder is None and decision.node is not None and str(each.ip) in published
        is_held = holder is not None and not must_leave
        # Where there is no node at all the address stays to be seen, and so it does while it is carried over (3.5).
        if not (is_held or is_on_its_way or decision.lack is Lack.NODES):
            continue
        outside.append(Entry(str(each.ip), "Proxy"))
        if is_held and holder is not None and (holder, family_of(each)) in picture.private:
            inside.append(Entry(picture.private[holder, family_of(each)], "VIP"))
    inside += [Entry(picture.private[place], "VIP") for place in coming if place in picture.private]
    return tuple(dict.fromkeys((*outside, *inside)))


def _plan_holder(picture: Picture, floating_ip: ObservedFloatingIp) -> Step | None:
    """What has to happen so that a floating IP comes to where it belongs; None when it is there."""
    node, holder = picture.decision(floating_ip).node, floating_ip.instance_id
    if node is None:
        if holder is None or not _must_leave(picture, floating_ip):
            return None
        ahead = entries(picture)
        is_told = ahead == picture.wanted.published
        return _obstacle(picture, floating_ip) or (Detach(floating_ip, None) if is_told else Prepare(ahead))
    if node.instance_id == holder:
        return None
    if holder is None:
        return Attach(floating_ip, node)
    family = family_of(floating_ip)
    ahead = entries(picture, [(node.instance_id, family)])
    is_alive = picture.run_states.get(holder) == InstanceState.RUNNING and holder in picture.instance_ids
    if not is_alive:
        # Nobody reaches a dead holder any more, so its address need not stay (V7).
        old = {picture.private.get((holder, family))} - {picture.private.get((node.instance_id, family))}
        ahead = tuple(entry for entry in ahead if entry.ip not in old)
    is_told = set(ahead) <= set(picture.wanted.published)
    step = Detach(floating_ip, node) if is_told else Prepare(ahead, is_graceful=is_alive)
    return _obstacle(picture, floating_ip) or step


def _must_leave(picture: Picture, floating_ip: ObservedFloatingIp) -> bool:
    """Whether an address is attached and has to be detached although it has nowhere to go."""
    decision, holder = picture.decision(floating_ip), floating_ip.instance_id
    if holder is None or decision.node is not None:
        return False
    # A Node that is not known (any more) is no reason: with no node at all there is nothing to be won (S13, R9).
    return decision.lack is not Lack.NODES or holder in picture.instance_ids


def _obstacle(picture: Picture, floating_ip: ObservedFloatingIp) -> Stuck | None:
    """Why the rack would not detach now (semantics 3.2, V8)."""
    assert floating_ip.instance_id is not None, "what is attached to nothing has left already"
    state = picture.run_states.get(floating_ip.instance_id)
    if state is None or state in _CAN_CHANGE:
        # An instance of another project, or one that has just gone: the rack will say.
        return None
    cause = f"instance {floating_ip.instance_id}, which has it, is {state}"
    return Stuck(floating_ip, cause, is_passing=state not in _IS_HOPELESS)


def _plan_leftovers(picture: Picture) -> Step | None:
    """Give up what is wanted no more, once everything that is wanted works (S22)."""
    leftovers = [(each, True) for each in picture.match.extras] + [(each, False) for each in picture.match.strays]
    if not leftovers:
        return None
    ahead = entries(picture)
    if not set(ahead) <= set(picture.wanted.published):
        return Prepare(ahead)
    for floating_ip, is_ours in leftovers:
        step = _release(picture, floating_ip, is_ours=is_ours)
        if step is not None:
            return step
    return None


def _release(picture: Picture, floating_ip: ObservedFloatingIp, *, is_ours: bool) -> Step | None:
    if floating_ip.instance_id is not None:
        if not is_ours and floating_ip.instance_id not in picture.instance_ids:
            return None
        return _obstacle(picture, floating_ip) or Detach(floating_ip, None)
    if not is_ours:
        return None
    if picture.wanted.keeps_address:
        return LetGo(floating_ip, retained_description(picture.wanted.owner))
    return Delete(floating_ip)


def _plan_mark(picture: Picture) -> Stamp | None:
    """Write the mark of what is well placed: only then is a new port settled (4.4)."""
    description, _ = _description(picture)
    for place in picture.match.places:
        floating_ip = place.floating_ip
        if floating_ip is None or not place.is_ours or floating_ip.description == description:
            continue
        if picture.decision(floating_ip).lack is not Lack.PORTS:
            return Stamp(floating_ip, description)
    return None


def _description(picture: Picture) -> tuple[str, bool]:
    wanted = picture.wanted
    return service_description(wanted.owner, picture.cluster_id, wanted.ports, is_retained=wanted.keeps_address)
