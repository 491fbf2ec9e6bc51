"""Disks, and the disks of an instance (semantics 2.3, 3.2, 5)."""

from __future__ import annotations

from capox.rack import errors, records, select, storage
from capox.rack.access import Need
from capox.rack.call import Call, operation
from capox.rack.json import JSON

_DELETABLE = frozenset({"detached", "faulted"})


@operation
def disk_list(call: Call) -> JSON:
    """`GET /v1/disks`."""
    return call.page(call.rack.disks, select.project_of_query(call).id, storage.disk_view)


@operation
async def disk_create(call: Call) -> JSON:
    """`POST /v1/disks`: the answer says `creating` although the disk is ready, unless it is read-only."""
    project = select.project_of_query(call, "compute")
    storage.check_create(call, project, call.body)
    disk = storage.add_disk(call, project, call.body)
    if disk.read_only:
        await call.elapse(call.rack.timing.disk_create)
        return storage.disk_view(disk)
    ready, disk.state = disk.state, "creating"
    await call.elapse(call.rack.timing.disk_create)
    if disk.state == "creating":
        disk.state = ready
    return storage.disk_view(disk, "creating")


@operation
def disk_view(call: Call) -> JSON:
    """`GET /v1/disks/{disk}`."""
    return storage.disk_view(find(call))


@operation
async def disk_delete(call: Call) -> JSON:
    """`DELETE /v1/disks/{disk}`: its name is free at once; only then is its room cleaned."""
    disk = find(call, "compute")
    if disk.state not in _DELETABLE:
        raise errors.invalid_request(f'disk cannot be deleted in state "{disk.state}"')
    storage.remove_disk(call.rack, disk)
    await call.elapse(call.rack.timing.disk_delete)


@operation
def instance_disk_list(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/disks`, the boot disk among them."""
    return call.page_of(storage.attached_disks(call.rack, _instance(call)), storage.disk_view)


@operation
def instance_disk_attach(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/disks/attach`: a name is looked up in the instance's project."""
    instance, disk = _instance_and_disk(call)
    storage.check_attach(call.rack, instance, disk)
    storage.attach(call.rack, instance, disk)
    return storage.disk_view(disk)


@operation
def instance_disk_detach(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/disks/detach`."""
    instance, disk = _instance_and_disk(call)
    storage.check_detach(instance, disk)
    storage.detach(call.rack, disk)
    return storage.disk_view(disk)


def find(call: Call, need: Need = "read") -> records.Disk:
    """The disk of the path.

    Raises:
        Refusal: as of `select.in_project`.
    """
    return select.in_project(call, call.rack.disks, call.path["disk"], select.DISK, need)


def _instance(call: Call, need: Need = "read") -> records.Instance:
    return select.in_project(call, call.rack.instances, call.path["instance"], select.INSTANCE, need)


def _instance_and_disk(call: Call) -> tuple[records.Instance, records.Disk]:
    instance = _instance(call, "compute")
    project = select.owner_of(call, instance)
    return instance, select.named_in(call, call.rack.disks, project, call.body["disk"], "compute")
