"""The shared observation of one project: what all its controllers look at, so that reads do not grow with the fleet.

While anything changes, one list of the project's instances every 1 to 2 seconds serves everybody who waits (a list of
very many takes longer); at rest one every 30 seconds does. The same holds for floating IPs, and, where somebody asks,
for disks and for the interfaces of a subnet. Nothing is read in the background: whoever asks sets the pace, the lists
bound it. How fast all projects of a rack are read together is bounded by the token bucket of the clients
(`capox.oxide.token_bucket`).

Three rules keep it honest:

- A reading that began before an act is never used to judge the act: take `ProjectInventory.now()` after it, and ask
  `fresh_since` for a reading since then.
- A list that fails or does not end properly is no reading. There is no short list.
- "Not found" becomes "gone" only by proof: the object's own id is not found, a complete list that began later does not
  have it, and the project is visible with the same credentials (a 404 may also mean that one may not see it).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from capox.oxide.clock import Clock, LoopClock
from capox.oxide.errors import NotVisible, ObjectNotFound
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment, Reading, SharedList
from capox.oxide.snapshots import (
    AntiAffinityGroupSnapshot,
    DiskSnapshot,
    FloatingIpSnapshot,
    InstanceSnapshot,
    InventorySnapshot,
    NetworkInterfaceSnapshot,
    ObservedAntiAffinityGroup,
    ObservedDisk,
    ObservedFloatingIp,
    ObservedInstance,
    ObservedNetworkInterface,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from uuid import UUID

    from capox.oxide.models.wire import NameOrId
    from capox.oxide.operations import Operations

ReadingT = TypeVar("ReadingT", bound=Reading)


class ProjectInventory:
    """One project, seen with one set of credentials. Shared by everybody who works on it with those.

    Attributes:
        instances: The project's instances.
        floating_ips: Its floating IPs.
        disks: Its disks; read only when somebody asks.
        anti_affinity_groups: Its anti-affinity groups; read only when somebody asks.
    """

    def __init__(
        self,
        client: Operations,
        project: NameOrId,
        *,
        clock: Clock | None = None,
        transition_seconds: float = TRANSITION_SECONDS,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        """Prepare it; nothing is read until somebody asks.

        Args:
            client: The client that has the credentials.
            project: The project's name or id.
            clock: The time that ages and pauses go by; the event loop's when absent.
            transition_seconds: The least time between the beginnings of two readings of one list.
            rest_seconds: The age up to which a reading serves those who wait for nothing.
        """
        self._client = client
        self._project = project
        self._clock = clock or LoopClock()
        self._transition_seconds = transition_seconds
        self._rest_seconds = rest_seconds
        self.instances: SharedList[InstanceSnapshot] = self._shared(self._read_instances)
        self.floating_ips: SharedList[FloatingIpSnapshot] = self._shared(self._read_floating_ips)
        self.disks: SharedList[DiskSnapshot] = self._shared(self._read_disks)
        self.anti_affinity_groups: SharedList[AntiAffinityGroupSnapshot] = self._shared(self._read_groups)
        self._interfaces: dict[UUID, SharedList[NetworkInterfaceSnapshot]] = {}

    def now(self) -> Moment:
        """Take the present moment, to be given to `fresh_since` later."""
        return Moment.now(self._clock)

    def network_interfaces(self, subnet_id: UUID) -> SharedList[NetworkInterfaceSnapshot]:
        """Give the interfaces of a subnet, by the subnet's id; read only when somebody asks."""
        if subnet_id not in self._interfaces:
            self._interfaces[subnet_id] = self._shared(lambda began: self._read_network_interfaces(began, subnet_id))
        return self._interfaces[subnet_id]

    async def is_instance_absent(self, instance_id: UUID) -> bool:
        """Prove that an instance no longer exists.

        Args:
            instance_id: The id it had. A name proves nothing: somebody else may bear it by now.

        Returns:
            True when it is proven. False when the rack still shows it anywhere, if only in the list.

        Raises:
            NotVisible: The project cannot be seen, so nothing is known.
            OxideError: Something could not be read, so nothing is known.
        """
        return await self._is_absent(self._client.instance_view, self.instances, instance_id)

    async def is_disk_absent(self, disk_id: UUID) -> bool:
        """Prove that a disk no longer exists; as `is_instance_absent`."""
        return await self._is_absent(self._client.disk_view, self.disks, disk_id)

    async def is_floating_ip_absent(self, floating_ip_id: UUID) -> bool:
        """Prove that a floating IP no longer exists; as `is_instance_absent`."""
        return await self._is_absent(self._client.floating_ip_view, self.floating_ips, floating_ip_id)

    async def aclose(self) -> None:
        """Give up whatever is being read. Nobody may wait for it any more."""
        lists: list[SharedList[Reading]] = [
            self.instances,
            self.floating_ips,
            self.disks,
            self.anti_affinity_groups,
            *self._interfaces.values(),
        ]
        for each in lists:
            await each.aclose()

    async def _is_absent(
        self,
        view: Callable[[NameOrId], Awaitable[object]],
        shared: SharedList[InventorySnapshot[Any]],
        object_id: UUID,
    ) -> bool:
        try:
            await view(object_id)
        except ObjectNotFound:
            pass
        else:
            return False
        snapshot = await shared.fresh_since(self.now())
        if snapshot.by_id(object_id) is not None:
            return False
        with _no_holder():
            await self._client.project_view(self._project)
        return True

    def _shared(self, read: Callable[[Moment], Awaitable[ReadingT]]) -> SharedList[ReadingT]:
        async def read_visible(began: Moment) -> ReadingT:
            with _no_holder():
                return await read(began)

        return SharedList(
            read_visible,
            clock=self._clock,
            transition_seconds=self._transition_seconds,
            rest_seconds=self._rest_seconds,
        )

    async def _read_instances(self, began: Moment) -> InstanceSnapshot:
        # Each page is slimmed down before the next one comes.
        listed = self._client.instance_list(project=self._project)
        return InventorySnapshot(began, [ObservedInstance.of(each) async for each in listed])

    async def _read_floating_ips(self, began: Moment) -> FloatingIpSnapshot:
        listed = self._client.floating_ip_list(project=self._project)
        return FloatingIpSnapshot(began, [ObservedFloatingIp.of(each) async for each in listed])

    async def _read_disks(self, began: Moment) -> DiskSnapshot:
        listed = self._client.disk_list(project=self._project)
        return InventorySnapshot(began, [ObservedDisk.of(each) async for each in listed])

    async def _read_groups(self, began: Moment) -> AntiAffinityGroupSnapshot:
        listed = self._client.anti_affinity_group_list(project=self._project)
        return InventorySnapshot(began, [ObservedAntiAffinityGroup.of(each) async for each in listed])

    async def _read_network_interfaces(self, began: Moment, subnet_id: UUID) -> NetworkInterfaceSnapshot:
        listed = self._client.vpc_subnet_list_network_interfaces(subnet_id)
        return NetworkInterfaceSnapshot(began, [ObservedNetworkInterface.of(each) async for each in listed])


@contextmanager
def _no_holder() -> Iterator[None]:
    """Say of a list's or a project's own ObjectNotFound what it is: not about anything in it."""
    try:
        yield
    except ObjectNotFound as error:
        raise NotVisible(error.message, operation=error.operation, request_id=error.request_id) from error
