"""Endpoints that the user brings, in the simulated world."""

from __future__ import annotations

import datetime
from typing import Any

from capox.kube.kind import SECRETS
from capox.provider import names
from capox.provider.kinds import OXIDE_CLUSTERS, OXIDE_MACHINES
from capox.rack.faults import FaultRule
from tests.sim.cluster_api import NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import World

HOLDER, SUCCESSOR = (names.instance_name(NAMESPACE, machine) for machine in ("web-cp-0", "web-cp-1"))
MOVING = {"floating_ip_detach", "floating_ip_attach"}


@simulated
async def test_a_brought_floating_ip_leaves_before_its_instance_stops() -> None:
    """A floating IP without our mark moves like any other when its machine is deleted, and is not deleted (M-32)."""
    world = World(0)
    world.clear_up()
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = {"name": "by-hand", "description": "made by hand", "address_allocator": allocator}
    await world.rack.must(201, "POST", "/v1/floating-ips", body, project="demo")
    await two_control_planes(world, controlPlaneFloatingIP="by-hand")
    core = world.cluster_api

    core.delete_machine("web-cp-0")
    while world.store.list(OXIDE_MACHINES, NAMESPACE) and any(
        document["metadata"]["name"] == "web-cp-0" for document in world.store.list(OXIDE_MACHINES, NAMESPACE)
    ):
        await world.pass_time(0.5)
        assert holder_of(world) != HOLDER or HOLDER in world.running()

    assert holder_of(world) == SUCCESSOR
    core.delete_cluster("web")
    await world.until(lambda: not world.store.list(OXIDE_CLUSTERS, NAMESPACE), 300, "the cluster is gone")
    assert [each.name for each in world.rack.state.floating_ips] == ["by-hand"]
    assert len(world.store.list(SECRETS, NAMESPACE)) == 1
    await world.end()


async def two_control_planes(world: World, **spec: Any) -> None:
    """A cluster with two machines that live; the first has the endpoint."""
    core, image = world.cluster_api, {"imageID": world.rack.image.id}
    core.add_cluster("web", **spec)
    for machine in ("web-cp-0", "web-cp-1"):
        core.add_machine("web", machine, image, is_control_plane=True)
        instance = names.instance_name(NAMESPACE, machine)
        await world.until(lambda wanted=instance: wanted in world.running(), 120, f"{machine} runs")  # type: ignore[misc]
        world.declare_alive(instance)
        core.report_health(machine, is_healthy=True)
        core.initialize_control_plane("web")
    await world.until(lambda: holder_of(world) == HOLDER, 60, "the first machine has the endpoint")
    # Nothing is due any more: what follows is not helped by what was going on.
    await world.pass_time(60)


@simulated
async def test_between_detach_and_attach_only_the_address_is_read() -> None:
    """The endpoint is dark meanwhile, so nobody waits for a list: the dark takes what the rack takes, and a moment."""
    world = World(0)
    world.clear_up()
    await two_control_planes(world, ipType="v4")
    (number,) = [call.number for call in world.rack.app.log.entries(0)][-1:]

    world.cluster_api.delete_machine("web-cp-0")
    await world.until(lambda: holder_of(world) == SUCCESSOR, 60, "the endpoint has moved")

    calls = world.rack.app.log.entries(number)
    (detach,) = (call for call in calls if call.operation == "floating_ip_detach")
    (attach,) = (call for call in calls if call.operation == "floating_ip_attach")
    # What was asked before the detach was answered was asked for others.
    answered = detach.time + datetime.timedelta(seconds=detach.seconds or 0.0)
    between = [call.operation for call in calls if call.number < attach.number and call.time >= answered]
    assert between == ["floating_ip_view"]
    assert (attach.time - answered).total_seconds() < 0.2
    await world.end()


@simulated
async def test_a_detach_whose_answer_was_lost_is_followed_by_the_attach() -> None:
    """It may have happened, so the address itself is looked at, and soon: it is nobody's until then."""
    world = World(0)
    world.clear_up()
    await two_control_planes(world, ipType="v4")
    lost = {"kind": "lost_reply", "operation": "floating_ip_detach", "times": 1}
    world.rack.app.faults.add(FaultRule.model_validate(lost))

    world.cluster_api.delete_machine("web-cp-0")
    await world.until(lambda: holder_of(world) == SUCCESSOR, 60, "the endpoint has moved")

    first, *moving = [call for call in world.rack.app.log.entries(0) if call.operation in MOVING]
    assert first.operation == "floating_ip_attach"
    assert [call.operation for call in moving] == ["floating_ip_detach", "floating_ip_attach"]
    assert (moving[1].time - moving[0].time).total_seconds() < 1.5
    await world.end()


def holder_of(world: World) -> str | None:
    """The name of the instance that has the endpoint."""
    (floating_ip,) = world.rack.state.floating_ips
    instance: Any = world.rack.state.instances.by_id(floating_ip.instance) if floating_ip.instance else None
    return instance.name if instance is not None else None
