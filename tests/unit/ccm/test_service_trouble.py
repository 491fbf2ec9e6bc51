"""What the rack answers instead of doing it: retried, passed over, or told (CCM rules S16, S23, S24; group 12)."""

from __future__ import annotations

import pytest

from capox.ccm.kinds import NODES
from tests.contract.rack.staging import put_instance
from tests.sim.loop import simulated
from tests.sim.service_world import EXCLUDE, ServiceWorld


async def world_of(nodes: int) -> ServiceWorld:
    """A world with some nodes and a running controller."""
    world = ServiceWorld()
    await world.add_nodes(nodes)
    world.start()
    return world


@simulated
async def test_attach_is_unavailable_for_a_while() -> None:
    """S23: 503 is tried again soon; nothing is shown that is not there, and it is attached once."""
    world = await world_of(1)
    world.fault("unavailable", operation="floating_ip_attach", times=5)
    world.add_service("web", "tcp:443")
    await world.pass_time(5)
    assert world.ingress("web") == []

    await world.serve("web", seconds=240)

    assert len([call for call in world.calls("floating_ip_attach") if call.status == 202]) == 1
    await world.end()


@simulated
async def test_source_ranges_that_nobody_follows_are_told() -> None:
    """A Service whose author believes that it is closed to most is served, and the Event says that it is open."""
    world = await world_of(1)
    ranges = {"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/24"}
    world.add_service("web", "tcp:443", annotations=ranges)
    world.add_service("shop", "tcp:80", loadBalancerSourceRanges=["192.0.2.0/24"])
    await world.serve("web", "shop")

    await world.until(lambda: "SourceRangesIgnored" in world.told.reasons("web"), 30, "it is told")
    assert "SourceRangesIgnored" not in world.told.reasons("shop")
    await world.end()


@simulated
async def test_attach_is_unavailable_on_one_node_only() -> None:
    """V7: after some attempts the next candidate is tried."""
    world = await world_of(2)
    world.add_service("web", "tcp:443")
    await world.serve("web")
    first = world.holder("web")
    assert first is not None
    instance = world.rack.state.instances.by_name(world.rack.project.id, "node-1" if first == "node-2" else "node-2")
    assert instance is not None
    await world.add_node("node-3")
    sled = instance.sled
    assert sled is not None
    world.rack.state.sleds[sled].is_reachable = False
    world.label_node(first, EXCLUDE, "true")

    await world.until(lambda: world.holder("web") == "node-3" and world.is_served("web"), 300, "it is on node-3")

    await world.end()


@pytest.mark.parametrize("operation", ["floating_ip_create", "floating_ip_attach", "floating_ip_update"])
@pytest.mark.parametrize("kind", ["lost_reply", "internal_error_after", "lost_request", "unavailable"])
def test_an_answer_that_never_came(operation: str, kind: str) -> None:
    """S24: done or not, it is looked at before anything else; nothing is doubled."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(2)
        world.fault(kind, operation=operation, times=2)
        world.add_service("web", "tcp:443")
        await world.serve("web", seconds=120)
        world.change_service("web", spec={"ports": [{"protocol": "TCP", "port": 444}]})
        await world.until(
            lambda: world.floating_ip("web").description.endswith("ports=tcp:444"), 120, "the mark has the port"
        )
        assert len(list(world.rack.state.floating_ips)) == 1
        world.delete_service("web")
        await world.until(lambda: world.service("web") is None, 240, "it is gone")
        assert not list(world.rack.state.floating_ips)
        await world.end()

    story()


@pytest.mark.parametrize("operation", ["floating_ip_detach", "floating_ip_delete"])
@pytest.mark.parametrize("kind", ["lost_reply", "internal_error_after", "lost_request", "unavailable"])
def test_giving_up_without_an_answer(operation: str, kind: str) -> None:
    """S10, S24: the finalizer stays until nothing is left, and not longer."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(1)
        world.add_service("web", "tcp:443")
        await world.serve("web")
        world.fault(kind, operation=operation, times=3)
        world.delete_service("web")
        await world.until(lambda: world.service("web") is None, 240, "it is gone")
        assert not list(world.rack.state.floating_ips)
        await world.end()

    story()


@simulated
async def test_the_33rd_address_goes_to_the_next_node() -> None:
    """4.4: the rack takes 32 external addresses an instance."""
    world = await world_of(2)
    node = world.instance("node-1")
    for number in range(32):
        body = {
            "name": f"mine-{number}",
            "description": "",
            "address_allocator": {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}},
        }
        made = await world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
        attach = {"kind": "instance", "parent": node.id}
        await world.ask(202, "POST", f"/v1/floating-ips/{made['id']}/attach", attach)
    world.add_service("web", "tcp:443")

    await world.serve("web")

    assert world.holder("web") == "node-2"
    assert not [call for call in world.calls("floating_ip_attach") if call.status == 400]
    await world.end()


@simulated
async def test_a_node_without_the_family_is_passed_over() -> None:
    """S12: its Node has an IPv6 address, its primary interface has not: it is barred, and another one taken."""
    world = ServiceWorld()
    for number in (1, 2, 3):
        await world.add_node(f"v4-{number}", network="default_ipv4")
        addresses = [{"type": "InternalIP", "address": f"fd00::{number}"}]
        world.store.patch(NODES, "", f"v4-{number}", {"status": {"addresses": addresses}}, subresource="status")
    await world.add_node("dual")
    world.start()
    world.add_service("web", "tcp:443", ipFamilies=["IPv6"])

    await world.until(lambda: world.holder("web") == "dual", 60, "it is on the one that can")

    await world.end()


@simulated
async def test_no_address_is_left() -> None:
    """S23: an exhausted pool is told once, tried again slowly, and found out about when it has room."""
    world = await world_of(1)
    world.fault("pool_exhausted", object="public-v4")
    world.add_service("web", "tcp:443")
    await world.pass_time(240)
    assert world.told.reasons("web") == ["EnsuringLoadBalancer", "AddressNotAvailable"]
    assert len(world.told.messages("web", "AddressNotAvailable")) == 1
    assert len(world.calls("floating_ip_create")) == 1

    world.rack.app.faults.clear()

    await world.serve("web", seconds=400)
    await world.end()


@simulated
async def test_a_change_of_mind_is_tried_at_once() -> None:
    """S23: a refusal belongs to the wish that was refused."""
    world = await world_of(1)
    world.add_service("web", "tcp:443", annotations={"oxide.computer/floating-ip": "203.0.113.1"})
    await world.until(lambda: "AddressNotAvailable" in world.told.reasons("web"), 30, "it is refused")

    world.annotate("web", "floating-ip", None)

    await world.serve("web", seconds=20)
    await world.end()


@simulated
async def test_refused_credentials_pause_everything() -> None:
    """S23: 401 is asked about once a minute, whatever waits, and what is published stays."""
    world = await world_of(2)
    world.add_service("web", "tcp:443")
    await world.serve("web")
    ingress = world.ingress("web")
    world.fault("unauthorized")
    before = len(world.rack.app.log.entries(0))

    world.add_service("api", "tcp:80")
    await world.pass_time(300)

    assert len(world.rack.app.log.entries(0)) - before < 12
    assert world.ingress("web") == ingress
    world.rack.app.faults.clear()
    await world.serve("api", "web", seconds=180)
    await world.end()


@simulated
async def test_a_stuck_rack_call_holds_up_nobody_else() -> None:
    """S16: one Service's call takes its time; the others go on."""
    world = await world_of(2)
    world.add_service("slow", "tcp:80")
    await world.serve("slow")
    world.fault("slow", operation="floating_ip_detach", seconds=60, times=1)
    world.delete_service("slow")
    await world.pass_time(1)
    world.add_service("quick", "tcp:443")

    await world.serve("quick", seconds=15)

    assert world.floating_ips_of("slow")
    await world.end()


@simulated
async def test_instances_of_others_are_never_used() -> None:
    """S17: a running instance that is no Node gets nothing, whatever it is called."""
    world = await world_of(1)
    put_instance(world.rack, "node-0", "running")
    world.add_service("web", "tcp:443")

    await world.serve("web")

    assert world.holder("web") == "node-1"
    await world.end()
