"""More machines than an anti-affinity group takes, in the simulated world."""

from __future__ import annotations

from typing import Any

import pytest

from capox.provider import names
from capox.provider.kinds import OXIDE_CLUSTERS
from tests.sim.cluster_api import NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import World

WORKERS = 40


def sizes(world: World) -> list[int]:
    """How many members each group has, the largest first."""
    return sorted((len(group.members) for group in world.rack.state.anti_affinity_groups), reverse=True)


@pytest.mark.timeout(240)
@simulated
async def test_workers_that_come_at_once_fill_one_group_after_the_other() -> None:
    """40 machines are in two groups, full and rest; who is replaced finds room; a group that empties is removed."""
    world = World(0)
    world.clear_up()
    core, image = world.cluster_api, {"imageID": world.rack.image.id, "nCPUs": 1, "memory": "1Gi"}
    core.add_cluster("web", ipType="v4", antiAffinity={"workers": {"policy": "allow"}})
    for number in range(WORKERS):
        core.add_machine("web", f"web-w-{number}", image)
    await world.until(lambda: len(world.running()) == WORKERS, 300, "all machines run")
    assert sizes(world) == [32, WORKERS - 32]

    later: dict[str, Any] = {instance.name: instance.id for instance in world.rack.state.instances}
    smaller = min(world.rack.state.anti_affinity_groups, key=lambda group: len(group.members))
    for number in range(WORKERS):
        if later[names.instance_name(NAMESPACE, f"web-w-{number}")] in smaller.members:
            core.delete_machine(f"web-w-{number}")
    await world.until(lambda: sizes(world) == [32], 300, "the empty group is gone")

    core.add_machine("web", "web-w-next", image)
    await world.until(lambda: sizes(world) == [32, 1], 120, "the next machine has a group")
    core.delete_cluster("web")
    await world.until(lambda: not world.store.list(OXIDE_CLUSTERS, NAMESPACE), 600, "the cluster is gone")
    assert sizes(world) == []
    await world.end()
