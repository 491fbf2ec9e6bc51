"""The seam: a load balancer of Oxide's own could take over without a change in service.py or in a manifest.

`NativeBalancers` is a toy of one, with nothing of floating IPs in it: it has a table of balancers with addresses and
targets, and what it shows is one address that kube-proxy programs on every node.
"""

from __future__ import annotations

import dataclasses

from capox.ccm.kinds import SERVICES
from capox.ccm.load_balancer import LoadBalancer, Publish
from capox.ccm.placement import Port
from capox.ccm.rack import Rack
from capox.ccm.wanted import Entry, Notice, Outcome, Refusal, Surroundings, Wanted
from tests.sim.loop import simulated
from tests.sim.service_world import EXCLUDE, NAMESPACE, ServiceWorld


@dataclasses.dataclass
class Balancer:
    """One balancer of the toy rack."""

    address: str
    ports: frozenset[Port]
    targets: frozenset[str]


class NativeBalancers(LoadBalancer):
    """A rack that balances load by itself: every node that may take traffic is a target, at once."""

    def __init__(self) -> None:
        self.balancers: dict[str, Balancer] = {}
        self.calls = 0
        self.is_slow = False

    def refusal(self, wanted: Wanted, surroundings: Surroundings) -> Refusal | None:
        """It can do everything but port 25, so that a refusal of its own is seen."""
        del surroundings
        return Refusal("NoMail", "port 25 is not balanced") if Port("TCP", 25) in wanted.ports else None

    async def ensure(self, wanted: Wanted, surroundings: Surroundings, publish: Publish) -> Outcome:
        """Have a balancer with these ports and targets."""
        targets = frozenset(each.name for each in surroundings.targets if each.may_take and not each.closed)
        uid = wanted.owner.uid
        if uid not in self.balancers:
            self.calls += 1
            self.balancers[uid] = Balancer(f"192.0.2.{len(self.balancers) + 1}", wanted.ports, targets)
            await publish((Entry(self.balancers[uid].address, "VIP"),))
            if self.is_slow:
                return Outcome(retry_seconds=5.0)
        balancer = self.balancers[uid]
        if (balancer.ports, balancer.targets) != (wanted.ports, targets):
            self.calls += 1
            balancer.ports, balancer.targets = wanted.ports, targets
        notices = () if targets else (Notice("UnAvailableLoadBalancer", "there are no targets"),)
        return Outcome(entries=(Entry(balancer.address, "VIP"),), notices=notices, is_complete=True)

    async def release(self, wanted: Wanted, surroundings: Surroundings) -> Outcome:
        """Delete the balancer."""
        del surroundings
        self.balancers.pop(wanted.owner.uid, None)
        return Outcome(is_complete=True)

    def forget(self, uid: str) -> None:
        """Nothing is remembered."""


@simulated
async def test_a_native_load_balancer_serves_the_same_services() -> None:
    """The same Service, the same annotations and class, another backend: addresses, targets, refusals, the end."""
    native = NativeBalancers()

    def backend(rack: Rack) -> LoadBalancer:
        """Give the other load balancer."""
        del rack
        return native

    world = ServiceWorld(backend=backend)
    await world.add_nodes(2)
    world.start()
    world.add_service("web", "tcp:443", externalTrafficPolicy="Local", loadBalancerClass="oxide.computer/floating-ip")
    world.add_service("mail", "tcp:25")

    await world.until(lambda: bool(world.ingress("web")), 20, "it is served")

    assert world.ingress("web") == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    assert world.has_finalizer("web")
    assert world.told.reasons("mail") == ["NoMail"]
    assert not list(world.rack.state.floating_ips)
    (balancer,) = native.balancers.values()
    assert balancer.targets == {"node-1", "node-2"}

    world.label_node("node-1", EXCLUDE, "true")
    await world.until(lambda: balancer.targets == {"node-2"}, 20, "the targets follow")
    world.set_ready("node-2", "Unknown")
    await world.until(lambda: balancer.targets == frozenset(), 60, "the targets follow readiness")

    await world.crash()
    await world.pass_time(10)
    assert len(native.balancers) == 1

    world.delete_service("web")
    await world.until(lambda: world.service("web") is None, 20, "it is gone")
    assert not native.balancers
    await world.end()


@simulated
async def test_what_takes_long_comes_back_as_it_asked_to() -> None:
    """An implementation publishes in between, and says when to look again."""
    native = NativeBalancers()
    native.is_slow = True

    def backend(rack: Rack) -> LoadBalancer:
        """Give the other load balancer."""
        del rack
        return native

    world = ServiceWorld(backend=backend)
    await world.add_nodes(1)
    world.start()
    world.add_service("web")
    await world.until(lambda: bool(world.ingress("web")), 20, "it is published")
    native.is_slow = False

    world.store.patch(SERVICES, NAMESPACE, "web", {"status": {"loadBalancer": None}}, subresource="status")

    await world.until(lambda: bool(world.ingress("web")), 10, "the status is back")
    await world.end()
