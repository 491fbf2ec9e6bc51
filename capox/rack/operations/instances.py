"""Instances: seeing, making, reconfiguring and deleting them (semantics 2.2, 3, 4)."""

from __future__ import annotations

import contextlib

from capox.rack import errors, instance_creation, instance_states, records, select, views
from capox.rack.access import Need
from capox.rack.call import Call, operation
from capox.rack.json import JSON
from capox.rack.state import Rack

# Without a VMM an instance can be reconfigured.
_STATES_WITHOUT_VMM = frozenset({"creating", "stopped", "failed"})


@operation
def instance_list(call: Call) -> JSON:
    """`GET /v1/instances`: those of a project."""
    project = select.project_of_query(call)
    return call.page(call.rack.instances, project.id, lambda record: view(call.rack, record))


@operation
def instance_view(call: Call) -> JSON:
    """`GET /v1/instances/{instance}`."""
    return view(call.rack, of_path(call))


@operation
async def instance_create(call: Call) -> JSON:
    """`POST /v1/instances`: answers when everything is made; a start that fails does not fail the request."""
    project = select.project_of_query(call, "compute")
    instance = await instance_creation.create(call, project)
    if call.body["start"]:
        # The instance stays stopped then, and only a start of the client's own tells why (semantics 3.1).
        with contextlib.suppress(errors.Refusal):
            instance_states.begin_start(call, instance)
    return view(call.rack, instance)


@operation
def instance_update(call: Call) -> JSON:
    """`PUT /v1/instances/{instance}`: size, platform, boot disk and restart policy; one refused part refuses all."""
    instance = of_path(call, "compute")
    rack, params = call.rack, call.body
    instance_creation.check_size(params["ncpus"], params["memory"])
    instance_creation.check_jumbo_frames(enabled=params["enable_jumbo_frames"])
    boot_disk = _boot_disk(call, instance)
    has_vmm = instance.state not in _STATES_WITHOUT_VMM
    wanted = params["ncpus"], params["memory"], params["cpu_platform"]
    if has_vmm and wanted != (instance.ncpus, instance.memory_bytes, instance.cpu_platform):
        raise errors.conflict("instance must be stopped to change CPU or memory")
    if boot_disk is not None and boot_disk.instance != instance.id:
        raise errors.conflict("boot disk must be attached")
    boot_disk_id = None if boot_disk is None else boot_disk.id
    if has_vmm and boot_disk_id != instance.boot_disk:
        raise errors.conflict("instance must be stopped to set boot disk")
    instance.ncpus, instance.memory_bytes, instance.cpu_platform = wanted
    instance.boot_disk = boot_disk_id
    instance.enable_jumbo_frames = params["enable_jumbo_frames"]
    instance.auto_restart_policy = params["auto_restart_policy"]
    # The new policy may let a failed instance come back.
    instance_states.consider_restart(rack, instance, rack.now())
    return view(rack, instance)


@operation
def instance_delete(call: Call) -> JSON:
    """`DELETE /v1/instances/{instance}`: only a stopped or failed one; refused, it is not restarted any more."""
    instance = of_path(call, "compute")
    instance.is_meant_to_run = False
    if instance.state == "creating":
        raise errors.invalid_request('instance cannot be deleted in state "creating"')
    if instance.state not in _STATES_WITHOUT_VMM:
        raise errors.invalid_request("cannot delete instance: instance is running or has not yet fully stopped")
    instance_creation.dismantle(call.rack, instance)


def of_path(call: Call, need: Need = "read") -> records.Instance:
    """The instance that the path names.

    Raises:
        Refusal: 400, 404 and 403 as for everything in a project.
    """
    return select.in_project(call, call.rack.instances, call.path["instance"], select.INSTANCE, need)


def view(rack: Rack, record: records.Instance) -> JSON:
    """Schema `Instance`; keys of absent options are there and null (semantics 3.4)."""
    return views.identity(record) | {
        "project_id": record.project,
        "ncpus": record.ncpus,
        "memory": record.memory_bytes,
        "hostname": record.hostname,
        "boot_disk_id": record.boot_disk,
        "run_state": record.state,
        "time_run_state_updated": views.timestamp(record.time_run_state_updated),
        "time_last_auto_restarted": views.timestamp(record.time_last_auto_restarted),
        "auto_restart_enabled": instance_states.is_restart_enabled(record),
        "auto_restart_policy": record.auto_restart_policy,
        "auto_restart_cooldown_expiration": views.timestamp(instance_states.cooldown_ends(rack, record)),
        "cpu_platform": record.cpu_platform,
        "enable_jumbo_frames": record.enable_jumbo_frames,
    }


def _boot_disk(call: Call, instance: records.Instance) -> records.Disk | None:
    """The disk that an update names as boot disk: by id, or by name in the instance's project."""
    reference = call.body["boot_disk"]
    if reference is None:
        return None
    return select.named_in(call, call.rack.disks, select.owner_of(call, instance), reference, "compute")
