"""Endpoints that the user brings, in the simulated world."""

from __future__ import annotations

from typing import Any

from capox.kube.kind import SECRETS
from capox.provider import names
from capox.provider.kinds import OXIDE_CLUSTERS, OXIDE_MACHINES
from tests.sim.cluster_api import NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import World

HOLDER, SUCCESSOR = (names.instance_name(NAMESPACE, machine) for machine in ("web-cp-0", "web-cp-1"))


@simulated
async def test_a_brought_floating_ip_leaves_before_its_instance_stops() -> None:
    """A floating IP without our mark moves like any other when its machine is deleted, and is not deleted (M-32)."""
    world = World(0)
    world.clear_up()
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = {"name": "by-hand", "description": "made by hand", "address_allocator": allocator}
    await world.rack.must(201, "POST", "/v1/floating-ips", body, project="demo")
    core, image = world.cluster_api, {"imageID": world.rack.image.id}
    core.add_cluster("web", controlPlaneFloatingIP="by-hand")
    for machine in ("web-cp-0", "web-cp-1"):
        core.add_machine("web", machine, image, is_control_plane=True)
        instance = names.instance_name(NAMESPACE, machine)
        await world.until(lambda wanted=instance: wanted in world.running(), 120, f"{machine} runs")  # type: ignore[misc]
        world.declare_alive(instance)
        core.report_health(machine, is_healthy=True)
        core.initialize_control_plane("web")
    await world.until(lambda: holder_of(world) == HOLDER, 60, "the first machine has the endpoint")

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


def holder_of(world: World) -> str | None:
    """The name of the instance that has the endpoint."""
    (floating_ip,) = world.rack.state.floating_ips
    instance: Any = world.rack.state.instances.by_id(floating_ip.instance) if floating_ip.instance else None
    return instance.name if instance is not None else None
