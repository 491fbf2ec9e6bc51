"""What a machine's instance is made of: pure, from the OxideMachine and its cluster to the body of instance_create."""

from __future__ import annotations

import dataclasses
from typing import Final
from uuid import UUID

import pydantic

from capox.api.quantity import GIB_BYTES
from capox.api.v1alpha1 import (
    DATA_DISK_BLOCK_SIZE_BYTES,
    DataDisk,
    NetworkInterface,
    OxideCluster,
    OxideMachine,
    PrimaryNetworkInterface,
)
from capox.ownership import OwnerMark, format_mark
from capox.oxide import models
from capox.provider import names
from capox.provider.bootstrap import UserData
from capox.provider.group_plan import GROUP_WORD

__all__ = ["DEFAULT_NETWORK", "InvalidSpecError", "instance_create", "owner_mark"]

DEFAULT_NETWORK: Final = "default"
"""The VPC, and the subnet, that every project has from the start (semantics 7.1)."""


class InvalidSpecError(ValueError):
    """A spec that no instance can be made of; the message names the field, the value and the limit."""


def owner_mark(machine: OxideMachine, cluster_id: str) -> OwnerMark:
    """The mark of everything that is made for a machine."""
    return OwnerMark(
        kind="OxideMachine",
        namespace=machine.metadata.namespace,
        name=machine.metadata.name,
        uid=machine.metadata.uid,
        cluster_id=cluster_id,
    )


def instance_create(
    machine: OxideMachine,
    cluster: OxideCluster,
    *,
    image_id: UUID,
    user_data: UserData,
    group_id: UUID | None = None,
) -> models.InstanceCreate:
    """The one request that makes an instance with its disks, NICs, addresses, keys and groups (semantics 4.2).

    Args:
        machine: Whose instance it is.
        cluster: Where it belongs.
        image_id: The image that its boot disk is a copy of.
        user_data: What cloud-init reads.
        group_id: The managed anti-affinity group that it becomes a member of, besides those of its spec.

    Raises:
        InvalidSpecError: The rack could not even read the request.
    """
    spec = machine.spec
    namespace, machine_name = machine.metadata.namespace, machine.metadata.name
    name = names.instance_name(namespace, machine_name)
    mark = owner_mark(machine, cluster.spec.cluster_id or "")
    # On the instance the mark also tells its managed group: so one list of instances tells the members of all groups.
    group = {GROUP_WORD: group_id.hex} if group_id is not None else {}
    description = format_mark(mark)
    try:
        return models.InstanceCreate(
            name=name,
            hostname=name,
            description=format_mark(dataclasses.replace(mark, further=group)),
            ncpus=spec.n_cpus,
            memory=spec.memory.to_bytes(multiple_bytes=GIB_BYTES),
            boot_disk=models.InstanceDiskCreate(
                name=names.boot_disk_name(namespace, machine_name),
                description=description,
                size=spec.disk_size.to_bytes(multiple_bytes=GIB_BYTES),
                disk_backend=models.DistributedBackend(disk_source=models.ImageSource(image_id=image_id)),
            ),
            disks=tuple(
                _data_disk(disk, names.data_disk_name(index, namespace, machine_name), description)
                for index, disk in enumerate(spec.data_disks)
            ),
            network_interfaces=models.InterfacesCreate(params=_interfaces(machine, cluster, name, description)),
            external_ips=_external_ips(machine),
            anti_affinity_groups=(*spec.anti_affinity_groups, *([group_id] if group_id is not None else [])),
            # Absent means none: null would give every key of the token's owner (semantics 2.2).
            ssh_public_keys=spec.ssh_public_keys,
            user_data=user_data.data,
            auto_restart_policy=models.AutoRestartPolicy(spec.auto_restart_policy)
            if spec.auto_restart_policy is not None
            else None,
            cpu_platform=models.CpuPlatform(spec.cpu_platform) if spec.cpu_platform is not None else None,
        )
    except pydantic.ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise InvalidSpecError(f"the rack cannot read this spec: {details}") from None


def _data_disk(disk: DataDisk, name: str, description: str) -> models.InstanceDiskCreate:
    if disk.type == "local":
        backend: models.DiskBackend = models.LocalBackend()
    else:
        source = models.BlankSource.model_validate({"block_size": disk.block_size or DATA_DISK_BLOCK_SIZE_BYTES})
        backend = models.DistributedBackend(disk_source=source)
    return models.InstanceDiskCreate(
        name=name,
        description=description,
        size=disk.size.to_bytes(multiple_bytes=GIB_BYTES),
        disk_backend=backend,
    )


def _interfaces(
    machine: OxideMachine, cluster: OxideCluster, name: str, description: str
) -> tuple[models.InstanceNetworkInterfaceCreate, ...]:
    """The NICs, the primary one first."""
    vpc = cluster.spec.vpc or DEFAULT_NETWORK
    subnet = machine.spec.subnet or cluster.spec.subnet or DEFAULT_NETWORK
    primary = machine.spec.primary_network_interface or PrimaryNetworkInterface()
    first = models.InstanceNetworkInterfaceCreate(
        name=name, description=description, vpc_name=vpc, subnet_name=subnet, ip_config=_ip_config(primary)
    )
    further = (
        models.InstanceNetworkInterfaceCreate(
            name=f"nic{index}",
            description=description,
            vpc_name=vpc,
            subnet_name=interface.subnet,
            ip_config=_ip_config(interface),
        )
        for index, interface in enumerate(machine.spec.network_interfaces, start=1)
    )
    return (first, *further)


def _ip_config(interface: PrimaryNetworkInterface | NetworkInterface) -> models.PrivateIpStackCreate:
    transit_v4 = tuple(net for net in interface.transit_ips if ":" not in net)
    transit_v6 = tuple(net for net in interface.transit_ips if ":" in net)
    v4 = models.PrivateIpv4StackCreate(transit_ips=transit_v4)
    v6 = models.PrivateIpv6StackCreate(transit_ips=transit_v6)
    match interface.ip_type:
        case "v4":
            return models.OnlyV4Create(value=v4)
        case "v6":
            return models.OnlyV6Create(value=v6)
        case _:
            return models.DualStackCreate(value=models.DualStackValueCreate(v4=v4, v6=v6))


def _external_ips(machine: OxideMachine) -> tuple[models.ExternalIpCreate, ...]:
    if machine.spec.ip_pool is None:
        return ()
    return (models.EphemeralExternalIpCreate(pool_selector=models.ExplicitPool(pool=machine.spec.ip_pool)),)
