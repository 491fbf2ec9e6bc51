"""The life of a Service's floating IP: made, shown, repaired, given up (CCM rules S1 to S11; test groups 6 to 9)."""

from __future__ import annotations

from tests.sim.loop import simulated
from tests.sim.service_world import ServiceWorld


@simulated
async def test_a_service_gets_an_address_on_a_node() -> None:
    """V1, V2: the status is [floating IP as Proxy, the holder's primary address as VIP]; the finalizer is there."""
    world = ServiceWorld()
    await world.add_nodes(2)
    world.start()
    world.add_service("web", "tcp:443", "tcp:80")

    await world.serve("web")

    assert world.has_finalizer("web")
    assert world.floating_ip("web").description.endswith("ports=tcp:80,tcp:443")
    assert "EnsuredLoadBalancer" in world.told.reasons("web")
    await world.end()
