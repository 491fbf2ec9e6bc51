"""Making an instance, and taking one apart (semantics 4.1, 4.2, 4.6).

Everything that can be refused without writing is refused first. Then the saga writes one part after the other, while
the instance shows as `creating`; whatever goes wrong on the way, a refusal or the end of the process, takes back all
that was written.
"""

from __future__ import annotations

import base64
import dataclasses

from capox.rack import affinity, errors, external_addresses, instance_states, interfaces, records, select, storage
from capox.rack.call import Call, check_description
from capox.rack.json import JSON
from capox.rack.state import Rack

GIB = 1024**3

MAXIMUM_CPUS = 254
MAXIMUM_MEMORY_GIB = 1536
MAXIMUM_DISKS = 12
MAXIMUM_EXTERNAL_IPS = 32
MAXIMUM_MULTICAST_GROUPS = 32
MAXIMUM_SSH_KEYS = 100

# The database's column is narrower than what the API takes for a host name.
_HOSTNAME_COLUMN_CHARACTERS = 63


@dataclasses.dataclass(frozen=True)
class _References:
    """What the names and ids of a request mean, found before anything is written."""

    ssh_keys: tuple[str, ...]
    groups: list[records.AntiAffinityGroup]


async def create(call: Call, project: records.Project) -> records.Instance:
    """Make the instance that the body asks for; it is stopped in the end.

    Raises:
        Refusal: of whichever part was not possible; nothing is left of the others.
    """
    params = call.body
    references = _check(call, project, params)
    instance = _add_record(call, project, params, references.ssh_keys)
    created: list[records.Disk] = []
    # The saga's time passes in two halves: with NICs and addresses but without disks, and with everything.
    half_seconds = call.rack.timing.instance_create / 2
    try:
        for group in references.groups:
            affinity.join(call.rack, group, instance)
        _add_networking(call, project, instance, params)
        await call.elapse(half_seconds)
        _add_disks(call, project, instance, params, created)
        await call.elapse(half_seconds)
        _set_boot_disk(call.rack, project, instance, params)
    except BaseException:
        _unwind(call.rack, instance, created)
        raise
    instance_states.finish_creation(call.rack, instance)
    return instance


def dismantle(rack: Rack, instance: records.Instance) -> None:
    """Take an instance away with what belongs to it; disks, floating IPs and external subnets stay, detached."""
    for disk in storage.attached_disks(rack, instance):
        storage.detach(rack, disk)
    affinity.leave_all(rack, instance)
    external_addresses.release_addresses(rack, instance)
    interfaces.remove_interfaces(rack, instance)
    rack.instances.delete(instance)


def check_size(ncpus: int, memory_bytes: int) -> None:
    """Whether an instance may be of this size (semantics 2.2); the API does not mind one without virtual CPUs.

    Raises:
        Refusal: 400, with the limit.
    """
    if ncpus > MAXIMUM_CPUS:
        raise errors.invalid_request(f"cannot have more than {MAXIMUM_CPUS} vCPUs per instance")
    if memory_bytes < GIB:
        raise errors.invalid_value("size", "memory must be at least 1 GiB")
    if memory_bytes % GIB:
        raise errors.invalid_value("size", "memory must be divisible by 1 GiB")
    if memory_bytes > MAXIMUM_MEMORY_GIB * GIB:
        raise errors.invalid_value("size", f"memory must be less than or equal to {MAXIMUM_MEMORY_GIB} GiB")


def check_jumbo_frames(*, enabled: bool) -> None:
    """Whether an instance may ask for large frames; this rack's operator has not opted in (semantics 2.2).

    Raises:
        Refusal: 400.
    """
    if enabled:
        raise errors.invalid_request("enable_jumbo_frames needs the opt-in of the whole fleet, which this rack lacks")


def _check(call: Call, project: records.Project, params: JSON) -> _References:
    """Refuse what can be refused before anything is written, in the API's order."""
    check_size(params["ncpus"], params["memory"])
    disks = _attachments(params)
    if len(disks) > MAXIMUM_DISKS:
        raise errors.invalid_request(f"cannot attach more than {MAXIMUM_DISKS} disks to instance")
    for disk in disks:
        if disk["type"] == "create":
            storage.check_create(call, project, disk)
    if len(params["external_ips"]) > MAXIMUM_EXTERNAL_IPS:
        raise errors.invalid_request(f"An instance may not have more than {MAXIMUM_EXTERNAL_IPS} external IP addresses")
    # Of multicast this rack has no more than one with multicast switched off, which checks the number and no more.
    if len(params["multicast_groups"]) > MAXIMUM_MULTICAST_GROUPS:
        raise errors.invalid_request(f"An instance may not join more than {MAXIMUM_MULTICAST_GROUPS} multicast groups")
    check_jumbo_frames(enabled=params["enable_jumbo_frames"])
    external_addresses.check_requested(call, params["external_ips"])
    interfaces.check_attachment(call, params["network_interfaces"])
    ssh_keys = _ssh_keys(call, params["ssh_public_keys"])
    return _References(ssh_keys, affinity.find_groups(call, project, params["anti_affinity_groups"]))


def _ssh_keys(call: Call, references: list[str] | None) -> tuple[str, ...]:
    """The ids of the caller's keys: those that are named, or all when none is asked for in particular.

    Raises:
        Refusal: 404, the caller has no such key; 400, there are too many.
    """
    if references is None:
        return tuple(key.id for key in call.rack.ssh_keys.of(call.actor.user.id))
    found = dict.fromkeys(select.own_ssh_key(call, reference).id for reference in references)
    if len(found) > MAXIMUM_SSH_KEYS:
        raise errors.invalid_request(f"cannot attach more than {MAXIMUM_SSH_KEYS} ssh keys to the instance")
    return tuple(found)


def _attachments(params: JSON) -> list[JSON]:
    """All disks of a request, the boot disk first."""
    boot_disk = params["boot_disk"]
    return [*([] if boot_disk is None else [boot_disk]), *params["disks"]]


def _add_record(call: Call, project: records.Project, params: JSON, ssh_keys: tuple[str, ...]) -> records.Instance:
    """Write the record; from now on it can be seen.

    Raises:
        Refusal: 500, the database has no room for the description or the host name; 400, the name is taken.
    """
    check_description(params["description"])
    if len(params["hostname"]) > _HOSTNAME_COLUMN_CHARACTERS:
        raise errors.internal_error()
    identity = call.rack.identity(params["name"], params["description"])
    return call.rack.instances.insert(
        records.Instance(
            **identity,
            project=project.id,
            hostname=params["hostname"],
            ncpus=params["ncpus"],
            memory_bytes=params["memory"],
            user_data=base64.b64decode(params["user_data"]),
            ssh_keys=ssh_keys,
            state="creating",
            time_run_state_updated=identity["time_created"],
            auto_restart_policy=params["auto_restart_policy"],
            cpu_platform=params["cpu_platform"],
            enable_jumbo_frames=params["enable_jumbo_frames"],
            is_meant_to_run=params["start"],
        )
    )


def _add_networking(call: Call, project: records.Project, instance: records.Instance, params: JSON) -> None:
    interfaces.add_interfaces(call, project, instance, params["network_interfaces"])
    external_addresses.add_snat(call, project, instance)
    for entry in params["external_ips"]:
        external_addresses.add_requested(call, project, instance, entry)


def _add_disks(
    call: Call,
    project: records.Project,
    instance: records.Instance,
    params: JSON,
    created: list[records.Disk],
) -> None:
    """Create all disks that are to be created, noting them at once, and then attach all disks."""
    attachments = _attachments(params)
    for disk in attachments:
        if disk["type"] == "create":
            made = storage.add_disk(call, project, disk)
            created.append(made)
    for disk in attachments:
        found = _disk(call.rack, project, disk["name"])
        storage.check_attach(call.rack, instance, found)
        storage.attach(call.rack, instance, found)


def _set_boot_disk(rack: Rack, project: records.Project, instance: records.Instance, params: JSON) -> None:
    """Set the boot disk, which by now somebody may have detached.

    Raises:
        Refusal: 409, it is not attached; 404, it is gone.
    """
    if params["boot_disk"] is None:
        return
    disk = _disk(rack, project, params["boot_disk"]["name"])
    if disk.instance != instance.id:
        raise errors.conflict("boot disk must be attached")
    instance.boot_disk = disk.id


def _disk(rack: Rack, project: records.Project, name: str) -> records.Disk:
    found = rack.disks.by_name(project.id, name)
    if found is None:
        raise errors.not_found("disk", name=name)
    return found


def _unwind(rack: Rack, instance: records.Instance, created: list[records.Disk]) -> None:
    """Take back everything. A disk of ours that somebody has attached elsewhere meanwhile is theirs now."""
    dismantle(rack, instance)
    for disk in created:
        if rack.disks.by_id(disk.id) is disk and disk.instance is None:
            storage.remove_disk(rack, disk)
