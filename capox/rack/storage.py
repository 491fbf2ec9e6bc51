"""Disks and snapshots: what may be made, what it costs, and to which instance a disk belongs (semantics 2.3, 4.5, 5).

Every disk and every snapshot counts with its full size against the storage quota of its silo, from its creation to its
deletion. Distributed disks that can be written, and snapshots, also take room on the rack's physical disks.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from capox.rack import errors, images, names, records, select, views
from capox.rack.call import Call, check_description
from capox.rack.json import JSON
from capox.rack.state import Rack
from capox.rack.table import Table

P = TypeVar("P", bound=records.InProject)

GIB = 1024**3
PIB = 1024**5

MINIMUM_BYTES = GIB
MAXIMUM_DISTRIBUTED_BYTES = 1023 * GIB
MAXIMUM_LOCAL_BYTES = 10 * PIB
LOCAL_BLOCK_BYTES = 4096
MAXIMUM_DISKS = 12

# Without a VMM an instance's hardware can be changed.
_STATES_WITH_VMM = frozenset({"starting", "running", "stopping", "rebooting"})

_QUOTA_EXCEEDED = (
    "Storage Limit Exceeded: Not enough storage to complete request. Either remove unneeded disks and snapshots to "
    "free up resources or contact the rack operator to request a capacity increase."
)


def check_create(call: Call, project: records.Project, params: JSON) -> None:
    """Refuse a disk that cannot be, before anything is written.

    Args:
        call: the request.
        project: where the disk is to be.
        params: schema `DiskCreate`.

    Raises:
        Refusal: 404 for an image or snapshot that the caller cannot see, 400 for one that does not fit or a size out
            of bounds.
    """
    backend, size_bytes = params["disk_backend"], params["size"]
    is_local = backend["type"] == "local"
    block_bytes = LOCAL_BLOCK_BYTES if is_local else _source_block(call, project, backend["disk_source"], size_bytes)
    if size_bytes % block_bytes:
        text = f"total size must be a multiple of block size {block_bytes}"
        raise errors.invalid_value("size and block_size", text)
    if size_bytes < MINIMUM_BYTES:
        raise errors.invalid_value("size", "total size must be at least 1 GiB")
    if size_bytes % MINIMUM_BYTES:
        raise errors.invalid_value("size", "total size must be a multiple of 1 GiB")
    if is_local:
        _check_local_size(call.rack, size_bytes)
    elif size_bytes > MAXIMUM_DISTRIBUTED_BYTES:
        raise errors.invalid_value("size", "total size must be less than 1023 GiB")


def add_disk(call: Call, project: records.Project, params: JSON) -> records.Disk:
    """Make a disk whose parameters have been checked, in the state in which it is ready for use.

    Args:
        call: the request.
        project: where the disk is to be.
        params: schema `DiskCreate`.

    Raises:
        Refusal: 507 for the quota, 400 for a taken name, 507 for the rack's room, in this order.
    """
    rack = call.rack
    silo = _silo_of(rack, project)
    disk = _new_disk(call, project, params)
    _check_quota(silo, disk.size_bytes)
    check_description(disk.description)
    _check_name(rack.disks, disk)
    _check_room(rack, _room_bytes(disk))
    rack.disks.insert(disk)
    rack.storage_allocated_bytes += _room_bytes(disk)
    silo.provisioned_storage_bytes += disk.size_bytes
    return disk


def remove_disk(rack: Rack, disk: records.Disk) -> None:
    """Take a disk away and give back what it costs. One that is attached is detached before."""
    detach(rack, disk)
    rack.disks.delete(disk)
    rack.guests.delete(disk)
    rack.storage_allocated_bytes -= _room_bytes(disk)
    _silo_of_record(rack, disk).provisioned_storage_bytes -= disk.size_bytes


def add_snapshot(rack: Rack, disk: records.Disk, name: str, description: str) -> records.Snapshot:
    """Make a snapshot of a disk, in its project.

    Raises:
        Refusal: 507 for the rack's room, 400 for a taken name, 507 for the quota, in this order.
    """
    silo = _silo_of_record(rack, disk)
    snapshot = records.Snapshot(
        **rack.identity(name, description),
        project=disk.project,
        disk=disk.id,
        size_bytes=disk.size_bytes,
        block_size_bytes=disk.block_size_bytes,
    )
    _check_room(rack, snapshot.size_bytes)
    check_description(description)
    _check_name(rack.snapshots, snapshot)
    _check_quota(silo, snapshot.size_bytes)
    rack.snapshots.insert(snapshot)
    rack.storage_allocated_bytes += snapshot.size_bytes
    silo.provisioned_storage_bytes += snapshot.size_bytes
    return snapshot


def remove_snapshot(rack: Rack, snapshot: records.Snapshot) -> None:
    """Take a snapshot away and give back what it costs. Images and disks made from it stay."""
    rack.snapshots.delete(snapshot)
    rack.storage_allocated_bytes -= snapshot.size_bytes
    _silo_of_record(rack, snapshot).provisioned_storage_bytes -= snapshot.size_bytes


def attached_disks(rack: Rack, instance: records.Instance) -> list[records.Disk]:
    """The disks of an instance in the order of their slots, the boot disk among them."""
    return sorted(rack.disks_of.get(instance.id, {}).values(), key=lambda disk: disk.slot)


def check_attach(rack: Rack, instance: records.Instance, disk: records.Disk) -> None:
    """Refuse to attach a disk to an instance. To attach it once more to the instance that has it is always allowed.

    Raises:
        Refusal: 400, in the order in which a real rack looks (semantics 3.2).
    """
    if disk.project != instance.project:
        raise errors.invalid_request("disk must be in the same project as the instance")
    if disk.instance == instance.id:
        return
    refusal = f'cannot attach disk "{disk.name}": '
    if disk.instance is not None:
        raise errors.invalid_request(refusal + "disk is attached to another instance")
    if disk.state not in {"creating", "detached"}:
        raise errors.invalid_request(refusal + f"invalid state {disk.state}")
    if instance.state in _STATES_WITH_VMM:
        raise errors.invalid_request("cannot attach disk: instance is not fully stopped")
    if instance.state == "failed":
        raise errors.invalid_request("cannot attach disk to instance in failed state")
    if len(rack.disks_of.get(instance.id, {})) >= MAXIMUM_DISKS:
        raise errors.invalid_request(f"cannot attach more than {MAXIMUM_DISKS} disks to instance")


def attach(rack: Rack, instance: records.Instance, disk: records.Disk) -> None:
    """Give a disk to an instance, in the lowest free slot; nothing happens when the instance has it already."""
    if disk.instance == instance.id:
        return
    disks = rack.disks_of.setdefault(instance.id, {})
    taken = {other.slot for other in disks.values()}
    disk.slot = next(slot for slot in range(MAXIMUM_DISKS) if slot not in taken)
    disk.instance = instance.id
    disk.state = "attached"
    disks[disk.id] = disk


def check_detach(instance: records.Instance, disk: records.Disk) -> None:
    """Refuse to detach a disk from an instance. A detached one may be detached.

    Raises:
        Refusal: 400; 409 for the boot disk (semantics 3.2).
    """
    if disk.state == "detached":
        return
    refusal = f'cannot detach disk "{disk.name}": '
    if disk.instance is None:
        raise errors.invalid_request(refusal + f"invalid state {disk.state}")
    if disk.instance != instance.id:
        raise errors.invalid_request(refusal + "disk is attached to another instance")
    if instance.state in _STATES_WITH_VMM:
        raise errors.invalid_request("cannot detach disk: instance is not fully stopped")
    if instance.boot_disk == disk.id:
        if instance.state == "failed":
            raise errors.invalid_request("cannot detach disk from instance in failed state")
        raise errors.conflict("boot disk cannot be detached")


def detach(rack: Rack, disk: records.Disk) -> None:
    """Take a disk from its instance; nothing happens when it has none."""
    if disk.instance is None:
        return
    disks = rack.disks_of[disk.instance]
    del disks[disk.id]
    if not disks:
        del rack.disks_of[disk.instance]
    disk.instance = None
    disk.slot = 0
    disk.state = "detached"


def disk_view(disk: records.Disk, state: Literal["creating"] | None = None) -> JSON:
    """Schema `Disk`.

    Args:
        disk: the disk.
        state: what to show as its state instead of the present one; the answer to a creation says `creating`
            although all is done.
    """
    shown: dict[str, JSON] = {"state": state or disk.state}
    if shown["state"] == "attached":
        shown["instance"] = disk.instance
    return views.identity(disk) | {
        "project_id": disk.project,
        "size": disk.size_bytes,
        "block_size": disk.block_size_bytes,
        "state": shown,
        "device_path": f"/mnt/{disk.name}",
        "disk_type": disk.disk_type,
        "image_id": disk.image,
        "snapshot_id": disk.snapshot,
        "read_only": disk.read_only,
    }


def _source_block(call: Call, project: records.Project, source: JSON, size_bytes: int) -> int:
    """The block size that a source gives to a distributed disk of this size.

    Raises:
        Refusal: there is no such source for the caller, it belongs elsewhere, or its size does not fit.
    """
    found: records.Image | records.Snapshot
    match source["type"]:
        case "image":
            found = images.by_id(call, source["image_id"])
        case "snapshot":
            found = select.named_in(call, call.rack.snapshots, project, source["snapshot_id"])
        case _:
            block_bytes: int = source["block_size"]
            return block_bytes
    kind: str = source["type"]
    if found.project not in {None, project.id}:
        raise errors.invalid_request(f"{kind} does not belong to this project")
    if source["read_only"] and size_bytes != found.size_bytes:
        text = f"read-only disk size {size_bytes} must be equal to source {kind} size {found.size_bytes}"
        raise errors.invalid_request(text)
    if size_bytes < found.size_bytes:
        text = f"disk size {size_bytes} must be greater than or equal to {kind} size {found.size_bytes}"
        raise errors.invalid_request(text)
    return found.block_size_bytes


def _check_local_size(rack: Rack, size_bytes: int) -> None:
    if size_bytes > MAXIMUM_LOCAL_BYTES:
        raise errors.invalid_value("size", "requested size over 10 PiB")
    if rack.physical_disk_bytes is not None and size_bytes > rack.physical_disk_bytes:
        raise errors.invalid_value("size", "requested size is too large to fit on any physical disk")


def _new_disk(call: Call, project: records.Project, params: JSON) -> records.Disk:
    backend = params["disk_backend"]
    source = backend.get("disk_source", {})
    kind: str | None = source.get("type")
    return records.Disk(
        **call.rack.identity(params["name"], params["description"]),
        project=project.id,
        size_bytes=params["size"],
        block_size_bytes=(LOCAL_BLOCK_BYTES if kind is None else _source_block(call, project, source, params["size"])),
        state="import_ready" if kind == "importing_blocks" else "detached",
        disk_type=backend["type"],
        image=names.parse_uuid(source["image_id"]) if kind == "image" else None,
        snapshot=names.parse_uuid(source["snapshot_id"]) if kind == "snapshot" else None,
        read_only=source.get("read_only", False),
    )


def _room_bytes(disk: records.Disk) -> int:
    """What a disk takes of the room for distributed storage: a read-only one shares the blocks of its source."""
    return disk.size_bytes if disk.disk_type == "distributed" and not disk.read_only else 0


def _check_name(table: Table[P], record: P) -> None:
    if table.by_name(record.parent, record.name) is not None:
        raise errors.already_exists(table.resource, record.name)


def _check_room(rack: Rack, size_bytes: int) -> None:
    capacity_bytes = rack.storage_capacity_bytes
    if size_bytes and capacity_bytes is not None and rack.storage_allocated_bytes + size_bytes > capacity_bytes:
        raise errors.insufficient_capacity("Not enough storage")


def _check_quota(silo: records.Silo, size_bytes: int) -> None:
    if silo.provisioned_storage_bytes + size_bytes > silo.quota_storage_bytes:
        raise errors.insufficient_capacity(_QUOTA_EXCEEDED)


def _silo_of(rack: Rack, project: records.Project) -> records.Silo:
    silo = rack.silos.by_id(project.silo)
    assert silo is not None, "a project outlived its silo"
    return silo


def _silo_of_record(rack: Rack, record: records.InProject) -> records.Silo:
    project = rack.projects.by_id(record.project)
    assert project is not None, "a record outlived its project"
    return _silo_of(rack, project)
