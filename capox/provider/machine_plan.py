"""What to do next about one machine: pure, from what is wanted and what was seen.

A plan is one step. It is made anew from a fresh observation after every step, so crash, restart, a lost reply and a
duplicate event are one case. The planner never sees a secret: what an instance is made of is put together by
`machine_instance` only when the step is to make one.
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias
from uuid import UUID

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, is_made_for, parse_mark
from capox.oxide.models import Disk, DiskState, InstanceState
from capox.oxide.snapshots import ObservedInstance
from capox.provider.steps import Blocked, Finished, Steady, Wait

__all__ = [
    "Blocked",
    "Create",
    "DeleteDisk",
    "DeleteInstance",
    "Finished",
    "Identity",
    "MachineStep",
    "Observation",
    "RecordDisks",
    "RecordInstance",
    "Start",
    "Steady",
    "Stop",
    "Vanished",
    "Wait",
    "plan_absent",
    "plan_present",
    "whose",
]

_STARTS_OR_RUNS: Final = frozenset(
    {
        InstanceState.STARTING,
        InstanceState.RUNNING,
        InstanceState.REBOOTING,
        InstanceState.MIGRATING,
        InstanceState.REPAIRING,
    }
)
_STANDS_STILL: Final = frozenset({InstanceState.STOPPED, InstanceState.FAILED})
_DISK_IS_LOOSE: Final = frozenset({DiskState.DETACHED, DiskState.FAULTED})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which things on the rack are a machine's.

    Attributes:
        instance_id: As recorded in `spec.providerID`; None before that.
        name: The deterministic name of the instance.
        uid: The OxideMachine's UID, which the owner mark of its instance has.
        owner: Namespace and name of the OxideMachine.
        cluster_id: `spec.clusterID` of the OxideCluster; empty where it is not known.
    """

    instance_id: UUID | None
    name: str
    uid: str
    owner: tuple[str, str]
    cluster_id: str = ""

    @property
    def mark(self) -> OwnerMark:
        """The owner mark of everything that is made for the machine."""
        namespace, name = self.owner
        return OwnerMark(kind="OxideMachine", namespace=namespace, name=name, uid=self.uid, cluster_id=self.cluster_id)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen on the rack.

    Attributes:
        instance: The recorded instance; without a recorded id, the instance that has the machine's name.
        is_absence_proven: Whether `instance` being None means that there is none and that none can still appear: the
            reading was complete, began after the machine's last act, and no request to make it is under way.
        recorded_disks: For deletion, the disks of `status.disks` that still exist; None when none were recorded yet.
        is_endpoint_holder: Whether the cluster's floating IP is on the instance and ought to move before it goes.
    """

    instance: ObservedInstance | None
    is_absence_proven: bool
    recorded_disks: tuple[Disk, ...] | None = None
    is_endpoint_holder: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """Make the instance, with all that belongs to it, in one request."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordInstance:
    """Write the id of an instance that is provably ours into `spec.providerID`."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Start the instance."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """Stop the instance, in order to delete it."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class RecordDisks:
    """Write down which attached disks are the machine's, before anything is destroyed."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Delete the instance, which stands still."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteDisk:
    """Delete one of the recorded disks."""

    disk_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class Vanished:
    """The recorded instance is gone. It is not made again under the same object (C-IM-9)."""


MachineStep: TypeAlias = (
    Create
    | RecordInstance
    | Start
    | Stop
    | RecordDisks
    | DeleteInstance
    | DeleteDisk
    | Wait
    | Blocked
    | Vanished
    | Steady
    | Finished
)


def whose(instance: ObservedInstance, identity: Identity) -> str | None:
    """Who owns an instance that is recorded or has the machine's name: None when the machine does, else words.

    A recorded id alone proves nothing, since anybody may write one: the mark has to name this object. Its UID may be
    another one then, because a move gives new ones. Oxide's own provider leaves no marks: there the deterministic name
    has to fit the recorded id. Without a recorded id only the very same object's mark makes an instance ours.
    """
    is_recorded = identity.instance_id is not None and instance.id == identity.instance_id
    mark = parse_mark(instance.description)
    if mark is None:
        return None if is_recorded and instance.name == identity.name else "it has no owner mark of capox"
    is_very_object = mark.kind == "OxideMachine" and mark.uid == identity.uid
    if is_very_object or (is_recorded and is_made_for(mark, identity.mark, is_recorded=True)):
        return None
    return f"its owner mark names {mark.kind} {mark.namespace}/{mark.name} with UID {mark.uid or 'unknown'}"


def plan_present(identity: Identity, seen: Observation, *, keeps_running: bool) -> MachineStep:
    """The next step towards an instance that is there and, if asked for, runs."""
    instance = seen.instance
    if instance is None:
        if not seen.is_absence_proven:
            return Wait("finding out whether the instance exists")
        return Create() if identity.instance_id is None else Vanished()
    stranger = whose(instance, identity)
    if stranger is not None:
        return Blocked(
            Reason.NAME_CONFLICT,
            f"instance {instance.name} ({instance.id}) exists and is not this object's: {stranger}; "
            "rename the Machine, use another project, or delete that instance",
        )
    if identity.instance_id is None:
        return RecordInstance(instance.id)
    match instance.run_state:
        case InstanceState.STOPPED if keeps_running:
            return Start(instance.id)
        case InstanceState.CREATING | InstanceState.STARTING | InstanceState.STOPPING | InstanceState.REBOOTING:
            return Wait(f"the instance is {instance.run_state}")
        case _:
            return Steady()


def plan_absent(identity: Identity, seen: Observation) -> MachineStep:
    """The next step towards nothing being left of the machine."""
    instance = seen.instance
    if instance is not None and whose(instance, identity) is not None:
        # Somebody else's instance under our name was never ours to delete.
        instance = None
    elif instance is None and not seen.is_absence_proven:
        return Wait("finding out whether the instance exists")
    if instance is None:
        return _plan_disks(seen.recorded_disks or ())
    if identity.instance_id is None:
        return RecordInstance(instance.id)
    if seen.is_endpoint_holder:
        return Wait("the control plane endpoint is still on the instance; it moves to another one first")
    if seen.recorded_disks is None and instance.run_state != InstanceState.CREATING:
        # While it is being made its disks are not all there yet, and one that is not recorded would be left.
        return RecordDisks(instance.id)
    if instance.run_state in _STANDS_STILL:
        return DeleteInstance(instance.id)
    if instance.run_state in _STARTS_OR_RUNS:
        return Stop(instance.id)
    return Wait(f"the instance is {instance.run_state}; it can be stopped and deleted later")


def _plan_disks(disks: tuple[Disk, ...]) -> MachineStep:
    for disk in disks:
        if disk.state.state in _DISK_IS_LOOSE:
            return DeleteDisk(disk.id)
    for disk in disks:
        holder = disk.state.instance
        if holder is not None:
            return Blocked(
                Reason.DELETING,
                f"disk {disk.name} ({disk.id}) is attached to another instance ({holder}); detach it there, "
                "it is deleted then",
            )
        return Wait(f"disk {disk.name} is {disk.state.state}; it can be deleted later")
    return Finished()
