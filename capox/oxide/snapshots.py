"""What a reading of a list is kept as: slim, immutable, with the indexes that decisions ask for.

Lists of thousands of objects stay in memory, so only what is decided by is kept. A wire model takes several times as
much.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    from capox.oxide.models import AntiAffinityGroup, Disk, FloatingIp, Instance, InstanceNetworkInterface
    from capox.oxide.models.affinity import AffinityPolicy
    from capox.oxide.models.disks import DiskState
    from capox.oxide.models.instances import InstanceState
    from capox.oxide.models.wire import IpAddress
    from capox.oxide.shared_list import Moment


class Observed(Protocol):
    """What every observed object has."""

    @property
    def id(self) -> UUID:
        """Its id."""
        ...


class Named(Observed, Protocol):
    """What every observed object of a project has."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


ObservedT = TypeVar("ObservedT", bound=Observed)
NamedT = TypeVar("NamedT", bound=Named)


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance in a list. The attributes are those of `Instance`; memory is in bytes."""

    id: UUID
    name: str
    description: str
    hostname: str
    run_state: InstanceState | str
    ncpus: int
    memory_bytes: int
    boot_disk_id: UUID | None
    auto_restart_enabled: bool
    auto_restart_cooldown_expiration: datetime.datetime | None
    time_created: datetime.datetime
    time_run_state_updated: datetime.datetime

    @classmethod
    def of(cls, instance: Instance) -> ObservedInstance:
        """Keep what is needed of a wire model."""
        return cls(
            id=instance.id,
            name=instance.name,
            description=instance.description,
            hostname=instance.hostname,
            run_state=instance.run_state,
            ncpus=instance.ncpus,
            memory_bytes=instance.memory,
            boot_disk_id=instance.boot_disk_id,
            auto_restart_enabled=instance.auto_restart_enabled,
            auto_restart_cooldown_expiration=instance.auto_restart_cooldown_expiration,
            time_created=instance.time_created,
            time_run_state_updated=instance.time_run_state_updated,
        )


@dataclass(frozen=True, slots=True)
class ObservedDisk:
    """A disk in a list. The attributes are those of `Disk`.

    Attributes:
        instance_id: The instance of its state, if that has one.
    """

    id: UUID
    name: str
    description: str
    size_bytes: int
    state: DiskState | str
    instance_id: UUID | None

    @classmethod
    def of(cls, disk: Disk) -> ObservedDisk:
        """Keep what is needed of a wire model."""
        return cls(
            id=disk.id,
            name=disk.name,
            description=disk.description,
            size_bytes=disk.size,
            state=disk.state.state,
            instance_id=disk.state.instance,
        )


@dataclass(frozen=True, slots=True)
class ObservedAntiAffinityGroup:
    """An anti-affinity group in a list. The attributes are those of `AntiAffinityGroup`."""

    id: UUID
    name: str
    description: str
    policy: AffinityPolicy | str

    @classmethod
    def of(cls, group: AntiAffinityGroup) -> ObservedAntiAffinityGroup:
        """Keep what is needed of a wire model."""
        return cls(id=group.id, name=group.name, description=group.description, policy=group.policy)


@dataclass(frozen=True, slots=True)
class ObservedFloatingIp:
    """A floating IP in a list. The attributes are those of `FloatingIp`."""

    id: UUID
    name: str
    description: str
    ip: IpAddress
    ip_pool_id: UUID
    instance_id: UUID | None

    @classmethod
    def of(cls, floating_ip: FloatingIp) -> ObservedFloatingIp:
        """Keep what is needed of a wire model."""
        return cls(
            id=floating_ip.id,
            name=floating_ip.name,
            description=floating_ip.description,
            ip=floating_ip.ip,
            ip_pool_id=floating_ip.ip_pool_id,
            instance_id=floating_ip.instance_id,
        )


@dataclass(frozen=True, slots=True)
class ObservedNetworkInterface:
    """An interface in a subnet's list. The attributes are those of `InstanceNetworkInterface`."""

    id: UUID
    name: str
    instance_id: UUID
    primary: bool
    addresses: tuple[IpAddress, ...]

    @classmethod
    def of(cls, interface: InstanceNetworkInterface) -> ObservedNetworkInterface:
        """Keep what is needed of a wire model."""
        return cls(
            id=interface.id,
            name=interface.name,
            instance_id=interface.instance_id,
            primary=interface.primary,
            addresses=interface.addresses,
        )


class AtInstance(Protocol):
    """What every observed object has that can be at an instance."""

    @property
    def instance_id(self) -> UUID | None:
        """The instance; None when it is at none."""
        ...


AtInstanceT = TypeVar("AtInstanceT", bound=AtInstance)


def _grouped_by_instance(objects: Iterable[AtInstanceT]) -> dict[UUID, tuple[AtInstanceT, ...]]:
    """Index objects by the instance that they are at; those that are at none are left out."""
    grouped: dict[UUID, tuple[AtInstanceT, ...]] = {}
    for each in objects:
        if each.instance_id is not None:
            grouped[each.instance_id] = (*grouped.get(each.instance_id, ()), each)
    return grouped


class Snapshot(Generic[ObservedT]):
    """A whole list as it was read: everything that existed during the whole reading is in it.

    That something is *not* in it proves its absence only for what was there when the reading began; see
    `capox.oxide.inventory.ProjectInventory`.
    """

    __slots__ = ("_by_id", "began")

    began: Moment
    """When the reading began. It says nothing about acts after this moment."""

    def __init__(self, began: Moment, objects: Iterable[ObservedT]) -> None:
        """Index a list.

        Args:
            began: When its reading began.
            objects: All of it.
        """
        self.began = began
        self._by_id = {each.id: each for each in objects}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ObservedT]:
        return iter(self._by_id.values())

    def by_id(self, object_id: UUID | str) -> ObservedT | None:
        """Find by id.

        Raises:
            ValueError: The text is no UUID: a typing mistake must not look like an absent object.
        """
        return self._by_id.get(object_id if isinstance(object_id, UUID) else UUID(object_id))


class InventorySnapshot(Snapshot[NamedT]):
    """A project's list of one kind, whose names are unique."""

    __slots__ = ("_by_name",)

    def __init__(self, began: Moment, objects: Iterable[NamedT]) -> None:
        """Index a list; see `Snapshot`."""
        super().__init__(began, objects)
        self._by_name = {each.name: each for each in self}

    def by_name(self, name: str) -> NamedT | None:
        """Find by name. A name is an identity only together with an owner's mark or a recorded id."""
        return self._by_name.get(name)


InstanceSnapshot: TypeAlias = InventorySnapshot[ObservedInstance]
"""A project's instances."""

AntiAffinityGroupSnapshot: TypeAlias = InventorySnapshot[ObservedAntiAffinityGroup]
"""A project's anti-affinity groups."""

DiskSnapshot: TypeAlias = InventorySnapshot[ObservedDisk]
"""A project's disks."""


class FloatingIpSnapshot(InventorySnapshot[ObservedFloatingIp]):
    """A project's floating IPs."""

    __slots__ = ("_by_address", "_by_instance")

    def __init__(self, began: Moment, objects: Iterable[ObservedFloatingIp]) -> None:
        """Index a list; see `Snapshot`."""
        super().__init__(began, objects)
        self._by_address = {each.ip: each for each in self}
        self._by_instance = _grouped_by_instance(self)

    def by_address(self, address: IpAddress | str) -> ObservedFloatingIp | None:
        """Find by address, in whatever spelling.

        Raises:
            ValueError: The text is no address.
        """
        return self._by_address.get(ip_address(address) if isinstance(address, str) else address)

    def of_instance(self, instance_id: UUID) -> tuple[ObservedFloatingIp, ...]:
        """Give the floating IPs that are attached to an instance."""
        return self._by_instance.get(instance_id, ())


class NetworkInterfaceSnapshot(Snapshot[ObservedNetworkInterface]):
    """A subnet's interfaces. Their names are unique only within an instance: look them up by instance."""

    __slots__ = ("_by_instance",)

    def __init__(self, began: Moment, objects: Iterable[ObservedNetworkInterface]) -> None:
        """Index a list; see `Snapshot`."""
        super().__init__(began, objects)
        self._by_instance = _grouped_by_instance(self)

    def of_instance(self, instance_id: UUID) -> tuple[ObservedNetworkInterface, ...]:
        """Give an instance's interfaces in this subnet; at most one, as the rack has it."""
        return self._by_instance.get(instance_id, ())
