"""Snapshots of disks (semantics 2.3, 4.5, 5)."""

from __future__ import annotations

import pytest

from capox.rack import records
from tests.contract.rack.staging import (
    add_attached_disk,
    add_disk,
    add_snapshot,
    begin,
    disk_body,
    disk_state,
    local_disk_body,
    put_instance,
)
from tests.rack import GIB, RackUnderTest


def _body(name: str, disk: str) -> dict[str, str]:
    return {"name": name, "description": "of a disk", "disk": disk}


async def test_snapshot_of_a_disk_at_rest(client: RackUnderTest) -> None:
    """5: a snapshot has its disk's size and is answered as ready; meanwhile the disk is in maintenance."""
    disk = await add_disk(client, "data", gib=7)
    request = await begin(client, "POST", "/v1/snapshots", _body("s", disk.id), project="demo")

    assert await disk_state(client, "data") == "maintenance"
    assert (await client.must(200, "GET", "/v1/snapshots/s", project="demo"))["state"] == "creating"
    client.clock.advance(60)
    answer = await request

    assert answer.status_code == 201
    made = answer.json()
    assert (made["disk_id"], made["size"], made["state"]) == (disk.id, 7 * GIB, "ready")
    assert (await client.must(200, "GET", "/v1/snapshots", project="demo"))["items"] == [made]
    assert disk.state == "detached"


async def test_snapshot_of_an_attached_disk(client: RackUnderTest) -> None:
    """5: the disk of a running instance can be snapshotted and stays attached."""
    disk = await add_attached_disk(client, "data", put_instance(client, "i", "running"))

    await client.must(201, "POST", "/v1/snapshots", _body("s", "data"), project="demo")

    assert disk.state == "attached"


async def test_snapshots_count_against_the_quota(client: RackUnderTest) -> None:
    """4.5: a snapshot counts with its full size, is refused by 507 beyond the quota, and gives it back when deleted."""
    client.silo.quota_storage_bytes = 25 * GIB
    disk = await add_disk(client, "data", gib=10)
    first = await client.must(201, "POST", "/v1/snapshots", _body("first", "data"), project="demo")
    assert client.silo.provisioned_storage_bytes == 20 * GIB

    error = await client.refused(507, "POST", "/v1/snapshots", _body("second", "data"), project="demo")

    assert error["error_code"] == "InsufficientCapacity"
    assert disk.state == "detached"
    assert len(client.state.snapshots) == 1
    await client.must(204, "DELETE", f"/v1/snapshots/{first['id']}")
    assert client.silo.provisioned_storage_bytes == 10 * GIB
    assert client.state.storage_allocated_bytes == 10 * GIB


async def test_no_room_for_a_snapshot(client: RackUnderTest) -> None:
    """4.5: a snapshot takes room of the distributed storage, and without room it is 507."""
    await add_disk(client, "data", gib=10)
    client.state.storage_capacity_bytes = 15 * GIB

    error = await client.refused(507, "POST", "/v1/snapshots", _body("s", "data"), project="demo")

    assert error["message"] == "Insufficient capacity: Not enough storage"


async def test_snapshot_outlives_its_disk(client: RackUnderTest) -> None:
    """5: a disk with a snapshot can be deleted, and a disk can be made from what it left."""
    snapshot = await add_snapshot(client, "base", gib=4)
    await client.must(204, "DELETE", "/v1/disks/base", project="demo")

    source = {"type": "snapshot", "snapshot_id": snapshot.id}
    made = await add_disk(client, "copy", gib=8, source=source)

    assert (made.snapshot, made.size_bytes) == (snapshot.id, 8 * GIB)


@pytest.mark.parametrize("state", ["creating", "import_ready", "importing_from_bulk_writes", "faulted"])
async def test_disk_in_transition(client: RackUnderTest, state: records.DiskStateName) -> None:
    """5: a disk that is neither at rest nor attached is answered by the opaque 503."""
    disk = await add_disk(client, "data")
    disk.state = state

    error = await client.refused(503, "POST", "/v1/snapshots", _body("s", "data"), project="demo")

    assert error["error_code"] == "ServiceNotAvailable"
    assert len(client.state.snapshots) == 0


async def test_disks_without_snapshots(client: RackUnderTest) -> None:
    """5: local disks and read-only disks cannot be snapshotted."""
    await client.must(201, "POST", "/v1/disks", local_disk_body("local"), project="demo")
    source = {"type": "image", "image_id": client.image.id, "read_only": True}
    await client.must(201, "POST", "/v1/disks", disk_body("ro", gib=2, source=source), project="demo")

    error = await client.refused(400, "POST", "/v1/snapshots", _body("s", "local"), project="demo")
    assert error["message"] == "can't create a snapshot of a local storage disk"
    error = await client.refused(400, "POST", "/v1/snapshots", _body("s", "ro"), project="demo")
    assert error["message"] == "can't create a snapshot of a read-only disk"


async def test_disk_of_another_project(client: RackUnderTest) -> None:
    """1.6: a snapshot is made in the project of its disk."""
    disk = await add_disk(client, "data")
    await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})

    error = await client.refused(400, "POST", "/v1/snapshots", _body("s", disk.id), project="second")

    assert error["message"] == "can't create a snapshot of a disk in a different project"


async def test_taken_name_and_selectors(client: RackUnderTest) -> None:
    """1.6: snapshots have names of their own, and are found by id or by name in a project."""
    snapshot = await add_snapshot(client, "base")

    error = await client.refused(400, "POST", "/v1/snapshots", _body("base", "base"), project="demo")
    assert error["message"] == 'already exists: snapshot "base"'
    error = await client.refused(400, "GET", f"/v1/snapshots/{snapshot.id}", project="demo")
    assert error["message"] == "when providing snapshot as an ID, project should not be specified"
    error = await client.refused(400, "GET", "/v1/snapshots/base")
    assert error["message"] == "snapshot should either be an ID or project should be specified"
    await client.refused(403, "DELETE", f"/v1/snapshots/{snapshot.id}", user="viewer")
    await client.refused(404, "GET", f"/v1/snapshots/{snapshot.id}", user="stranger")
