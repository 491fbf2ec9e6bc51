"""What holds on a rack at any time, whatever was asked of it: its books agree with its records."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from capox.rack import records
from capox.rack.state import Rack

# An instance has a reservation in these states and in no others.
WITH_VMM = {"starting", "running", "stopping", "rebooting"}


def broken(rack: Rack) -> list[str]:
    """The invariants that do not hold, one sentence each."""
    return [
        *_instances(rack),
        *_sleds(rack),
        *_quotas(rack),
        *_disks(rack),
        *_groups(rack),
        *_pool_addresses(rack),
        *_subnet_addresses(rack),
        *_orphans(rack),
    ]


def _instances(rack: Rack) -> Iterator[str]:
    for instance in rack.instances:
        if (instance.sled is not None) != (instance.state in WITH_VMM):
            yield f"{instance.name} is {instance.state} with sled {instance.sled}"
        if instance.boot_disk is not None and instance.boot_disk not in rack.disks_of.get(instance.id, {}):
            yield f"{instance.name} boots from a disk that is not attached"
        nics = rack.network_interfaces.of(instance.id)
        if nics and sum(nic.is_primary for nic in nics) != 1:
            yield f"{instance.name} has not exactly one primary NIC"


def _sleds(rack: Rack) -> Iterator[str]:
    for sled in rack.sleds.values():
        carried = [instance for instance in rack.instances if instance.sled == sled.id]
        if {instance.id for instance in carried} != sled.instances:
            yield f"{sled.name} does not carry the instances that say so"
        used = sum(instance.ncpus for instance in carried), sum(instance.memory_bytes for instance in carried)
        if used != (sled.reserved_cpus, sled.reserved_memory_bytes):
            yield f"{sled.name} has reserved {sled.reserved_cpus} CPUs, used are {used[0]}"
        if sled.reserved_cpus > sled.cpus or sled.reserved_memory_bytes > sled.memory_bytes:
            yield f"{sled.name} is overfull"


def _quotas(rack: Rack) -> Iterator[str]:
    for silo in rack.silos:
        projects = {project.id for project in rack.projects if project.silo == silo.id}
        running = [each for each in rack.instances if each.project in projects and each.sled is not None]
        stored = [disk.size_bytes for disk in rack.disks if disk.project in projects]
        stored += [snapshot.size_bytes for snapshot in rack.snapshots if snapshot.project in projects]
        used = (
            sum(instance.ncpus for instance in running),
            sum(instance.memory_bytes for instance in running),
            sum(stored),
        )
        booked = silo.provisioned_cpus, silo.provisioned_memory_bytes, silo.provisioned_storage_bytes
        if used != booked:
            yield f"silo {silo.name} has booked {booked}, used is {used}"
        if silo.provisioned_cpus > silo.quota_cpus or silo.provisioned_storage_bytes > silo.quota_storage_bytes:
            yield f"silo {silo.name} is beyond its quota"


def _disks(rack: Rack) -> Iterator[str]:
    attached: dict[str, set[str]] = collections.defaultdict(set)
    for disk in rack.disks:
        if (disk.state == "attached") != (disk.instance is not None):
            yield f"disk {disk.name} is {disk.state} with instance {disk.instance}"
        if disk.instance is not None:
            attached[disk.instance].add(disk.id)
    if {instance: set(disks) for instance, disks in rack.disks_of.items() if disks} != attached:
        yield "disks_of does not know the disks that are attached"
    for instance, disks in rack.disks_of.items():
        slots = [disk.slot for disk in disks.values()]
        if len(set(slots)) != len(slots) or len(slots) > 12:
            yield f"the disks of {instance} have slots {slots}"


def _groups(rack: Rack) -> Iterator[str]:
    joined: dict[str, set[str]] = collections.defaultdict(set)
    for group in rack.anti_affinity_groups:
        for member in group.members:
            joined[member].add(group.id)
            if rack.instances.by_id(member) is None:
                yield f"group {group.name} has a member that is gone"
    if {instance: set(groups) for instance, groups in rack.groups_of.items() if groups} != joined:
        yield "groups_of does not know the memberships that there are"


def _pool_addresses(rack: Rack) -> Iterator[str]:
    used: dict[str, set[int]] = collections.defaultdict(set)
    floating: dict[str, set[str]] = collections.defaultdict(set)
    for record in rack.floating_ips:
        used[record.pool].add(int(record.ip))
        if record.instance is not None:
            floating[record.instance].add(record.id)
    held: list[records.EphemeralIp | records.SnatIp] = [
        *(ephemeral for found in rack.ephemeral_ips_of.values() for ephemeral in found),
        *rack.snat_ips_of.values(),
    ]
    for address in held:
        used[address.pool].add(int(address.ip))
        if rack.instances.by_id(address.instance) is None:
            yield f"{address.ip} is held by an instance that is gone"
    for pool in rack.ip_pools:
        book = rack.pool_addresses[pool.id]
        if book.taken_count != len(used[pool.id]) or not all(book.is_taken(number) for number in used[pool.id]):
            yield f"pool {pool.name} has given out {book.taken_count} addresses, {len(used[pool.id])} are in use"
    shares = [(snat.ip, snat.first_port) for snat in rack.snat_ips_of.values()]
    if len(set(shares)) != len(shares):
        yield "two instances share the same ports of an address"
    if {instance: set(found) for instance, found in rack.floating_ips_of.items() if found} != floating:
        yield "floating_ips_of does not know the floating IPs that are attached"


def _subnet_addresses(rack: Rack) -> Iterator[str]:
    for subnet in rack.subnets:
        nics = [nic for nic in rack.network_interfaces if nic.subnet == subnet.id]
        for version, addresses in (
            ("v4", {int(nic.ipv4) for nic in nics if nic.ipv4 is not None}),
            ("v6", {int(nic.ipv6) for nic in nics if nic.ipv6 is not None}),
        ):
            book = rack.subnet_addresses[subnet.id, "v4" if version == "v4" else "v6"]
            if book.taken_count != len(addresses) or not all(book.is_taken(number) for number in addresses):
                yield f"subnet {subnet.name} has given out {book.taken_count} addresses, {len(addresses)} are in use"
    macs = [nic.mac for nic in rack.network_interfaces]
    if len(set(macs)) != len(macs):
        yield "two NICs have the same MAC address"


def _orphans(rack: Rack) -> Iterator[str]:
    for nic in rack.network_interfaces:
        if rack.instances.by_id(nic.instance) is None or rack.subnets.by_id(nic.subnet) is None:
            yield f"NIC {nic.name} has lost its instance or its subnet"
    for subnet in rack.subnets:
        if rack.vpcs.by_id(subnet.vpc) is None:
            yield f"subnet {subnet.name} has lost its VPC"
    for table in (rack.instances, rack.disks, rack.floating_ips, rack.vpcs, rack.snapshots, rack.external_subnets):
        for record in table:
            if rack.projects.by_id(record.project) is None:
                yield f"{table.resource} {record.name} has lost its project"
