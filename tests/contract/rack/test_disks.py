"""Disks: sizes, sources, states and what they cost (semantics 2.3, 4.5, 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from capox.rack import records
from tests.contract.rack.staging import add_disk, add_snapshot, begin, disk_body, local_disk_body, put_instance
from tests.rack import GIB, RackUnderTest

MISSING = "00000000-0000-4000-8000-000000000000"


def _distributed(source: dict[str, Any], size: int) -> dict[str, Any]:
    return disk_body("d", source=source) | {"size": size}


async def test_new_disk_is_answered_as_creating_and_then_shown_detached(client: RackUnderTest) -> None:
    """5: the answer to a creation says `creating` although the work is done; the next GET says `detached`."""
    made = await client.must(201, "POST", "/v1/disks", disk_body("data", gib=20), project="demo")

    assert made["state"] == {"state": "creating"}
    shown = await client.must(200, "GET", "/v1/disks/data", project="demo")
    assert shown == made | {"state": {"state": "detached"}}
    assert shown["device_path"] == "/mnt/data"
    assert (shown["size"], shown["block_size"], shown["disk_type"]) == (20 * GIB, 512, "distributed")
    assert (shown["image_id"], shown["snapshot_id"], shown["read_only"]) == (None, None, False)


async def test_disk_for_imports_becomes_import_ready(client: RackUnderTest) -> None:
    """5: a disk whose source is `importing_blocks` ends in `import_ready`."""
    source = {"type": "importing_blocks", "block_size": 4096}
    made = await client.must(201, "POST", "/v1/disks", disk_body("data", source=source), project="demo")

    assert made["state"] == {"state": "creating"}
    assert (await client.must(200, "GET", f"/v1/disks/{made['id']}"))["state"] == {"state": "import_ready"}


async def test_read_only_disk_is_answered_as_detached(client: RackUnderTest) -> None:
    """5: a read-only disk of an image is answered as `detached` at once."""
    source = {"type": "image", "image_id": client.image.id, "read_only": True}
    made = await client.must(201, "POST", "/v1/disks", disk_body("ro", gib=2, source=source), project="demo")

    assert made["state"] == {"state": "detached"}
    assert (made["read_only"], made["image_id"]) == (True, client.image.id)


async def test_disk_is_seen_as_creating_while_it_is_being_made(client: RackUnderTest) -> None:
    """5: during its creation a disk is in the list, in state `creating`, and cannot be deleted."""
    request = await begin(client, "POST", "/v1/disks", disk_body("data"), project="demo")

    (shown,) = (await client.must(200, "GET", "/v1/disks", project="demo"))["items"]
    assert shown["state"] == {"state": "creating"}
    error = await client.refused(400, "DELETE", "/v1/disks/data", project="demo")
    assert error["message"] == 'disk cannot be deleted in state "creating"'
    client.clock.advance(60)
    assert (await request).status_code == 201
    assert (await client.must(200, "GET", "/v1/disks/data", project="demo"))["state"] == {"state": "detached"}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            _distributed({"type": "blank", "block_size": 4096}, 4 * GIB + 512),
            "InvalidValue",
            'unsupported value for "size and block_size": total size must be a multiple of block size 4096',
        ),
        (
            _distributed({"type": "blank", "block_size": 512}, GIB - 512),
            "InvalidValue",
            'unsupported value for "size": total size must be at least 1 GiB',
        ),
        (
            _distributed({"type": "blank", "block_size": 512}, GIB + 512),
            "InvalidValue",
            'unsupported value for "size": total size must be a multiple of 1 GiB',
        ),
        (
            disk_body("d", gib=1024),
            "InvalidValue",
            'unsupported value for "size": total size must be less than 1023 GiB',
        ),
        (
            local_disk_body("d", gib=10 * 1024**2 + 1),
            "InvalidValue",
            'unsupported value for "size": requested size over 10 PiB',
        ),
    ],
)
async def test_sizes_out_of_bounds(client: RackUnderTest, body: dict[str, Any], code: str, message: str) -> None:
    """2.3: multiple of the block size, at least 1 GiB, multiple of 1 GiB, at most 1023 GiB, checked in this order."""
    error = await client.refused(400, "POST", "/v1/disks", body, project="demo")

    assert (error["error_code"], error["message"]) == (code, message)
    assert len(client.state.disks) == 0


async def test_largest_disk_is_1023_gib(client: RackUnderTest) -> None:
    """2.3: 1023 GiB itself is accepted although the refusal says less than that."""
    assert (await add_disk(client, "big", gib=1023)).size_bytes == 1023 * GIB


async def test_block_size_that_no_disk_has(client: RackUnderTest) -> None:
    """2.3: a block size other than 512, 2048 and 4096 is a parse error without a code."""
    body = disk_body("d", source={"type": "blank", "block_size": 1024})

    error = await client.refused(400, "POST", "/v1/disks", body, project="demo")

    assert "error_code" not in error
    assert "invalid block size 1024" in error["message"]


async def test_disk_of_an_image_takes_its_block_size(client: RackUnderTest) -> None:
    """2.3: a disk of an image or a snapshot has the source's block size, a local disk has 4096."""
    client.image.block_size_bytes = 2048
    made = await add_disk(client, "a", source={"type": "image", "image_id": client.image.id.upper()})
    local = await client.must(201, "POST", "/v1/disks", local_disk_body("b"), project="demo")

    assert (made.block_size_bytes, made.image) == (2048, client.image.id)
    assert (local["block_size"], local["disk_type"]) == (4096, "local")


@pytest.mark.parametrize(
    ("gib", "read_only", "message"),
    [
        (1, False, f"disk size {GIB} must be greater than or equal to image size {2 * GIB}"),
        (4, True, f"read-only disk size {4 * GIB} must be equal to source image size {2 * GIB}"),
    ],
)
async def test_disk_that_does_not_fit_its_image(
    client: RackUnderTest, *, gib: int, read_only: bool, message: str
) -> None:
    """2.3: a disk is at least as large as its image, a read-only one exactly as large."""
    source = {"type": "image", "image_id": client.image.id, "read_only": read_only}

    error = await client.refused(400, "POST", "/v1/disks", disk_body("d", gib=gib, source=source), project="demo")

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)


async def test_disk_that_does_not_fit_its_snapshot(client: RackUnderTest) -> None:
    """2.3: what holds for images holds for snapshots, and a snapshot is of use in its own project only."""
    snapshot = await add_snapshot(client, "base", gib=2)
    body = disk_body("d", gib=1, source={"type": "snapshot", "snapshot_id": snapshot.id})
    error = await client.refused(400, "POST", "/v1/disks", body, project="demo")
    assert error["message"] == f"disk size {GIB} must be greater than or equal to snapshot size {2 * GIB}"

    await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})
    error = await client.refused(400, "POST", "/v1/disks", body, project="second")
    assert error["message"] == "snapshot does not belong to this project"


async def test_image_of_another_project(client: RackUnderTest) -> None:
    """2.3: an image of another project is refused, an unknown one is 404."""
    await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})
    snapshot = await add_snapshot(client, "base")
    image = {"name": "own", "description": "", "os": "o", "version": "1", "source": {"type": "snapshot"}}
    image["source"] = {"type": "snapshot", "id": snapshot.id}
    made = await client.must(201, "POST", "/v1/images", image, project="demo")

    body = disk_body("d", source={"type": "image", "image_id": made["id"]})
    error = await client.refused(400, "POST", "/v1/disks", body, project="second")
    assert error["message"] == "image does not belong to this project"

    body = disk_body("d", source={"type": "image", "image_id": MISSING})
    error = await client.refused(404, "POST", "/v1/disks", body, project="demo")
    assert error["message"] == f'not found: image with id "{MISSING}"'


async def test_local_disk_that_fits_nowhere(client: RackUnderTest) -> None:
    """2.3: a local disk cannot be larger than the largest physical disk."""
    client.state.physical_disk_bytes = 100 * GIB

    error = await client.refused(400, "POST", "/v1/disks", local_disk_body("d", gib=101), project="demo")

    assert error["message"] == ('unsupported value for "size": requested size is too large to fit on any physical disk')
    await client.must(201, "POST", "/v1/disks", local_disk_body("d", gib=100), project="demo")


async def test_taken_name_and_its_release(client: RackUnderTest) -> None:
    """2.1: a disk's name is unique in its project, and free again right after the deletion."""
    first = await add_disk(client, "data")
    error = await client.refused(400, "POST", "/v1/disks", disk_body("data"), project="demo")
    assert (error["error_code"], error["message"]) == ("ObjectAlreadyExists", 'already exists: disk "data"')

    await client.must(204, "DELETE", f"/v1/disks/{first.id}")

    await client.refused(404, "GET", f"/v1/disks/{first.id}")
    await client.refused(404, "DELETE", f"/v1/disks/{first.id}")
    assert (await add_disk(client, "data")).id != first.id


@pytest.mark.parametrize("state", ["import_ready", "importing_from_bulk_writes", "finalizing", "maintenance"])
async def test_deletion_in_a_state_that_forbids_it(client: RackUnderTest, state: records.DiskStateName) -> None:
    """5: a disk is deleted only when `detached` or `faulted`."""
    disk = await add_disk(client, "data")
    disk.state = state

    error = await client.refused(400, "DELETE", "/v1/disks/data", project="demo")

    assert (error["error_code"], error["message"]) == (
        "InvalidRequest",
        f'disk cannot be deleted in state "{state}"',
    )
    assert client.state.disks.by_id(disk.id) is disk
    disk.state = "faulted"
    await client.must(204, "DELETE", "/v1/disks/data", project="demo")


async def test_storage_quota_is_counted_at_creation(client: RackUnderTest) -> None:
    """4.5: storage counts when a disk is made, fails the creation itself by 507, and comes back with the deletion."""
    client.silo.quota_storage_bytes = 25 * GIB
    await add_disk(client, "first", gib=20)

    error = await client.refused(507, "POST", "/v1/disks", disk_body("second", gib=10), project="demo")

    assert error["error_code"] == "InsufficientCapacity"
    assert error["message"] == (
        "Insufficient capacity: Storage Limit Exceeded: Not enough storage to complete request. Either remove unneeded "
        "disks and snapshots to free up resources or contact the rack operator to request a capacity increase."
    )
    assert len(client.state.disks) == 1
    assert client.silo.provisioned_storage_bytes == 20 * GIB
    await client.must(204, "DELETE", "/v1/disks/first", project="demo")
    assert client.silo.provisioned_storage_bytes == 0
    await add_disk(client, "second", gib=25)


async def test_refused_disk_costs_nothing(client: RackUnderTest) -> None:
    """4.5: a disk that was refused leaves neither a record nor a count behind, whatever it was refused for."""
    await add_disk(client, "data", gib=10)
    client.state.storage_capacity_bytes = 12 * GIB
    await client.refused(400, "POST", "/v1/disks", disk_body("data", gib=1), project="demo")

    error = await client.refused(507, "POST", "/v1/disks", disk_body("more", gib=3), project="demo")

    assert error["message"] == "Insufficient capacity: Not enough storage"
    assert len(client.state.disks) == 1
    assert client.silo.provisioned_storage_bytes == 10 * GIB
    assert client.state.storage_allocated_bytes == 10 * GIB


async def test_room_is_taken_by_what_can_be_written(client: RackUnderTest) -> None:
    """4.5: local disks and read-only ones count against the quota and take no room of the distributed storage."""
    client.state.storage_capacity_bytes = 10 * GIB
    await add_disk(client, "full", gib=10)
    source = {"type": "image", "image_id": client.image.id, "read_only": True}
    await client.must(201, "POST", "/v1/disks", disk_body("ro", gib=2, source=source), project="demo")
    await client.must(201, "POST", "/v1/disks", local_disk_body("local", gib=5), project="demo")

    assert client.silo.provisioned_storage_bytes == 17 * GIB
    assert client.state.storage_allocated_bytes == 10 * GIB
    await client.must(204, "DELETE", "/v1/disks/full", project="demo")
    await client.must(204, "DELETE", "/v1/disks/ro", project="demo")
    assert client.state.storage_allocated_bytes == 0


async def test_too_long_description(client: RackUnderTest) -> None:
    """2.1: a description of more than 512 characters ends in a 500, and nothing is made."""
    body = disk_body("data") | {"description": "x" * 513}

    await client.refused(500, "POST", "/v1/disks", body, project="demo")

    assert len(client.state.disks) == 0
    assert client.silo.provisioned_storage_bytes == 0


async def test_disk_selectors(client: RackUnderTest) -> None:
    """1.6: an id stands alone, a name needs its project, and a list needs one as well."""
    disk = await add_disk(client, "data")

    error = await client.refused(400, "GET", f"/v1/disks/{disk.id}", project="demo")
    assert error["message"] == "when providing disk as an ID project should not be specified"
    error = await client.refused(400, "GET", "/v1/disks/data")
    assert error["message"] == "disk should either be UUID or project should be specified"
    error = await client.refused(400, "GET", "/v1/disks")
    assert "error_code" not in error
    error = await client.refused(404, "GET", "/v1/disks/other", project="demo")
    assert error["message"] == 'not found: disk with name "other"'


async def test_who_may_see_and_make_disks(client: RackUnderTest) -> None:
    """1.1: a viewer sees disks and makes none, a limited collaborator makes them, a stranger finds none."""
    disk = await add_disk(client, "data")

    await client.must(200, "GET", f"/v1/disks/{disk.id}", user="viewer")
    for method, path, body in (("POST", "/v1/disks", disk_body("x")), ("DELETE", "/v1/disks/data", None)):
        error = await client.refused(403, method, path, body, user="viewer", project="demo")
        assert error["error_code"] == "Forbidden"
    await client.refused(404, "GET", f"/v1/disks/{disk.id}", user="stranger")
    await client.must(201, "POST", "/v1/disks", disk_body("x"), user="limited_collaborator", project="demo")


async def test_disk_creation_outlives_its_client(client: RackUnderTest) -> None:
    """1.3: when the client goes during the request, the disk is finished all the same."""
    request = await begin(client, "POST", "/v1/disks", disk_body("data"), project="demo")
    request.cancel()
    await asyncio.wait({request})

    client.clock.advance(60)
    await client.app.finish()

    assert (await client.must(200, "GET", "/v1/disks/data", project="demo"))["state"] == {"state": "detached"}


async def test_disk_attached_while_it_is_being_made(client: RackUnderTest) -> None:
    """5: a disk can be attached in state `creating`, and the end of its creation leaves it attached."""
    instance = put_instance(client, "i")
    request = await begin(client, "POST", "/v1/disks", disk_body("data"), project="demo")
    path = f"/v1/instances/{instance.id}/disks/attach"
    await client.must(202, "POST", path, {"disk": "data"})

    client.clock.advance(60)

    assert (await request).json()["state"] == {"state": "creating"}
    shown = await client.must(200, "GET", "/v1/disks/data", project="demo")
    assert shown["state"] == {"state": "attached", "instance": instance.id}
