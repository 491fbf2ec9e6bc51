"""What a pass over one machine knows and finds out, and the few ways in which it writes that down."""

from __future__ import annotations

import dataclasses
from typing import Final
from uuid import UUID

import structlog

from capox.api.v1alpha1 import DiskRecord, OxideMachine
from capox.kube.workqueue import Request
from capox.oxide.models import Instance
from capox.oxide.snapshots import ObservedInstance
from capox.provider import names
from capox.provider.deps import Deps
from capox.provider.gate import MachineOwners
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.machine_plan import Identity
from capox.provider.machine_rack import Acts, MachineRack
from capox.provider.machine_status import MachineFacts
from capox.provider.racks import Project
from capox.provider.trouble import Trouble
from capox.provider_id import format_provider_id, parse_provider_id

__all__ = ["REFUSED_REQUEUE_SECONDS", "MachineScope"]

REFUSED_REQUEUE_SECONDS: Final = 120.0
"""When to try again what a person has to put right, on the rack or in the spec."""


@dataclasses.dataclass(slots=True, kw_only=True)
class MachineScope:
    """What a pass works with.

    Attributes:
        deps: What the reconciler was made with.
        machine: The OxideMachine as it was last read or written.
        owners: Its owners, as they were just read.
        acts: What this process has done to it before.
        facts: What was found out so far.
        retry_after_seconds: When to try again what was refused; None where nothing was.
    """

    deps: Deps
    machine: OxideMachine
    owners: MachineOwners
    acts: Acts
    facts: MachineFacts = dataclasses.field(default_factory=MachineFacts)
    retry_after_seconds: float | None = None

    @property
    def key(self) -> Request:
        """The machine's key."""
        return Request(self.machine.metadata.namespace, self.machine.metadata.name)

    @property
    def identity(self) -> Identity:
        """Which things on the rack are the machine's."""
        metadata, recorded = self.machine.metadata, self.machine.spec.provider_id
        oxide_cluster = self.owners.oxide_cluster
        return Identity(
            instance_id=UUID(parse_provider_id(recorded)) if recorded is not None else None,
            name=names.instance_name(metadata.namespace, metadata.name),
            uid=metadata.uid,
            owner=(metadata.namespace, metadata.name),
            cluster_id=(oxide_cluster.spec.cluster_id or "") if oxide_cluster is not None else "",
        )

    def rack(self, project: Project) -> MachineRack:
        """The machine's view of its project, as its identity is now."""
        return MachineRack(project, self.machine, self.identity, self.acts)

    def acted(self, rack: MachineRack, instance: Instance) -> None:
        """Remember what was just done, and the instance that the rack answered with."""
        rack.acted()
        self.facts.instance = ObservedInstance.of(instance)

    def refuse(self, reason: str, message: str) -> None:
        """End the pass with something that a person has to put right."""
        self.facts.trouble = Trouble(reason, message)
        self.retry_after_seconds = REFUSED_REQUEUE_SECONDS
        self.deps.recorder.warning(self.machine, reason, message)

    def say(self, reason: str, message: str) -> None:
        """Tell what was done."""
        structlog.get_logger().info("Acting on the rack", OxideMachine=str(self.key), reason=reason, act=message)
        self.deps.recorder.normal(self.machine, reason, message)

    async def record_instance(self, instance_id: UUID) -> None:
        """Store the provider ID. It is set once, so no precondition is needed, and none could make it fail."""
        metadata = self.machine.metadata
        patch = {"spec": {"providerID": format_provider_id(str(instance_id))}}
        self.machine = await self.deps.kube.patch(OXIDE_MACHINES, metadata.namespace, metadata.name, patch)

    async def record_disks(self, disks: tuple[DiskRecord, ...]) -> None:
        """Store which disks are ours, before anything is destroyed."""
        metadata = self.machine.metadata
        self.facts.disks = disks
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version},
            "status": {"disks": [disk.dump() for disk in disks]},
        }
        self.machine = await self.deps.kube.patch(
            OXIDE_MACHINES, metadata.namespace, metadata.name, patch, subresource="status"
        )
