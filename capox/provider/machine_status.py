"""What an OxideMachine's status says: pure, from the facts of a pass to the whole status.

Every condition is derived here, on every pass, from facts alone. Nothing in a status counts, ticks or tells the time of
a pass: an object at rest is not written (C-CO-7).
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Final

from capox.api.v1alpha1 import (
    ConditionType,
    DiskRecord,
    Initialization,
    MachineAddress,
    OxideMachine,
    OxideMachineStatus,
    Reason,
    SecretReference,
    instance_reason,
)
from capox.kube.conditions import Finding, get_condition, set_condition
from capox.oxide.models import InstanceState
from capox.oxide.snapshots import ObservedInstance
from capox.provider.machine_plan import Blocked, Finished, MachineStep, Vanished, Wait
from capox.provider.trouble import Trouble

__all__ = ["MachineFacts", "machine_status", "paused_status"]

_WELL: Final = frozenset({InstanceState.RUNNING, InstanceState.REBOOTING, InstanceState.MIGRATING})


@dataclasses.dataclass(slots=True, kw_only=True)
class MachineFacts:
    """What a pass found out.

    Attributes:
        project: The project of the cluster; None when it is not known.
        credentials_ref: The Secret of the cluster, its namespace filled in; None when it is not known.
        instance: The instance as last seen; None when there is none or nothing was seen.
        was_observed: Whether the rack was looked at with success.
        addresses: The instance's addresses; None when they were not read.
        disks: The disks that are the machine's; None when they were not recorded.
        step: What the planner said last.
        bootstrap: Why there is no user data; None when there is, or when it is not needed any more.
        trouble: Why the pass ended early; None when it did not.
    """

    project: str | None = None
    credentials_ref: SecretReference | None = None
    instance: ObservedInstance | None = None
    was_observed: bool = False
    addresses: tuple[MachineAddress, ...] | None = None
    disks: tuple[DiskRecord, ...] | None = None
    step: MachineStep | None = None
    bootstrap: Trouble | None = None
    trouble: Trouble | None = None


def machine_status(machine: OxideMachine, facts: MachineFacts, now: datetime.datetime) -> OxideMachineStatus:
    """The status after a pass.

    Args:
        machine: The object as it was last read or written.
        facts: What the pass found out.
        now: For the times of transitions.
    """
    before = machine.status
    addresses = facts.addresses if facts.addresses is not None else before.addresses
    is_provisioned = before.initialization.provisioned or _is_provisioned(machine, facts, addresses)
    findings = [
        Finding(ConditionType.PAUSED, "False", Reason.NOT_PAUSED),
        *_deleting(machine, facts),
        *_bootstrap(machine, facts),
        *_provisioned(facts, is_provisioned=bool(is_provisioned)),
        _ready(machine, facts),
    ]
    conditions = before.conditions
    for finding in findings:
        conditions = set_condition(
            conditions, finding, observed_generation=machine.metadata.generation or None, now=now
        )
    return before.model_copy(
        update={
            "initialization": Initialization(provisioned=True) if is_provisioned else before.initialization,
            "addresses": addresses,
            "disks": facts.disks if facts.disks is not None else before.disks,
            "project": facts.project or before.project,
            "credentials_ref": facts.credentials_ref or before.credentials_ref,
            "observed_generation": before.observed_generation
            if facts.trouble is not None
            else machine.metadata.generation or None,
            "conditions": conditions,
        }
    )


def paused_status(machine: OxideMachine, causes: tuple[str, ...], now: datetime.datetime) -> OxideMachineStatus:
    """The status of a machine that is left alone: only the condition Paused changes (C-CO-4)."""
    conditions = set_condition(
        machine.status.conditions,
        Finding(ConditionType.PAUSED, "True", Reason.PAUSED, "; ".join(causes)),
        observed_generation=machine.metadata.generation or None,
        now=now,
    )
    return machine.status.model_copy(update={"conditions": conditions})


def _is_provisioned(machine: OxideMachine, facts: MachineFacts, addresses: tuple[MachineAddress, ...]) -> bool:
    """Whether Cluster API may count on the machine: recorded, running, and with an address (C-IM-1)."""
    return (
        machine.spec.provider_id is not None
        and facts.instance is not None
        and facts.instance.run_state in _WELL
        and any(address.type == "InternalIP" for address in addresses)
    )


def _deleting(machine: OxideMachine, facts: MachineFacts) -> list[Finding]:
    if not machine.metadata.is_being_deleted:
        return [Finding(ConditionType.DELETING, "False", Reason.NOT_DELETING)]
    return [Finding(ConditionType.DELETING, "True", Reason.DELETING, _waiting_for(facts))]


def _waiting_for(facts: MachineFacts) -> str:
    if facts.trouble is not None:
        return facts.trouble.message
    match facts.step:
        case Wait(message) | Blocked(message=message):
            return message
        case Finished():
            return ""
        case _:
            return "removing the instance and its disks"


def _bootstrap(machine: OxideMachine, facts: MachineFacts) -> list[Finding]:
    if machine.metadata.is_being_deleted:
        return []
    if facts.bootstrap is not None:
        return [Finding(ConditionType.BOOTSTRAP_DATA_READY, "False", facts.bootstrap.reason, facts.bootstrap.message)]
    if machine.spec.provider_id is None and not facts.was_observed:
        return []
    return [Finding(ConditionType.BOOTSTRAP_DATA_READY, "True", "BootstrapDataReady")]


def _provisioned(facts: MachineFacts, *, is_provisioned: bool) -> list[Finding]:
    if isinstance(facts.step, Vanished):
        return [Finding(ConditionType.INSTANCE_PROVISIONED, "False", Reason.INSTANCE_NOT_FOUND, _VANISHED)]
    if is_provisioned:
        return [Finding(ConditionType.INSTANCE_PROVISIONED, "True", "InstanceProvisioned")]
    return [Finding(ConditionType.INSTANCE_PROVISIONED, "False", "Provisioning", "the instance is not running yet")]


_VANISHED: Final = (
    "the instance was on the rack and is gone; it is not made again, because its disks and its identity went with it; "
    "delete the Machine to have it replaced"
)


def _ready(machine: OxideMachine, facts: MachineFacts) -> Finding:
    """The summary of the machine's whole life (C-IM-14). What could not be read leaves it as it is (C-IM-11)."""
    if machine.metadata.is_being_deleted:
        reason = Reason.INSTANCE_DELETED if isinstance(facts.step, Finished) else Reason.DELETING
        return Finding(ConditionType.READY, "False", reason, _waiting_for(facts))
    trouble = facts.trouble or facts.bootstrap
    if trouble is not None:
        before = get_condition(machine.status.conditions, ConditionType.READY)
        if trouble.is_passing and before is not None and before.status == "True":
            return Finding(ConditionType.READY, "True", before.reason, before.message)
        return Finding(ConditionType.READY, "False", trouble.reason, trouble.message)
    match facts.step:
        case Vanished():
            return Finding(ConditionType.READY, "False", Reason.INSTANCE_NOT_FOUND, _VANISHED)
        case Blocked(reason, message):
            return Finding(ConditionType.READY, "False", reason, message)
        case _:
            return _ready_of(facts.instance)


def _ready_of(instance: ObservedInstance | None) -> Finding:
    if instance is None:
        return Finding(ConditionType.READY, "False", "Provisioning", "the instance is being made")
    state = str(instance.run_state)
    if instance.run_state in _WELL:
        return Finding(ConditionType.READY, "True", instance_reason(state))
    return Finding(ConditionType.READY, "False", instance_reason(state), f"the instance is {state}")
