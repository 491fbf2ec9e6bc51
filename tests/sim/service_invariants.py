"""What must hold of Services and their floating IPs after every step, whatever fails and whenever the process dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from capox.ccm.kinds import SERVICES
from capox.ccm.service_mark import marked_ports
from capox.ownership import OwnerMark, parse_mark
from tests.sim.invariants import InvariantError

if TYPE_CHECKING:
    from capox.rack import records
    from tests.sim.service_world import ServiceWorld
    from tests.sim.store import Change

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

STALE_SECONDS = 300.0
"""How long, in whatever weather, a status may name a node that does not carry the address."""


class ServiceWatchdog:
    """Looks at the world after each step.

    Args:
        world: What it looks at.
    """

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world
        self._foreign: dict[str, tuple[str, str]] = {}
        self._addresses: dict[str, tuple[str, str]] = {}
        self._retired: set[str] = set()
        self._stale_since: dict[tuple[str, str], float] = {}
        world.store.subscribe(self._on_change)

    def keep_foreign(self, floating_ip: records.FloatingIp) -> None:
        """Watch over something that is not the controller's to change: its name and its description."""
        self._foreign[floating_ip.id] = (floating_ip.name, floating_ip.description)

    def look(self) -> None:
        """Check everything.

        Raises:
            InvariantError: Something does not hold.
        """
        for complaint in (
            *self._no_two_on_one_port(),
            *self._no_address_is_lost(),
            *self._status_is_not_stale(),
            *self._nothing_is_left(),
            *self._foreign_things_stay(),
        ):
            raise InvariantError(f"seed {self._world.seed}: {complaint}\n{self._world.describe()}")

    def _on_change(self, change: Change) -> None:
        del change
        self.look()

    def _marked(self) -> Iterator[tuple[records.FloatingIp, OwnerMark]]:
        for floating_ip in self._world.rack.state.floating_ips:
            mark = parse_mark(floating_ip.description)
            if mark is not None and mark.kind == "Service":
                yield floating_ip, mark

    def _services(self) -> dict[str, Mapping[str, Any]]:
        return {each["metadata"]["uid"]: each for each in self._world.store.list(SERVICES, None)}

    def _no_two_on_one_port(self) -> Iterator[str]:
        """Two Services' addresses with one family, protocol and port are never on one node (4.4)."""
        taken: dict[tuple[object, ...], str] = {}
        for floating_ip, mark in self._marked():
            for port in marked_ports(mark) or () if floating_ip.instance is not None else ():
                place = (floating_ip.instance, floating_ip.ip.version, port)
                if taken.setdefault(place, mark.uid) != mark.uid:
                    yield f"{port} of {mark.name} is on a node where another Service has it"

    def _no_address_is_lost(self) -> Iterator[str]:
        """An address stays its Service's as long as the Service lives and wants the same (S22)."""
        present = {floating_ip.id for floating_ip in self._world.rack.state.floating_ips}
        services = self._services()
        for identity, (uid, wish) in list(self._addresses.items()):
            owner = services.get(uid)
            is_wanted = owner is not None and not owner["metadata"].get("deletionTimestamp") and _wish(owner) == wish
            if not is_wanted:
                del self._addresses[identity]
                self._retired.add(identity)
            elif identity not in present and owner is not None:
                yield f"the address of {owner['metadata']['name']} is gone, and nobody asked for that"
        for floating_ip, mark in self._marked():
            is_settled = floating_ip.instance is not None and floating_ip.id not in self._retired
            if mark.uid in services and is_settled:
                self._addresses.setdefault(floating_ip.id, (mark.uid, _wish(services[mark.uid])))

    def _status_is_not_stale(self) -> Iterator[str]:
        """A status names a node that does not carry one of its addresses for a bounded time only (V7)."""
        carriers: dict[str, set[str]] = {}
        for floating_ip in self._world.rack.state.floating_ips:
            holder = self._world.holder_of(floating_ip)
            if holder is not None:
                addresses = self._world.private_addresses(holder)
                carriers.setdefault(str(floating_ip.ip), set()).update(addresses)
        stale = set()
        for service in self._services().values():
            ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
            outside = [entry["ip"] for entry in ingress if entry["ipMode"] == "Proxy"]
            carrying = {address for ip in outside for address in carriers.get(ip, ())}
            for entry in ingress:
                if entry["ipMode"] == "VIP" and entry["ip"] not in carrying:
                    stale.add((service["metadata"]["name"], entry["ip"]))
        now = self._world.seconds
        self._stale_since = {each: self._stale_since.get(each, now) for each in stale}
        for (name, address), since in self._stale_since.items():
            if now - since > STALE_SECONDS:
                yield f"the status of {name} has named {address} for {now - since:.0f} s, which carries nothing of it"

    def _nothing_is_left(self) -> Iterator[str]:
        """What was made for a Service is there only as long as the Service is, with the finalizer on it (S4, S10)."""
        services = self._services()
        for floating_ip, mark in self._marked():
            owner = services.get(mark.uid)
            if owner is None:
                yield f"floating IP {floating_ip.name} is left, and its Service is gone"
            elif FINALIZER not in owner["metadata"].get("finalizers", ()):
                yield f"floating IP {floating_ip.name} is there, and its Service has not the finalizer"

    def _foreign_things_stay(self) -> Iterator[str]:
        """What the user made is never changed or deleted (S10, S22)."""
        now = {each.id: (each.name, each.description) for each in self._world.rack.state.floating_ips}
        for identity, before in self._foreign.items():
            if now.get(identity) != before:
                yield f"floating IP {before[0]} is the user's and was {before}, now {now.get(identity)}"


def _wish(service: Mapping[str, Any]) -> str:
    annotations = service["metadata"].get("annotations") or {}
    asked = {key: value for key, value in annotations.items() if not key.endswith("reclaim")}
    return f"{service['spec']['type']} {sorted(asked.items())} {service['spec'].get('ipFamilies')}"
