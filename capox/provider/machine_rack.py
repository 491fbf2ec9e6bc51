"""One machine on the rack: what is seen of it, and the one call that a step is.

Lists are shared with every other machine of the project; a single object is read by id only to prove its absence. What
this process has just done is remembered, so that no reading from before is used to judge it.
"""

from __future__ import annotations

import dataclasses
from uuid import UUID

from capox.api.v1alpha1 import DiskRecord, MachineAddress, OxideCluster, OxideMachine
from capox.ownership import is_made_for, parse_mark
from capox.oxide import models
from capox.oxide.errors import ObjectNotFound
from capox.oxide.shared_list import TRANSITION_SECONDS, Moment, SharedList
from capox.oxide.snapshots import InstanceSnapshot, NetworkInterfaceSnapshot, ObservedInstance
from capox.provider import names
from capox.provider.endpoint_address import is_endpoint_of
from capox.provider.machine_instance import DEFAULT_NETWORK
from capox.provider.machine_plan import Identity, Observation
from capox.provider.racks import Project
from capox.provider.unanswered import CREATE_SETTLES_SECONDS

__all__ = ["Acts", "MachineRack"]


@dataclasses.dataclass(slots=True)
class Acts:
    """What this process has done to a machine; empty after a restart, when every reading is newer than all acts.

    Attributes:
        last: Right after the last act was answered, or given up; readings that began before say nothing about it.
        unanswered_at: On the clock, when an instance_create was given up whose outcome is not known.
        starts: How often the instance was started without staying up since.
        started_at: On the clock, when it was last started.
        is_gone: Whether the recorded instance was proven to be gone; an id never comes back.
    """

    last: Moment | None = None
    unanswered_at: float | None = None
    starts: int = 0
    started_at: float | None = None
    is_gone: bool = False


class MachineRack:
    """A machine's view of its project.

    Args:
        project: The project.
        machine: The OxideMachine.
        identity: Which things are the machine's.
        acts: What this process has done; updated by whoever acts.
    """

    def __init__(self, project: Project, machine: OxideMachine, identity: Identity, acts: Acts) -> None:
        self._project = project
        self._machine = machine
        self._identity = identity
        self._acts = acts

    async def instances(self, max_age_seconds: float) -> InstanceSnapshot:
        """A reading of the project's instances that is new enough, and newer than the last act.

        Raises:
            OxideError: It failed.
        """
        return await self._project.inventory.instances.recent(max_age_seconds, after=self._acts.last)

    async def observe_present(self, max_age_seconds: float) -> Observation:
        """What there is of a machine that is to exist.

        Raises:
            OxideError: It could not be found out.
        """
        reading = await self.instances(max_age_seconds)
        instance = self._find(reading)
        proven = instance is None and (self._identity.instance_id is None or await self._is_gone(reading))
        return Observation(instance=instance, is_absence_proven=proven)

    async def observe_absent(self, started_seconds: float, cluster: OxideCluster | None) -> Observation:
        """What is left of a machine that is to go.

        Args:
            started_seconds: When this process began: what an earlier one sent just before may still be under way.
            cluster: The OxideCluster, whose endpoint may be on the instance; None when it is gone.

        Raises:
            OxideError: It could not be found out.
        """
        reading = await self.instances(TRANSITION_SECONDS)
        instance = self._find(reading)
        if self._identity.instance_id is None:
            # Without an id, absence is a matter of the name, and a request under way may still bring it.
            since = self._acts.unanswered_at
            last_possible = started_seconds if since is None else since
            proven = instance is None and reading.began.seconds - last_possible >= CREATE_SETTLES_SECONDS
        else:
            proven = instance is None and await self._is_gone(reading)
            if proven and self._acts.unanswered_at is not None:
                # An earlier request that was given up may have been carried out, beside the one that was recorded.
                instance = self._own_namesake(reading)
                settled = reading.began.seconds - self._acts.unanswered_at >= CREATE_SETTLES_SECONDS
                proven = instance is None and settled
        disks: tuple[models.Disk, ...] | None = None
        if self._machine.status.disks is not None or proven:
            disks = await self._recorded_disks() if instance is None else ()
        return Observation(
            instance=instance,
            is_absence_proven=proven,
            recorded_disks=disks,
            is_endpoint_holder=instance is not None and await self._is_endpoint_holder(instance, cluster),
        )

    async def attached_disks(self, instance_id: UUID) -> tuple[DiskRecord, ...]:
        """The machine's own disks among those attached to its instance, but for those that are to be retained.

        Its own are those that bear the deterministic names. All machines that go at the same time look at one list.

        Raises:
            OxideError: They could not be read, or the instance is gone.
        """
        own = self._disk_names()
        reading = await self._project.inventory.disks.fresh_since(self._project.inventory.now())
        found = [
            DiskRecord(id=str(disk.id), name=disk.name)
            for disk in map(reading.by_name, sorted(own))
            if disk is not None and disk.instance_id == instance_id
        ]
        if len(found) < len(own):
            # Somebody has taken one off, or has deleted the instance, which takes off all: nothing follows from that.
            await self._project.client.instance_view(instance_id)
        return tuple(found)

    async def addresses(self, instance: ObservedInstance, cluster: OxideCluster) -> tuple[MachineAddress, ...]:
        """The instance's addresses: host name, private addresses with the primary NIC first, external ones.

        Raises:
            OxideError: They could not be read.
        """
        found = [MachineAddress(type="Hostname", address=instance.hostname)]
        for shared in await self._interface_lists(cluster):
            reading = await shared.recent()
            if not reading.of_instance(instance.id):
                reading = await shared.fresh_since(self._acts.last or self._project.inventory.now())
            found += [
                MachineAddress(type="InternalIP", address=str(address))
                for interface in reading.of_instance(instance.id)
                for address in interface.addresses
            ]
        if self._machine.spec.ip_pool is not None:
            found += [
                MachineAddress(type="ExternalIP", address=str(external.ip))
                for external in await self._project.client.instance_external_ip_list(instance.id).all()
                if isinstance(external, models.EphemeralIp)
            ]
        return tuple(found)

    async def read_interfaces(self, cluster: OxideCluster, since: Moment) -> None:
        """Have the lists that `addresses` looks at read after a moment.

        Raises:
            OxideError: They could not be read.
        """
        for shared in await self._interface_lists(cluster):
            await shared.recent(after=since)

    async def _interface_lists(self, cluster: OxideCluster) -> list[SharedList[NetworkInterfaceSnapshot]]:
        """The interfaces of each of the machine's subnets, that of the primary NIC first."""
        vpc = cluster.spec.vpc or DEFAULT_NETWORK
        primary = self._machine.spec.subnet or cluster.spec.subnet or DEFAULT_NETWORK
        subnets = [primary, *(interface.subnet for interface in self._machine.spec.network_interfaces)]
        return [
            self._project.inventory.network_interfaces(await self._project.subnet_id(vpc, subnet)) for subnet in subnets
        ]

    def acted(self) -> None:
        """Remember that something was done just now."""
        self._acts.last = self._project.inventory.now()

    def _find(self, reading: InstanceSnapshot) -> ObservedInstance | None:
        if self._identity.instance_id is not None:
            return reading.by_id(self._identity.instance_id)
        return reading.by_name(self._identity.name)

    def _own_namesake(self, reading: InstanceSnapshot) -> ObservedInstance | None:
        """An instance beside the recorded one that was made for this very object."""
        found = reading.by_name(self._identity.name)
        mark = parse_mark(found.description) if found is not None else None
        return found if mark is not None and mark.uid == self._identity.uid else None

    async def _is_gone(self, reading: InstanceSnapshot) -> bool:
        """Whether the recorded instance is gone for certain.

        A complete list without it shows that the project could be seen; its own id not being found shows that the list
        was not wrong (C-IM-11).
        """
        assert self._identity.instance_id is not None
        if reading.by_id(self._identity.instance_id) is not None:
            return False
        if not self._acts.is_gone:
            try:
                await self._project.client.instance_view(self._identity.instance_id)
            except ObjectNotFound:
                self._acts.is_gone = True
        return self._acts.is_gone

    async def _recorded_disks(self) -> tuple[models.Disk, ...]:
        """Those of the machine's disks that still exist."""
        records = self._machine.status.disks
        if records is None or self._acts.unanswered_at is not None:
            # Of a second instance, made by a request that was given up, no disks were recorded.
            return await self._marked_disks()
        found = []
        missing = []
        for record in records:
            try:
                found.append(await self._project.client.disk_view(UUID(record.id)))
            except ObjectNotFound:
                missing.append(UUID(record.id))
        if missing and not found:
            # The last word on absence is a list: an id alone can be hidden. One that began later than the id was asked
            # for: an earlier one would show the disk for ever if its deletion was carried out and not answered.
            reading = await self._project.inventory.disks.fresh_since(self._project.inventory.now())
            hidden = [disk_id for disk_id in missing if reading.by_id(disk_id) is not None]
            found = [await self._project.client.disk_view(disk_id) for disk_id in hidden]
        return tuple(found)

    async def _marked_disks(self) -> tuple[models.Disk, ...]:
        """Disks that nobody recorded, found by their names and taken for ours only by their marks."""
        own = self._disk_names()
        reading = await self._project.inventory.disks.fresh_since(self._project.inventory.now())
        found = []
        for name in own:
            disk = reading.by_name(name)
            mark = parse_mark(disk.description) if disk is not None else None
            if disk is not None and mark is not None and is_made_for(mark, self._identity.mark):
                found.append(await self._project.client.disk_view(disk.id))
        return tuple(found)

    async def _is_endpoint_holder(self, instance: ObservedInstance, cluster: OxideCluster | None) -> bool:
        """Whether the floating IP of the cluster's endpoint is still on the instance."""
        if cluster is None or cluster.spec.endpoint_mode == "External":
            return False
        reading = await self._project.inventory.floating_ips.recent()
        return any(is_endpoint_of(floating_ip, cluster) for floating_ip in reading.of_instance(instance.id))

    def _disk_names(self) -> frozenset[str]:
        metadata = self._machine.metadata
        data = (
            names.data_disk_name(index, metadata.namespace, metadata.name)
            for index, disk in enumerate(self._machine.spec.data_disks)
            if disk.reclaim_policy != "Retain"
        )
        return frozenset({names.boot_disk_name(metadata.namespace, metadata.name), *data})
