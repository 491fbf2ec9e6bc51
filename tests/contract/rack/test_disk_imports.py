"""Filling a disk with blocks from outside (semantics 5)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from capox.rack import records
from tests.contract.rack.staging import add_attached_disk, add_disk, begin, disk_state, put_instance
from tests.rack import GIB, RackUnderTest

IMPORTING = {"type": "importing_blocks", "block_size": 512}


async def _act(rack: RackUnderTest, status: int, act: str, body: Any = None) -> Any:
    return await rack.must(status, "POST", f"/v1/disks/data/{act}", body, project="demo")


def _blocks(data: bytes, offset: int = 0) -> dict[str, Any]:
    return {"offset": offset, "base64_encoded_data": base64.b64encode(data).decode()}


async def test_life_of_an_import(client: RackUnderTest) -> None:
    """5: import_ready, importing_from_bulk_writes and back, then finalized to detached with a snapshot on request."""
    disk = await add_disk(client, "data", gib=2, source=IMPORTING)

    await _act(client, 204, "bulk-write-start")
    assert await disk_state(client, "data") == "importing_from_bulk_writes"
    await _act(client, 204, "bulk-write", _blocks(b"x" * 1024))
    await _act(client, 204, "bulk-write", _blocks(b"y" * 512, offset=2 * GIB - 512))
    await _act(client, 204, "bulk-write-stop")
    assert await disk_state(client, "data") == "import_ready"
    await _act(client, 204, "finalize", {"snapshot_name": "imported"})

    assert (disk.state, disk.imported_bytes) == ("detached", 1536)
    snapshot = await client.must(200, "GET", "/v1/snapshots/imported", project="demo")
    assert (snapshot["disk_id"], snapshot["size"], snapshot["state"]) == (disk.id, 2 * GIB, "ready")
    assert snapshot["description"] == f"snapshot of finalized disk {disk.id}"


async def test_finalize_without_a_snapshot(client: RackUnderTest) -> None:
    """5: `snapshot_name` may be absent, and no snapshot is made then."""
    disk = await add_disk(client, "data", source=IMPORTING)

    await _act(client, 204, "finalize", {})

    assert disk.state == "detached"
    assert len(client.state.snapshots) == 0


async def test_disk_is_finalizing_meanwhile(client: RackUnderTest) -> None:
    """5: while the request runs the disk is `finalizing` and its snapshot `creating`, and neither can be deleted."""
    disk = await add_disk(client, "data", source=IMPORTING)
    request = await begin(client, "POST", "/v1/disks/data/finalize", {"snapshot_name": "s"}, project="demo")

    assert disk.state == "finalizing"
    error = await client.refused(400, "DELETE", "/v1/snapshots/s", project="demo")
    assert error["message"] == "snapshot cannot be deleted in state Creating"
    await client.refused(400, "DELETE", "/v1/disks/data", project="demo")
    client.clock.advance(60)
    assert (await request).status_code == 204
    assert (await client.must(200, "GET", "/v1/snapshots/s", project="demo"))["state"] == "ready"


async def test_finalize_whose_snapshot_fails(client: RackUnderTest) -> None:
    """5: when the snapshot cannot be made, the error is the snapshot's and the disk is import_ready as before."""
    disk = await add_disk(client, "data", gib=10, source=IMPORTING)
    client.silo.quota_storage_bytes = 15 * GIB

    error = await _act(client, 507, "finalize", {"snapshot_name": "s"})

    assert "Storage Limit Exceeded" in error["message"]
    assert disk.state == "import_ready"
    assert client.silo.provisioned_storage_bytes == 10 * GIB


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_blocks(b"x" * 512, offset=100), "offset not multiple of block size!"),
        (_blocks(b"x" * 100), "data length not multiple of block size!"),
        (_blocks(b"x" * 1024, offset=10 * GIB - 512), "offset + data length off end of region!"),
        ({"offset": 0, "base64_encoded_data": "?"}, "error base64 decoding data: "),
    ],
)
async def test_blocks_that_do_not_fit(client: RackUnderTest, body: dict[str, Any], message: str) -> None:
    """5: blocks are whole, aligned, within the disk, and in base64."""
    disk = await add_disk(client, "data", source=IMPORTING)
    await _act(client, 204, "bulk-write-start")

    error = await _act(client, 400, "bulk-write", body)

    assert error["error_code"] == "InvalidRequest"
    assert error["message"].startswith(message)
    assert disk.imported_bytes == 0


async def test_large_piece(client: RackUnderTest) -> None:
    """1.3: this operation takes bodies of more than 1 MiB, up to 8 MiB."""
    await add_disk(client, "data", source=IMPORTING)
    await _act(client, 204, "bulk-write-start")

    await _act(client, 204, "bulk-write", _blocks(b"x" * 4 * 1024**2))
    error = await _act(client, 400, "bulk-write", _blocks(b"x" * 8 * 1024**2))

    assert error["message"] == f"request body exceeded maximum size of {8 * 1024**2} bytes"


@pytest.mark.parametrize(
    ("act", "state", "message"),
    [
        ("bulk-write-start", "detached", "cannot set disk in state Detached to importing_from_bulk_writes"),
        (
            "bulk-write-start",
            "importing_from_bulk_writes",
            "cannot set disk in state ImportingFromBulkWrites to importing_from_bulk_writes",
        ),
        ("bulk-write-stop", "import_ready", "cannot set disk in state ImportReady to import_ready"),
        ("bulk-write", "import_ready", "cannot import blocks with a bulk write for disk in state ImportReady"),
        (
            "finalize",
            "importing_from_bulk_writes",
            "cannot finalize disk in state DiskState(ImportingFromBulkWrites)",
        ),
        ("finalize", "detached", "cannot finalize disk in state DiskState(Detached)"),
    ],
)
async def test_acts_out_of_order(client: RackUnderTest, act: str, state: records.DiskStateName, message: str) -> None:
    """5: each act of an import belongs to one state, and is refused in every other."""
    disk = await add_disk(client, "data", source=IMPORTING)
    disk.state = state
    body = {"bulk-write": _blocks(b""), "finalize": {}}.get(act)

    error = await _act(client, 400, act, body)

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)
    assert disk.state == state


async def test_import_into_an_attached_disk(client: RackUnderTest) -> None:
    """5: a disk of an instance takes no blocks from outside."""
    instance = put_instance(client, "i")
    await add_attached_disk(client, "data", instance)

    error = await _act(client, 400, "bulk-write-start")

    expected = f"cannot set disk in state Attached({instance.id}) to importing_from_bulk_writes"
    assert error["message"] == expected
