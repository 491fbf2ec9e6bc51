"""What is read of an instance's addresses, and how seldom: reads at rest do not grow with the number of Nodes.

Interfaces change only while their instance is stopped, so they are read again when the instance has changed its state.
Floating IPs come from the project's shared list. Ephemeral addresses can be had from each instance alone; of those a
few are read again in each period, the oldest first, however many Nodes there are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from capox.ccm.address_plan import FAMILIES, Family, cloud_addresses
from capox.ccm.rack import FLOATING_IPS_REST_SECONDS, Project
from capox.kube.core_objects import NodeAddress
from capox.oxide.clock import Clock
from capox.oxide.errors import ResponseError
from capox.oxide.models.external_ips import EphemeralIp
from capox.oxide.models.wire import IpAddress
from capox.oxide.shared_list import REST_SECONDS
from capox.oxide.snapshots import ObservedInstance, ObservedNetworkInterface

__all__ = ["InstanceNetworks"]

EXTERNAL_READS_MAX: Final = 3
"""How many instances' ephemeral addresses are read again in one period."""


@dataclasses.dataclass(slots=True)
class _Memory:
    """What was read of one instance.

    Attributes:
        state_time: When the instance had last changed its state.
        interfaces: Its interfaces.
        ephemeral: Its ephemeral addresses.
        read_at: When those were read, by the clock.
    """

    state_time: datetime.datetime
    interfaces: tuple[ObservedNetworkInterface, ...]
    ephemeral: tuple[IpAddress, ...]
    read_at: float


class InstanceNetworks:
    """The addresses of instances, remembered.

    Args:
        clock: What ages go by.
        period_seconds: After how long ephemeral addresses are read again.
        families: The order of the families.
    """

    def __init__(self, clock: Clock, *, period_seconds: float, families: tuple[Family, Family] = FAMILIES) -> None:
        self._clock = clock
        self._period_seconds = period_seconds
        self._families = families
        self._memory: dict[tuple[object, UUID], _Memory] = {}
        self._reads: list[float] = []

    async def addresses(
        self, project: Project, instance: ObservedInstance, *, is_new: bool = False
    ) -> tuple[NodeAddress, ...]:
        """Give what an instance has, in order, or raise; there is no partial answer (N5).

        Args:
            project: Where it is.
            instance: The instance as the list shows it.
            is_new: Whether everything is read anew.

        Raises:
            OxideError: Something could not be read, or not be understood.
        """
        floating = await project.inventory.floating_ips.recent(FLOATING_IPS_REST_SECONDS)
        key = (project.identity, instance.id)
        known = self._memory.get(key)
        if is_new or known is None or known.state_time != instance.time_run_state_updated:
            interfaces, ephemeral = await asyncio.gather(
                _read_interfaces(project, instance.id), _read_ephemeral(project, instance.id)
            )
            known = _Memory(instance.time_run_state_updated, interfaces, ephemeral, self._clock.monotonic())
            self._memory[key] = known
        elif self._may_read_again(key, known):
            known.ephemeral = await _read_ephemeral(project, instance.id)
            known.read_at = self._clock.monotonic()
        return cloud_addresses(known.interfaces, known.ephemeral, floating.of_instance(instance.id), self._families)

    async def owners(self, project: Project) -> dict[IpAddress, set[UUID]]:
        """Which instances have which private address on their primary interface; in different VPCs several may.

        Raises:
            OxideError: Something could not be read.
        """
        owners: dict[IpAddress, set[UUID]] = {}
        async for vpc in project.client.vpc_list(project=project.id):
            async for subnet in project.client.vpc_subnet_list(vpc=vpc.id):
                for interface in await project.inventory.network_interfaces(subnet.id).recent(REST_SECONDS):
                    for address in interface.addresses if interface.primary else ():
                        owners.setdefault(address, set()).add(interface.instance_id)
        return owners

    def keep(self, instance_ids: Iterable[UUID]) -> None:
        """Forget all other instances."""
        kept = frozenset(instance_ids)
        for key in [key for key in self._memory if key[1] not in kept]:
            del self._memory[key]

    def _may_read_again(self, key: tuple[object, UUID], known: _Memory) -> bool:
        """Whether it is this instance's turn: its addresses are old, few others' are older, and few were read."""
        now = self._clock.monotonic()
        # A little less than the period, which is measured from the end of one look to the next.
        due = now - 0.75 * self._period_seconds
        if known.read_at > due:
            return False
        older = sum(memory.read_at < known.read_at for other, memory in self._memory.items() if other != key)
        self._reads = [read_at for read_at in self._reads if read_at > due]
        if older >= EXTERNAL_READS_MAX or len(self._reads) >= EXTERNAL_READS_MAX:
            return False
        self._reads.append(now)
        return True


async def _read_interfaces(project: Project, instance_id: UUID) -> tuple[ObservedNetworkInterface, ...]:
    listed = await project.client.instance_network_interface_list(instance=instance_id).all()
    interfaces = tuple(ObservedNetworkInterface.of(each) for each in listed)
    for each in interfaces:
        if not each.addresses:
            # An address of a kind that this client does not know: a list without it would not be the whole one.
            raise ResponseError(
                f"interface {each.name} of instance {instance_id} has addresses of an unknown kind",
                operation="instance_network_interface_list",
                status=200,
            )
    return interfaces


async def _read_ephemeral(project: Project, instance_id: UUID) -> tuple[IpAddress, ...]:
    listed = await project.client.instance_external_ip_list(instance_id).all()
    return tuple(each.ip for each in listed if isinstance(each, EphemeralIp))
