"""What a silo may use and what it uses (semantics 8)."""

from __future__ import annotations

from typing import Any

from capox.rack import instance_states
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest


async def _provisioned(rack: RackUnderTest, **options: Any) -> dict[str, int]:
    counts: dict[str, int] = (await rack.must(200, "GET", "/v1/utilization", **options))["provisioned"]
    return counts


async def test_capacity_is_the_quota(client: RackUnderTest) -> None:
    """8: the capacity is what the operator has granted to the silo."""
    shown = await client.must(200, "GET", "/v1/utilization", user="viewer")

    assert shown == {
        "capacity": {"cpus": 1000, "memory": 4000 * GIB, "storage": 100_000 * GIB},
        "provisioned": {"cpus": 0, "memory": 0, "storage": 0},
    }


async def test_compute_counts_from_start_to_full_stop(client: RackUnderTest) -> None:
    """4.5, 8: cpus and memory are those of instances with a VMM, so a stopped instance costs nothing."""
    nothing = {"cpus": 0, "memory": 0, "storage": 0}
    used = {"cpus": 2, "memory": 4 * GIB, "storage": 0}
    await life.create(client)
    assert await _provisioned(client) == nothing
    await client.must(202, "POST", life.path(act="start"))
    assert await _provisioned(client) == used
    client.pass_time(1)
    await client.must(202, "POST", life.path(act="stop"))
    assert await _provisioned(client) == used

    client.pass_time(1)

    assert await _provisioned(client) == nothing


async def test_failed_instance_counts_nothing(client: RackUnderTest) -> None:
    """8: a failed instance has no VMM."""
    await life.create_running(client)

    instance_states.fail(client.state, life.record(client))

    assert await _provisioned(client) == {"cpus": 0, "memory": 0, "storage": 0}


async def test_storage_counts_from_creation_to_deletion(client: RackUnderTest) -> None:
    """4.5, 8: disks count whether they are attached or not, and outlive their instance."""
    await life.create(client, disks=[life.blank_disk("data", size_gib=10)])
    await client.must(204, "DELETE", life.path())
    assert (await _provisioned(client))["storage"] == 10 * GIB

    await client.must(204, "DELETE", "/v1/disks/data?project=demo")

    assert (await _provisioned(client))["storage"] == 0


async def test_silos_are_apart(client: RackUnderTest) -> None:
    """8: everybody sees the own silo only."""
    await life.create_running(client)

    assert await _provisioned(client, user="stranger") == {"cpus": 0, "memory": 0, "storage": 0}
