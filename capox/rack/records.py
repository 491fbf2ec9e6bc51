"""The records of a rack: one class a resource, data only.

Times are aware UTC datetimes, sizes are bytes, references are ids. What the API shows of a record is decided beside the
operations of its resource.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from typing import Literal

from capox.rack.console import Console
from capox.rack.json import JSON

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
IpVersion = Literal["v4", "v6"]
Role = Literal["admin", "collaborator", "limited_collaborator", "viewer"]

InstanceState = Literal["creating", "starting", "running", "stopping", "stopped", "rebooting", "failed"]
DiskStateName = Literal[
    "creating",
    "detached",
    "import_ready",
    "importing_from_bulk_writes",
    "finalizing",
    "maintenance",
    "attached",
    "faulted",
]


@dataclasses.dataclass(kw_only=True, slots=True)
class Named:
    """What every named resource has (schema `IdentityMetadata`).

    Attributes:
        id: a UUID in lower case.
        name: unique within the parent.
        description: free text of at most 512 characters.
        time_created: when it was made.
        time_modified: when name, description or another stored property was last changed.
    """

    id: str
    name: str
    description: str
    time_created: datetime.datetime
    time_modified: datetime.datetime


@dataclasses.dataclass(kw_only=True, slots=True)
class Silo(Named):
    """A tenant of the rack, with its quotas and what is in use of them (semantics 4.5).

    Attributes:
        provisioned_cpus: virtual CPUs of the instances that have a reservation on a sled.
        provisioned_memory_bytes: memory of the same instances.
        provisioned_storage_bytes: sizes of all disks and snapshots.
    """

    quota_cpus: int
    quota_memory_bytes: int
    quota_storage_bytes: int
    provisioned_cpus: int = 0
    provisioned_memory_bytes: int = 0
    provisioned_storage_bytes: int = 0
    parent: str = "fleet"


@dataclasses.dataclass(kw_only=True, slots=True)
class User(Named):
    """A user of a silo; `name` is what the API calls display name. `role` is the role on the whole silo, if any."""

    silo: str
    role: Role | None
    fleet_viewer: bool

    @property
    def parent(self) -> str:
        """The silo."""
        return self.silo


@dataclasses.dataclass(kw_only=True, slots=True)
class Token:
    """A device token, kept as its SHA-256, so that neither a dump nor a log of the rack can hold it."""

    id: str
    user: str
    sha256: str
    time_created: datetime.datetime
    time_expires: datetime.datetime | None


@dataclasses.dataclass(kw_only=True, slots=True)
class SshKey(Named):
    """A public key of a user."""

    user: str
    public_key: str

    @property
    def parent(self) -> str:
        """The user."""
        return self.user


@dataclasses.dataclass(kw_only=True, slots=True)
class Project(Named):
    """A project. `roles` gives users (by id) a role on this project."""

    silo: str
    roles: dict[str, Role] = dataclasses.field(default_factory=dict)

    @property
    def parent(self) -> str:
        """The silo."""
        return self.silo


@dataclasses.dataclass(kw_only=True, slots=True)
class InProject(Named):
    """A resource of a project."""

    project: str

    @property
    def parent(self) -> str:
        """The project."""
        return self.project


@dataclasses.dataclass(kw_only=True, slots=True)
class Instance(InProject):
    """An instance.

    Attributes:
        hostname: what the guest is told to call itself.
        ncpus: virtual CPUs.
        memory_bytes: memory.
        user_data: what cloud-init gets; the API never shows it.
        ssh_keys: ids of the SSH keys associated at creation; one that its owner deletes is no longer listed.
        state: the run state that the API shows.
        time_run_state_updated: when it last changed.
        boot_disk: the disk to boot from.
        auto_restart_policy: as requested; None behaves like `best_effort`.
        cpu_platform: as requested; None takes any.
        enable_jumbo_frames: whether the primary NIC may use large frames.
        sled: where it has a reservation, from the beginning of a start to the end of a stop; None while stopped.
        is_vmm_lost: its sled does not know it any more, and the rack has not noticed yet.
        is_meant_to_run: the intended state; a failed instance is restarted only when this holds.
        time_last_auto_restarted: when the rack last restarted it by itself.
        transitions: counts every change of direction, so that an act on the agenda can tell that it has been overtaken.
        planned_restart: the count of transitions for which an automatic restart waits on the agenda.
        console: what the guest wrote to the serial console.
    """

    hostname: str
    ncpus: int
    memory_bytes: int
    user_data: bytes = dataclasses.field(repr=False)
    ssh_keys: tuple[str, ...]
    state: InstanceState
    time_run_state_updated: datetime.datetime
    boot_disk: str | None = None
    auto_restart_policy: Literal["never", "best_effort"] | None = None
    cpu_platform: str | None = None
    enable_jumbo_frames: bool = False
    sled: str | None = None
    is_vmm_lost: bool = False
    is_meant_to_run: bool = False
    time_last_auto_restarted: datetime.datetime | None = None
    transitions: int = 0
    planned_restart: int | None = None
    console: Console = dataclasses.field(default_factory=Console, repr=False)


@dataclasses.dataclass(kw_only=True, slots=True)
class Disk(InProject):
    """A disk.

    `instance` is set while it is attached; `slot` orders the disks of an instance. Of imported blocks only their
    number of bytes is kept. `sled` is where a local disk lies, from the first start of its instance on.
    """

    size_bytes: int
    block_size_bytes: int
    state: DiskStateName
    disk_type: Literal["distributed", "local"] = "distributed"
    instance: str | None = None
    slot: int = 0
    image: str | None = None
    snapshot: str | None = None
    read_only: bool = False
    imported_bytes: int = 0
    sled: str | None = None


@dataclasses.dataclass(kw_only=True, slots=True)
class Snapshot(InProject):
    """A snapshot of a disk."""

    disk: str
    size_bytes: int
    block_size_bytes: int
    state: Literal["creating", "ready", "faulted", "destroyed"] = "ready"


@dataclasses.dataclass(kw_only=True, slots=True)
class Image(Named):
    """An image of a project, or of the whole silo when `project` is None; `guest` is what a guest boots for it."""

    silo: str
    project: str | None
    os: str
    version: str
    size_bytes: int
    block_size_bytes: int
    digest: JSON = None
    guest: str | None = None

    @property
    def parent(self) -> str:
        """The project, or the silo for a silo image."""
        return self.project or self.silo


@dataclasses.dataclass(kw_only=True, slots=True)
class Vpc(InProject):
    """A VPC. Its firewall rules are kept as the API takes them, plus their ids and times."""

    dns_name: str
    ipv6_prefix: ipaddress.IPv6Network
    system_router: str
    firewall_rules: list[JSON] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(kw_only=True, slots=True)
class VpcSubnet(Named):
    """A subnet of a VPC."""

    vpc: str
    ipv4_block: ipaddress.IPv4Network
    ipv6_block: ipaddress.IPv6Network
    custom_router: str | None = None

    @property
    def parent(self) -> str:
        """The VPC."""
        return self.vpc


@dataclasses.dataclass(kw_only=True, slots=True)
class InVpc(Named):
    """A resource of a VPC that needs no more than that: a router or an internet gateway."""

    vpc: str

    @property
    def parent(self) -> str:
        """The VPC."""
        return self.vpc


@dataclasses.dataclass(kw_only=True, slots=True)
class VpcRouter(InVpc):
    """A router of a VPC. Every VPC has one of kind `system`."""

    kind: Literal["system", "custom"]


@dataclasses.dataclass(kw_only=True, slots=True)
class RouterRoute(Named):
    """A route of a router; destination and target are kept as the API shows them."""

    router: str
    kind: Literal["default", "vpc_subnet", "vpc_peering", "custom"]
    destination: JSON
    target: JSON

    @property
    def parent(self) -> str:
        """The router."""
        return self.router


@dataclasses.dataclass(kw_only=True, slots=True)
class InternetGateway(InVpc):
    """A gateway through which a VPC's routes lead outside."""


@dataclasses.dataclass(kw_only=True, slots=True)
class InternetGatewayIpPool(Named):
    """An IP pool attached to a gateway: replies leave only from addresses of such pools (semantics 7.4)."""

    gateway: str
    pool: str

    @property
    def parent(self) -> str:
        """The gateway."""
        return self.gateway


@dataclasses.dataclass(kw_only=True, slots=True)
class NetworkInterface(Named):
    """A NIC of an instance. An address of None means that it lacks that family."""

    instance: str
    vpc: str
    subnet: str
    mac: str
    slot: int
    is_primary: bool
    ipv4: ipaddress.IPv4Address | None
    ipv6: ipaddress.IPv6Address | None
    transit_ipv4: tuple[str, ...] = ()
    transit_ipv6: tuple[str, ...] = ()

    @property
    def parent(self) -> str:
        """The instance."""
        return self.instance


@dataclasses.dataclass(kw_only=True, slots=True)
class IpPool(Named):
    """A pool of external addresses. `links` maps a silo's id to whether the pool is its default for the family."""

    version: IpVersion
    pool_type: Literal["unicast", "multicast"] = "unicast"
    ranges: list[tuple[IpAddress, IpAddress]]
    links: dict[str, bool]
    parent: str = "fleet"


@dataclasses.dataclass(kw_only=True, slots=True)
class FloatingIp(InProject):
    """A floating IP.

    Attributes:
        ip: its address.
        pool: the IP pool of that address.
        instance: the instance to which it is attached, also while that begins and while it ends.
        change: the number of the attach or detach that is under way; None when there is none.
    """

    ip: IpAddress
    pool: str
    instance: str | None = None
    change: int | None = None


@dataclasses.dataclass(kw_only=True, slots=True)
class EphemeralIp:
    """An ephemeral address of an instance; `change` is as a floating IP's."""

    id: str
    ip: IpAddress
    pool: str
    instance: str
    change: int | None = None


@dataclasses.dataclass(kw_only=True, slots=True)
class SnatIp:
    """The share of an address through which an instance reaches the outside when it has no address of its own."""

    id: str
    ip: IpAddress
    pool: str
    instance: str
    first_port: int
    last_port: int


@dataclasses.dataclass(kw_only=True, slots=True)
class AntiAffinityGroup(InProject):
    """A group of instances that should not share a sled. `members` are instance ids in the order of joining."""

    policy: Literal["allow", "fail"]
    members: dict[str, None] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(kw_only=True, slots=True)
class SubnetPool(Named):
    """A pool of external subnets. `links` is as an IP pool's."""

    version: IpVersion
    networks: list[IpNetwork]
    links: dict[str, bool]
    parent: str = "fleet"


@dataclasses.dataclass(kw_only=True, slots=True)
class ExternalSubnet(InProject):
    """A routable prefix; `pool_member` is the prefix of the pool that it was cut from, the rest as a floating IP's."""

    subnet: IpNetwork
    pool: str
    pool_member: str
    instance: str | None = None
    change: int | None = None


@dataclasses.dataclass(kw_only=True, slots=True)
class Sled:
    """A sled.

    Attributes:
        name: how the configuration calls it.
        cpus: virtual CPUs it can carry.
        memory_bytes: memory it can give to instances.
        cpu_platform: what an instance may ask for, such as `amd_milan`.
        is_reachable: an unreachable sled leaves its instances as they were, and acts on them end in 503.
        is_in_service: an expunged sled carries nothing and never comes back.
        instances: ids of the instances that have a reservation here.
        reserved_cpus: virtual CPUs of these instances.
        reserved_memory_bytes: memory of these instances.
    """

    id: str
    name: str
    cpus: int
    memory_bytes: int
    cpu_platform: str
    is_reachable: bool = True
    is_in_service: bool = True
    instances: set[str] = dataclasses.field(default_factory=set)
    reserved_cpus: int = 0
    reserved_memory_bytes: int = 0
