"""Filling a disk with blocks from outside (semantics 5).

A disk whose source is `importing_blocks` goes from `import_ready` to `importing_from_bulk_writes` and back as often as
its owner likes, and by finalizing it to `detached`. The blocks themselves are counted and not kept.
"""

from __future__ import annotations

import base64
import binascii

from capox.rack import errors, records, storage
from capox.rack.call import Call, operation
from capox.rack.json import JSON
from capox.rack.operations import disks


@operation
def disk_bulk_write_import_start(call: Call) -> JSON:
    """`POST /v1/disks/{disk}/bulk-write-start`."""
    _turn(call, "import_ready", "importing_from_bulk_writes")


@operation
def disk_bulk_write_import(call: Call) -> JSON:
    """`POST /v1/disks/{disk}/bulk-write`: whole blocks within the disk."""
    disk = disks.find(call, "compute")
    if disk.state != "importing_from_bulk_writes":
        text = f"cannot import blocks with a bulk write for disk in state {_debug_state(disk)}"
        raise errors.invalid_request(text)
    try:
        data = base64.b64decode(call.body["base64_encoded_data"], validate=True)
    except (binascii.Error, ValueError):
        text = "error base64 decoding data: it is not standard base64 with padding"
        raise errors.invalid_request(text) from None
    offset: int = call.body["offset"]
    if offset % disk.block_size_bytes:
        raise errors.invalid_request("offset not multiple of block size!")
    if len(data) % disk.block_size_bytes:
        raise errors.invalid_request("data length not multiple of block size!")
    if offset + len(data) > disk.size_bytes:
        raise errors.invalid_request("offset + data length off end of region!")
    disk.imported_bytes += len(data)


@operation
def disk_bulk_write_import_stop(call: Call) -> JSON:
    """`POST /v1/disks/{disk}/bulk-write-stop`."""
    _turn(call, "importing_from_bulk_writes", "import_ready")


@operation
async def disk_finalize_import(call: Call) -> JSON:
    """`POST /v1/disks/{disk}/finalize`: make it an ordinary disk, on request with a snapshot of it.

    When the snapshot fails, the disk is as it was before.
    """
    disk = disks.find(call, "compute")
    if disk.state != "import_ready":
        raise errors.invalid_request(f"cannot finalize disk in state DiskState({_debug_state(disk)})")
    name = call.body["snapshot_name"]
    snapshot = None
    if name is not None:
        snapshot = storage.add_snapshot(call.rack, disk, name, f"snapshot of finalized disk {disk.id}")
        snapshot.state = "creating"
    disk.state = "finalizing"
    await call.elapse(call.rack.timing.disk_create)
    if snapshot is not None:
        snapshot.state = "ready"
    disk.state = "detached"


def _turn(call: Call, before: records.DiskStateName, after: records.DiskStateName) -> None:
    disk = disks.find(call, "compute")
    if disk.state != before:
        raise errors.invalid_request(f"cannot set disk in state {_debug_state(disk)} to {after}")
    disk.state = after


def _debug_state(disk: records.Disk) -> str:
    """A disk's state as a rack's program notes it, which is how it gets into these messages."""
    words = "".join(word.capitalize() for word in disk.state.split("_"))
    return f"{words}({disk.instance})" if disk.instance is not None else words
