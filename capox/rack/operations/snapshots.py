"""Snapshots of disks (semantics 2.3, 4.5, 5)."""

from __future__ import annotations

from capox.rack import errors, records, select, storage, views
from capox.rack.access import Need
from capox.rack.call import Call, operation
from capox.rack.json import JSON


@operation
def snapshot_list(call: Call) -> JSON:
    """`GET /v1/snapshots`."""
    return call.page(call.rack.snapshots, select.project_of_query(call).id, view)


@operation
async def snapshot_create(call: Call) -> JSON:
    """`POST /v1/snapshots`: of a disk that is at rest or attached; one at rest is in `maintenance` meanwhile."""
    project = select.project_of_query(call, "compute")
    rack, body = call.rack, call.body
    disk = select.named_in(call, rack.disks, project, body["disk"])
    if disk.project != project.id:
        raise errors.invalid_request("can't create a snapshot of a disk in a different project")
    if disk.disk_type == "local":
        raise errors.invalid_request("can't create a snapshot of a local storage disk")
    if disk.read_only:
        raise errors.invalid_request("can't create a snapshot of a read-only disk")
    if disk.state not in {"detached", "attached"}:
        raise errors.service_unavailable()
    snapshot = storage.add_snapshot(rack, disk, body["name"], body["description"])
    snapshot.state = "creating"
    if disk.state == "detached":
        disk.state = "maintenance"
    await call.elapse(rack.timing.disk_create)
    if disk.state == "maintenance":
        disk.state = "detached"
    snapshot.state = "ready"
    return view(snapshot)


@operation
def snapshot_view(call: Call) -> JSON:
    """`GET /v1/snapshots/{snapshot}`."""
    return view(_snapshot(call))


@operation
async def snapshot_delete(call: Call) -> JSON:
    """`DELETE /v1/snapshots/{snapshot}`: what was made from it stays."""
    snapshot = _snapshot(call, "compute")
    if snapshot.state == "creating":
        raise errors.invalid_request("snapshot cannot be deleted in state Creating")
    storage.remove_snapshot(call.rack, snapshot)
    await call.elapse(call.rack.timing.disk_delete)


def view(record: records.Snapshot) -> JSON:
    """Schema `Snapshot`."""
    return views.identity(record) | {
        "project_id": record.project,
        "disk_id": record.disk,
        "state": record.state,
        "size": record.size_bytes,
    }


def _snapshot(call: Call, need: Need = "read") -> records.Snapshot:
    return select.in_project(call, call.rack.snapshots, call.path["snapshot"], select.SNAPSHOT, need)
