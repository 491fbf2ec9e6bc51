"""Which sled carries which instance, and what of its silo's quota an instance uses (semantics 4.5).

Capacity and quota are looked at when an instance starts and given back when it has fully stopped or failed; a stopped
instance costs nothing. A rack prefers no sled over another; this one takes the emptiest, so that two runs are alike,
and passes over sleds that do not answer.
"""

from __future__ import annotations

from capox.rack import errors, records
from capox.rack.state import Rack

# Sleds of the younger family offer everything that the older one has.
_YOUNGER = frozenset({"amd_turin", "amd_turin_v2"})
_CARRIED_BY: dict[str, frozenset[str]] = {
    "amd_milan": _YOUNGER | {"amd_milan"},
    "amd_turin": _YOUNGER,
    "amd_turin_v2": _YOUNGER,
}

_REMEDY = (
    "Either stop unused instances to free up resources or contact the rack operator to request a capacity increase."
)


def choose(rack: Rack, instance: records.Instance) -> records.Sled:
    """The sled on which an instance would start now.

    Raises:
        Refusal: 507, there is none with enough room, of the right CPU platform, and outside the anti-affinity groups
            whose policy is `fail`.
    """
    banned, avoided = _neighbours(rack, instance)
    candidates = [sled for sled in _homes(rack, instance) if sled.id not in banned and _has_room(sled, instance)]
    if not candidates:
        raise no_sled()
    return min(candidates, key=lambda sled: (sled.id in avoided, *_fullness(sled)))


def reserve(rack: Rack, instance: records.Instance, sled: records.Sled) -> None:
    """Reserve an instance's share of a sled and of its silo's quota, and keep its local disks on that sled from now on.

    Raises:
        Refusal: 507, the quota does not allow it; nothing is reserved then.
    """
    silo = _silo_of(rack, instance)
    if silo.provisioned_cpus + instance.ncpus > silo.quota_cpus:
        raise errors.insufficient_capacity(f"vCPU Limit Exceeded: Not enough vCPUs to complete request. {_REMEDY}")
    if silo.provisioned_memory_bytes + instance.memory_bytes > silo.quota_memory_bytes:
        raise errors.insufficient_capacity(f"Memory Limit Exceeded: Not enough memory to complete request. {_REMEDY}")
    _charge(silo, sled, instance, 1)
    sled.instances.add(instance.id)
    instance.sled = sled.id
    for disk in _local_disks(rack, instance):
        disk.sled = sled.id


def vacate(rack: Rack, instance: records.Instance) -> None:
    """Give back what an instance had reserved; without a reservation, nothing happens."""
    if instance.sled is None:
        return
    sled = rack.sleds[instance.sled]
    _charge(_silo_of(rack, instance), sled, instance, -1)
    sled.instances.discard(instance.id)
    instance.sled = None


def no_sled() -> errors.Refusal:
    """The 507 of an instance for which there is no sled."""
    return errors.insufficient_capacity(
        "Failed to place instance: Could not find any valid sled on which this instance can be placed"
    )


def _homes(rack: Rack, instance: records.Instance) -> list[records.Sled]:
    """The sleds that could carry the instance if they were empty."""
    platforms = _CARRIED_BY.get(instance.cpu_platform or "")
    pinned = {disk.sled for disk in _local_disks(rack, instance) if disk.sled is not None}
    return [
        sled
        for sled in rack.sleds.values()
        # A sled that is out of service cannot be reached either.
        if sled.is_reachable and (platforms is None or sled.cpu_platform in platforms) and pinned <= {sled.id}
    ]


def _neighbours(rack: Rack, instance: records.Instance) -> tuple[set[str], set[str]]:
    """The sleds on which other members of the instance's groups are: those that are banned, and those to be avoided."""
    banned: set[str] = set()
    avoided: set[str] = set()
    for group in rack.groups_of.get(instance.id, {}).values():
        for member in group.members:
            other = rack.instances.by_id(member)
            if other is not None and other is not instance and other.sled is not None:
                (banned if group.policy == "fail" else avoided).add(other.sled)
    return banned, avoided


def _has_room(sled: records.Sled, instance: records.Instance) -> bool:
    return (
        sled.reserved_cpus + instance.ncpus <= sled.cpus
        and sled.reserved_memory_bytes + instance.memory_bytes <= sled.memory_bytes
    )


def _fullness(sled: records.Sled) -> tuple[int, int, str]:
    return sled.reserved_memory_bytes - sled.memory_bytes, sled.reserved_cpus - sled.cpus, sled.name


def _charge(silo: records.Silo, sled: records.Sled, instance: records.Instance, sign: int) -> None:
    silo.provisioned_cpus += sign * instance.ncpus
    silo.provisioned_memory_bytes += sign * instance.memory_bytes
    sled.reserved_cpus += sign * instance.ncpus
    sled.reserved_memory_bytes += sign * instance.memory_bytes


def _local_disks(rack: Rack, instance: records.Instance) -> list[records.Disk]:
    return [disk for disk in rack.disks_of.get(instance.id, {}).values() if disk.disk_type == "local"]


def _silo_of(rack: Rack, instance: records.Instance) -> records.Silo:
    project = rack.projects.by_id(instance.project)
    silo = None if project is None else rack.silos.by_id(project.silo)
    assert silo is not None, "an instance outlived its project or its silo"
    return silo
