"""A Service's floating IPs as they are seen on the rack, among all others of the project.

The lists are shared; what was just changed is viewed by itself and laid over the last list until a newer one has it.
That keeps a move short, and tells every other Service at once. Who decides for a node says so in the same step, without
waiting for anything in between: two Services never decide for one place (S15).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from capox.ccm.firewall_plan import Guest, closed_ports
from capox.ccm.floating_ip_match_plan import Match, Pool, Sight, family_of, match
from capox.ccm.floating_ip_plan import Picture
from capox.ccm.placement import Candidate, Decision, Family, Port, Seat, assign
from capox.ccm.rack import FLOATING_IPS_REST_SECONDS, Project
from capox.ccm.seat_plan import Journeys, candidates_of, seats_of
from capox.ccm.service_mark import GoNames
from capox.ccm.wanted import AddressWish, Refusal, Surroundings, Wanted
from capox.oxide.clock import Clock
from capox.oxide.errors import ObjectNotFound
from capox.oxide.models import FloatingIp, IpVersion
from capox.oxide.models.firewall import VpcFirewallRule
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot, ObservedFloatingIp

__all__ = ["FloatingIpRack", "Memory", "Primary", "View"]

POOL_KEPT_SECONDS: Final = 600.0
"""How long a pool's id and family are believed; a name can come to mean another pool."""

PRIMARY_KEPT_SECONDS: Final = 300.0
"""How long an instance is passed over whose interface lacks what is needed, or one believed that has shown none."""

FIREWALL_KEPT_SECONDS: Final = 240.0
"""How long a firewall is believed; it is looked at only to warn."""

GOING_SECONDS: Final = 120.0
"""How long a place is kept for an address that is on its way and whose Service is not heard of."""

_FAMILY_OF: Final[Mapping[str, Family]] = {IpVersion.V4: "IPv4", IpVersion.V6: "IPv6"}


@dataclasses.dataclass(slots=True)
class Memory:
    """What this process remembers of one Service; empty after a restart, which is safe.

    Attributes:
        last_act: Right after the last act whose effect only a list can show.
        unanswered_at: On the clock, when a request to make an address may have been sent whose outcome is not known.
        unserved_since: On the clock, since when the status may name a node that has no address.
        failures: How often in a row something failed that passes by itself.
        refused: Wishes that the rack refused to make an address for, and until when they are left alone.
        is_known: Whether an earlier pass of this process has seen the Service.
    """

    last_act: Moment | None = None
    unanswered_at: float | None = None
    unserved_since: float | None = None
    failures: int = 0
    refused: dict[AddressWish, tuple[Refusal, float]] = dataclasses.field(default_factory=dict)
    is_known: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Primary:
    """An instance's primary interface.

    Attributes:
        addresses: Its address by family.
        vpc_id: The VPC that it is in.
    """

    addresses: Mapping[Family, str]
    vpc_id: UUID | None


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What one look has given.

    Attributes:
        picture: What decides about the next step.
        seats: All seats.
        candidates: All nodes.
        primaries: The primary interfaces that were read.
        instances: The instances as they were listed.
        floating_ips_began: When the list of floating IPs was begun.
    """

    picture: Picture
    seats: tuple[Seat, ...]
    candidates: tuple[Candidate, ...]
    primaries: Mapping[UUID, Primary]
    instances: InstanceSnapshot
    floating_ips_began: Moment


class FloatingIpRack:
    """What all Services share of one project.

    Args:
        project: The project.
        clock: What times go by.
        cluster_id: Which cluster this is.
        go_names: How Oxide's own controller calls its floating IPs.

    Attributes:
        project: The project.
        cluster_id: Which cluster this is.
    """

    def __init__(self, project: Project, clock: Clock, cluster_id: str, go_names: GoNames) -> None:
        self.project = project
        self._clock = clock
        self.cluster_id = cluster_id
        self._go_names = go_names
        self._overlays: dict[UUID, tuple[Moment, ObservedFloatingIp | None]] = {}
        self._going: dict[UUID, tuple[UUID, float]] = {}
        self._barred: dict[tuple[UUID, UUID], float] = {}
        self._attempts: dict[tuple[UUID, UUID], int] = {}
        self._pools: dict[str, tuple[Pool | Refusal, float]] = {}
        self._primaries: dict[UUID, tuple[Primary, datetime.datetime, float]] = {}
        self._names: frozenset[str] = frozenset()
        self._firewalls: dict[UUID, tuple[tuple[VpcFirewallRule, ...], float]] = {}

    async def look(
        self,
        wanted: Wanted,
        surroundings: Surroundings,
        memory: Memory,
        *,
        age_seconds: float,
        refused_uids: Collection[str] = (),
        is_placed: bool = True,
    ) -> View:
        """See everything that decides about a Service's next step, and keep the places that are decided for it.

        Args:
            wanted: What it wants.
            surroundings: What is around it.
            memory: What is remembered of it.
            age_seconds: How old lists may be.
            refused_uids: Services that cannot be served as they are.
            is_placed: Whether places are looked for; not where everything is given up.

        Raises:
            OxideError: Something could not be read.
        """
        pools = {wish.pool: await self._pool(wish.pool) for wish in wanted.wishes if wish.pool}
        instances = await self.project.inventory.instances.recent(age_seconds)
        if any(each.may_take and instances.by_id(each.instance_id) is None for each in surroundings.targets):
            # A Node that has just joined, most likely: the list is older than its instance.
            instances = await self.project.inventory.instances.recent(TRANSITION_SECONDS)
        listed_age_seconds = FLOATING_IPS_REST_SECONDS if age_seconds >= REST_SECONDS else age_seconds
        listed = await self.project.inventory.floating_ips.recent(listed_age_seconds, after=memory.last_act)
        while True:
            # From here to the answer nothing waits, so nobody else decides in between.
            sight = self._sight(surroundings, memory, self._laid_over(listed), pools)
            found = match(wanted, sight)
            seats = seats_of(wanted, found, sight, self._journeys(), refused_uids)
            by_id = {each.id: each for each in instances}
            candidates = candidates_of(surroundings.targets, by_id, sight.floating_ips, seats)
            decisions = assign(seats, candidates) if is_placed else {}
            self._keep_places(found, decisions, is_placed=is_placed)
            primaries = await self._primaries_of(instances, _instances_in(found, decisions))
            if not self._bar_unrelated(found, decisions, primaries):
                break
        picture = Picture(
            wanted=wanted,
            cluster_id=self.cluster_id,
            match=found,
            decisions=decisions,
            private={
                (instance_id, family): address
                for instance_id, primary in primaries.items()
                for family, address in primary.addresses.items()
            },
            run_states={each.id: str(each.run_state) for each in instances},
            instance_ids=sight.instance_ids,
        )
        return View(picture, seats, candidates, primaries, instances, listed.began)

    async def view(self, floating_ip_id: UUID) -> ObservedFloatingIp | None:
        """See one floating IP as it is now; None when it is not found (S24).

        Raises:
            OxideError: It could not be read.
        """
        found: ObservedFloatingIp | None = None
        with contextlib.suppress(ObjectNotFound):
            found = ObservedFloatingIp.of(await self.project.client.floating_ip_view(floating_ip_id))
        self._overlays[floating_ip_id] = (self.now(), found)
        return found

    def made(self, floating_ip: FloatingIp) -> None:
        """Take note of one that was just made or changed, as the rack has answered."""
        self._overlays[floating_ip.id] = (self.now(), ObservedFloatingIp.of(floating_ip))

    def deleted(self, floating_ip_id: UUID) -> None:
        """Take note of one that was just deleted."""
        self._overlays[floating_ip_id] = (self.now(), None)

    async def closed_ports(self, guest: Guest, ports: frozenset[Port]) -> tuple[Port, ...]:
        """The ports that the firewall lets nobody in at, as it was within the last minutes.

        Raises:
            OxideError: It could not be read.
        """
        known, now_seconds = self._firewalls.get(guest.vpc_id), self._clock.monotonic()
        if known is None or known[1] <= now_seconds:
            found = await self.project.client.vpc_firewall_rules_view(vpc=guest.vpc_id)
            known = self._firewalls[guest.vpc_id] = (found.rules, now_seconds + FIREWALL_KEPT_SECONDS)
        return closed_ports(known[0], guest, ports)

    def has_name(self, name: str) -> bool:
        """Whether a floating IP of this name was there at the last look."""
        return name in self._names

    def now(self) -> Moment:
        """The present moment, for readings that have to be newer than an act."""
        return self.project.inventory.now()

    def bar(self, floating_ip_id: UUID, instance_id: UUID, seconds: float) -> None:
        """Pass an instance over for a while when a place for an address is looked for."""
        self._barred[floating_ip_id, instance_id] = self._clock.monotonic() + seconds
        self._attempts.pop((floating_ip_id, instance_id), None)
        self._going.pop(floating_ip_id, None)

    def failed(self, floating_ip_id: UUID, instance_id: UUID) -> int:
        """Count an attempt to attach that failed; gives how many there were in a row."""
        key = (floating_ip_id, instance_id)
        self._attempts[key] = self._attempts.get(key, 0) + 1
        return self._attempts[key]

    def arrived(self, floating_ip_id: UUID, instance_id: UUID) -> None:
        """Take note that an address has come to where it was going."""
        self._attempts.pop((floating_ip_id, instance_id), None)

    # -- what is shared -----------------------------------------------------------------------------------------------

    def _laid_over(self, listed: FloatingIpSnapshot) -> tuple[ObservedFloatingIp, ...]:
        """The list with what is known to be newer; what the list has caught up with is forgotten."""
        self._overlays = {key: each for key, each in self._overlays.items() if each[0] > listed.began}
        found = {each.id: each for each in listed}
        for key, (_, newer) in self._overlays.items():
            if newer is None:
                found.pop(key, None)
            else:
                found[key] = newer
        self._names = frozenset(each.name for each in found.values())
        return tuple(found.values())

    def _sight(
        self,
        surroundings: Surroundings,
        memory: Memory,
        floating_ips: tuple[ObservedFloatingIp, ...],
        pools: Mapping[str, Pool | Refusal],
    ) -> Sight:
        now_seconds = self._clock.monotonic()
        memory.refused = {wish: each for wish, each in memory.refused.items() if each[1] > now_seconds}
        return Sight(
            cluster_id=self.cluster_id,
            floating_ips=floating_ips,
            surroundings=surroundings,
            pools=pools,
            refused={wish: refusal for wish, (refusal, _) in memory.refused.items()},
            go_names=self._go_names,
        )

    def _journeys(self) -> Journeys:
        now_seconds = self._clock.monotonic()
        self._going = {key: each for key, each in self._going.items() if each[1] > now_seconds}
        self._barred = {key: until for key, until in self._barred.items() if until > now_seconds}
        barred: dict[UUID, set[UUID]] = {}
        for floating_ip_id, instance_id in self._barred:
            barred.setdefault(floating_ip_id, set()).add(instance_id)
        return Journeys(
            going={key: instance_id for key, (instance_id, _) in self._going.items()},
            barred={key: frozenset(each) for key, each in barred.items()},
        )

    def _keep_places(self, found: Match, decisions: Mapping[str, Decision], *, is_placed: bool) -> None:
        """Keep the places that are decided for; what has arrived, or goes nowhere, keeps none."""
        until = self._clock.monotonic() + GOING_SECONDS
        for each in found.floating_ips:
            node = decisions[str(each.id)].node if is_placed else None
            if node is None or node.instance_id == each.instance_id:
                self._going.pop(each.id, None)
            else:
                self._going[each.id] = (node.instance_id, until)

    def _bar_unrelated(
        self, found: Match, decisions: Mapping[str, Decision], primaries: Mapping[UUID, Primary]
    ) -> bool:
        """Bar nodes that were chosen and whose primary interface lacks the family after all (S12)."""
        is_any_barred = False
        for each in found.floating_ips:
            decision = decisions.get(str(each.id))
            node = decision.node if decision is not None else None
            if node is None or node.instance_id == each.instance_id:
                continue
            if family_of(each) not in primaries[node.instance_id].addresses:
                self.bar(each.id, node.instance_id, PRIMARY_KEPT_SECONDS)
                is_any_barred = True
        return is_any_barred

    async def _primaries_of(self, instances: InstanceSnapshot, wanted_ids: Iterable[UUID]) -> dict[UUID, Primary]:
        return {instance_id: await self._primary(instances, instance_id) for instance_id in wanted_ids}

    async def _primary(self, instances: InstanceSnapshot, instance_id: UUID) -> Primary:
        """The primary interface of an instance; none, when the instance is not there."""
        instance = instances.by_id(instance_id)
        if instance is None:
            return Primary({}, None)
        known, now_seconds = self._primaries.get(instance_id), self._clock.monotonic()
        if known is not None and known[1] == instance.time_run_state_updated and known[2] > now_seconds:
            return known[0]
        primary = Primary({}, None)
        with contextlib.suppress(ObjectNotFound):
            async for interface in self.project.client.instance_network_interface_list(instance=instance_id):
                if interface.primary:
                    addresses: dict[Family, str] = {
                        "IPv4" if address.version == 4 else "IPv6": str(address) for address in interface.addresses
                    }
                    primary = Primary(addresses, interface.vpc_id)
        # Interfaces change only while their instance is stopped. One that was not seen is looked for again.
        kept_until = math.inf if primary.addresses else now_seconds + PRIMARY_KEPT_SECONDS
        self._primaries[instance_id] = (primary, instance.time_run_state_updated, kept_until)
        return primary

    async def _pool(self, reference: str) -> Pool | Refusal:
        """The pool that a name or id means."""
        known, now_seconds = self._pools.get(reference), self._clock.monotonic()
        if known is not None and known[1] > now_seconds:
            return known[0]
        pool: Pool | Refusal
        kept_seconds = POOL_KEPT_SECONDS
        try:
            found = await self.project.client.ip_pool_view(reference)
        except ObjectNotFound:
            message = f"there is no IP pool {reference!r} that the silo may use"
            pool, kept_seconds = Refusal("PoolNotFound", f"{message}; name another one"), POOL_KEPT_SECONDS / 10
        else:
            family = _FAMILY_OF.get(found.ip_version)
            pool = (
                Pool(found.id, family)
                if family is not None and found.pool_type == "unicast"
                else Refusal("PoolNotFound", f"IP pool {reference!r} has no unicast addresses; name another one")
            )
        self._pools[reference] = (pool, now_seconds + kept_seconds)
        return pool


def _instances_in(found: Match, decisions: Mapping[str, Decision]) -> Iterator[UUID]:
    """The instances that have a Service's addresses, or are to get them."""
    seen: set[UUID] = set()
    for each in found.floating_ips:
        decision = decisions.get(str(each.id))
        node = decision.node if decision is not None else None
        for instance_id in (each.instance_id, node.instance_id if node is not None else None):
            if instance_id is not None and instance_id not in seen:
                seen.add(instance_id)
                yield instance_id
