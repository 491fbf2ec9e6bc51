"""What a fleet asks of the rack, counted: limits that `make bench` holds a thousand machines to, on virtual time."""

from __future__ import annotations

from collections import Counter

from capox.provider.kinds import OXIDE_MACHINES
from tests.bench.fleet.results import RackCalls
from tests.sim.loop import simulate
from tests.sim.world import World

CLUSTER = "web"
MACHINES = [f"web-{number:02}" for number in range(40)]
REST_SECONDS = 300


def calls_of(world: World) -> RackCalls:
    """The rack's calls since this was last asked."""
    counts = Counter(entry.operation for entry in world.rack.app.log.entries() if entry.operation)
    world.rack.app.log.clear()
    return RackCalls(counts)


def are_provisioned(world: World) -> bool:
    """Whether every machine is."""
    found = [document.get("status") or {} for document in world.store.list(OXIDE_MACHINES, None)]
    return sum(bool(status.get("initialization", {}).get("provisioned")) for status in found) == len(MACHINES)


async def life_of_a_fleet() -> None:
    """Forty machines are made, left alone, and deleted, and every call of the rack is counted."""
    world = World(1)
    core = world.cluster_api
    core.add_cluster(CLUSTER, ipType="v4")
    for name in MACHINES:
        core.add_machine(CLUSTER, name, {"imageID": world.rack.image.id})
    calls_of(world)
    await world.until(lambda: are_provisioned(world), 600, "all machines are provisioned")
    assert len(world.running()) == len(MACHINES)
    created = calls_of(world)
    await world.pass_time(60)
    calls_of(world)
    versions = [document["metadata"]["resourceVersion"] for document in world.store.list(OXIDE_MACHINES, None)]
    interests = [
        each for project in world.process.racks._projects.values() for each in project.watch._interests.values()
    ]
    assert len(interests) > len(MACHINES)
    # What reads for a machine keeps the machine in memory; at rest nobody has anything to be read.
    assert {interest.prepare for interest in interests} == {None}
    await world.pass_time(REST_SECONDS)
    rest = calls_of(world)
    assert versions == [document["metadata"]["resourceVersion"] for document in world.store.list(OXIDE_MACHINES, None)]
    for name in MACHINES:
        core.delete_machine(name)
    await world.until(lambda: not world.store.list(OXIDE_MACHINES, None), 1200, "all machines are gone")
    deleted = calls_of(world)
    assert world.running() == []
    await world.end()

    assert created.machine_writes == len(MACHINES)
    assert created.by_operation["instance_create"] == len(MACHINES)
    # The subnet by its name, once, and the VPC's rules for the cluster; whatever else would be read for each machine.
    assert {operation: n for operation, n in created.by_operation.items() if operation.endswith("_view")} == {
        "vpc_firewall_rules_view": 1,
        "vpc_subnet_view": 1,
    }
    assert rest.writes == rest.views == 0
    # Each list has a page with items and the empty one behind it.
    assert rest.lists <= 2 * 4 * REST_SECONDS / 60
    assert deleted.machine_writes == 3 * len(MACHINES)
    assert deleted.views <= 4 * len(MACHINES)


def test_a_fleet_asks_the_rack_for_no_more_than_it_may() -> None:
    """One write a machine to create, three and four reads by id to delete; at rest two lists each half minute."""
    simulate(life_of_a_fleet, seed=1)
