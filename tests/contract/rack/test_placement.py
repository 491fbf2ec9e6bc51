"""Which sled carries which instance, quotas, and anti-affinity (semantics 4.5, 8)."""

from __future__ import annotations

import pytest

from capox.rack import instance_states
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

_REMEDY = (
    "Either stop unused instances to free up resources or contact the rack operator to request a capacity increase."
)


async def _add_group(rack: RackUnderTest, name: str, policy: str) -> None:
    body = {"name": name, "description": "", "policy": policy, "failure_domain": "sled"}
    await rack.must(201, "POST", "/v1/anti-affinity-groups?project=demo", body)


async def test_capacity_is_a_sleds_own(client: RackUnderTest) -> None:
    """4.5: an instance larger than what any one sled has left finds no place, whatever the sleds have together."""
    for number in range(4):
        await life.create_running(client, f"node{number}", memory=200 * GIB)
    await life.create(client, name="late", memory=100 * GIB)

    error = await client.refused(507, "POST", life.path("late", "start"))

    assert (error["error_code"], error["message"]) == ("InsufficientCapacity", life.NO_SLED)
    assert await life.run_state(client, "late") == "stopped"


async def test_room_comes_back_with_the_full_stop(client: RackUnderTest) -> None:
    """4.5: a reservation lasts until the instance has fully stopped, and deleting an instance leaves none."""
    for number in range(4):
        await life.create_running(client, f"node{number}", memory=200 * GIB)
    await life.create(client, name="late", memory=100 * GIB)
    await client.must(202, "POST", life.path("node2", "stop"))
    await client.refused(507, "POST", life.path("late", "start"))

    client.pass_time(1)
    await life.start(client, "late")

    for name in ("node0", "node1", "node3", "late"):
        await client.must(202, "POST", life.path(name, "stop"))
    client.pass_time(1)
    for name in ("node0", "node1", "node2", "node3", "late"):
        await client.must(204, "DELETE", life.path(name))
    for sled in client.state.sleds.values():
        assert (sled.instances, sled.reserved_cpus, sled.reserved_memory_bytes) == (set(), 0, 0)


@pytest.mark.parametrize(
    ("wanted", "sleds", "fits"),
    [
        (None, ("amd_milan",), True),
        (None, ("amd_turin",), True),
        ("amd_milan", ("amd_milan",), True),
        ("amd_milan", ("amd_turin",), True),
        ("amd_turin", ("amd_milan",), False),
        ("amd_turin", ("amd_milan", "amd_turin"), True),
        ("amd_turin_v2", ("amd_milan",), False),
        ("amd_turin_v2", ("amd_turin",), True),
    ],
)
async def test_cpu_platform(client: RackUnderTest, wanted: str | None, sleds: tuple[str, ...], *, fits: bool) -> None:
    """2.2, 4.5: a younger sled carries instances of the older platform, and not the other way round."""
    client.state.sleds.clear()
    for number, platform in enumerate(sleds):
        client.add_sled(f"only{number}", cpus=64, memory_gib=256, platform=platform)
    await life.create(client, cpu_platform=wanted)

    await client.must(202 if fits else 507, "POST", life.path(act="start"))


async def test_quota_of_cpus(client: RackUnderTest) -> None:
    """4.5: vCPUs count from start to full stop; beyond the quota a start is refused and leaves the instance stopped."""
    client.silo.quota_cpus = 4
    await life.create_running(client, "first")
    await life.create(client, name="second")
    await life.create(client, name="third", ncpus=3)
    error = await client.refused(507, "POST", life.path("third", "start"))
    assert error["error_code"] == "InsufficientCapacity"
    assert error["message"] == (
        f"Insufficient capacity: vCPU Limit Exceeded: Not enough vCPUs to complete request. {_REMEDY}"
    )
    assert await life.run_state(client, "third") == "stopped"

    await life.start(client, "second")

    await client.must(202, "POST", life.path("first", "stop"))
    client.pass_time(1)
    await client.must(202, "POST", life.path("second", "stop"))
    client.pass_time(1)
    await life.start(client, "third")


async def test_quota_of_memory(client: RackUnderTest) -> None:
    """4.5: beyond the memory quota a start is refused, and one that comes with the creation is swallowed."""
    client.silo.quota_memory_bytes = 4 * GIB
    await life.create_running(client, "first")

    assert (await life.create(client, name="second", memory=GIB, start=True))["run_state"] == "stopped"

    error = await client.refused(507, "POST", life.path("second", "start"))
    assert error["message"] == (
        f"Insufficient capacity: Memory Limit Exceeded: Not enough memory to complete request. {_REMEDY}"
    )


async def test_quota_is_the_silos(client: RackUnderTest) -> None:
    """4.5: what one silo uses is nothing to another."""
    client.silo.quota_cpus = 2
    await life.create_running(client)
    await client.must(201, "POST", "/v1/projects", {"name": "demo", "description": ""}, user="stranger")

    view = await client.must(201, "POST", life.INSTANCES, life.MINIMAL | {"start": True}, user="stranger")

    assert view["run_state"] == "starting"


async def test_no_sled_is_told_before_no_quota(client: RackUnderTest) -> None:
    """4.5: where neither a sled nor the quota has room, the sled is what is told."""
    client.silo.quota_cpus = 1
    await life.create(client, memory=300 * GIB)

    error = await client.refused(507, "POST", life.path(act="start"))

    assert error["message"] == life.NO_SLED


async def test_anti_affinity_fail(client: RackUnderTest) -> None:
    """4.5, 8: members of a group with policy `fail` never share a sled; the fifth finds no place on four sleds."""
    await _add_group(client, "control-plane", "fail")
    for number in range(4):
        await life.create_running(client, f"node{number}", anti_affinity_groups=["control-plane"])
    assert len({life.sled_of(client, f"node{number}").id for number in range(4)}) == 4

    assert (await life.create(client, name="fifth", anti_affinity_groups=["control-plane"], start=True))[
        "run_state"
    ] == "stopped"

    error = await client.refused(507, "POST", life.path("fifth", "start"))
    assert error["message"] == life.NO_SLED
    await life.create_running(client, "outsider")


async def test_anti_affinity_allow(client: RackUnderTest) -> None:
    """4.5: members of a group with policy `allow` are kept apart while the other sleds have room."""
    await _add_group(client, "workers", "allow")
    await life.create_running(client, "node0", anti_affinity_groups=["workers"])
    for number in range(3):
        await life.create_running(client, f"filler{number}", memory=200 * GIB)

    for number in range(1, 5):
        await life.create_running(client, f"node{number}", anti_affinity_groups=["workers"])

    assert len({life.sled_of(client, f"node{number}").id for number in range(4)}) == 4


async def test_anti_affinity_allow_gives_way_to_room(client: RackUnderTest) -> None:
    """4.5: policy `allow` never keeps an instance from starting."""
    for sled in list(client.state.sleds.values())[1:]:
        instance_states.expunge_sled(client.state, sled)
    await _add_group(client, "workers", "allow")
    await life.create_running(client, "node0", anti_affinity_groups=["workers"])

    await life.create_running(client, "node1", anti_affinity_groups=["workers"])

    assert life.sled_of(client, "node0") is life.sled_of(client, "node1")


async def test_one_sled_and_policy_fail(client: RackUnderTest) -> None:
    """8: with one sled and policy `fail`, the second member cannot start until the first has stopped."""
    for sled in list(client.state.sleds.values())[1:]:
        instance_states.expunge_sled(client.state, sled)
    await _add_group(client, "control-plane", "fail")
    await life.create_running(client, "node0", anti_affinity_groups=["control-plane"])
    await life.create(client, name="node1", anti_affinity_groups=["control-plane"])
    await client.refused(507, "POST", life.path("node1", "start"))

    await client.must(202, "POST", life.path("node0", "stop"))
    client.pass_time(1)

    await life.start(client, "node1")


async def test_lost_sled_takes_no_new_instance(client: RackUnderTest) -> None:
    """4.5: an instance is not placed on a sled that does not answer or is out of service."""
    lost, expunged, *rest = client.state.sleds.values()
    instance_states.lose_sled(client.state, lost)
    instance_states.expunge_sled(client.state, expunged)

    for number in range(8):
        await life.create_running(client, f"node{number}")

    assert (lost.instances, expunged.instances) == (set(), set())
    assert sum(len(sled.instances) for sled in rest) == 8


async def test_local_disk_keeps_its_instance_on_the_sled(client: RackUnderTest) -> None:
    """5: a local disk lies on the sled of its instance's first start, and the instance starts nowhere else then."""
    disk = life.blank_disk("scratch") | {"disk_backend": {"type": "local"}}
    await life.create_running(client, disks=[disk], auto_restart_policy="never")
    home = life.sled_of(client)
    await client.must(202, "POST", life.path(act="stop"))
    client.pass_time(1)
    for number in range(4):
        await life.create_running(client, f"filler{number}", memory=100 * GIB)

    await life.start(client)
    assert life.sled_of(client) is home

    instance_states.expunge_sled(client.state, home)
    client.pass_time(1)
    error = await client.refused(507, "POST", life.path(act="start"))
    assert error["message"] == life.NO_SLED


async def test_resize_counts_at_the_next_start(client: RackUnderTest) -> None:
    """3.2, 4.5: a stopped instance may be made larger than anything; it is the start that fails."""
    await life.create(client)

    await client.must(200, "PUT", life.path(), life.UNCHANGED | {"ncpus": 200})

    error = await client.refused(507, "POST", life.path(act="start"))
    assert error["message"] == life.NO_SLED
