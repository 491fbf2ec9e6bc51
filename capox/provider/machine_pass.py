"""One pass over one machine: observe, plan, one rack call, observe again, until there is nothing more to do now.

Whatever ends a pass early comes out as data in the scope's facts, so that the status can tell it; only what trying
again may settle comes out as an error, after the status was written.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from capox.api.v1alpha1 import MACHINE_FINALIZER, ConditionType, Reason, SecretReference
from capox.kube.conditions import is_condition_true
from capox.oxide import errors as oxide
from capox.oxide.models import InstanceState
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot, ObservedInstance
from capox.provider import gate, machine_creation
from capox.provider import machine_plan as plan
from capox.provider.credentials import CredentialsError, read_credentials
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.machine_rack import MachineRack
from capox.provider.machine_scope import REFUSED_REQUEUE_SECONDS, MachineScope
from capox.provider.racks import Interest, Project, Sight
from capox.provider.trouble import of_rack_error

__all__ = ["CAPACITY_REQUEUE_SECONDS", "MachinePass"]

STEPS_LIMIT: Final = 16
"""More steps than any machine needs; a plan that goes round in circles must not keep a worker."""

CAPACITY_REQUEUE_SECONDS: Final = 60.0
"""When to try again where there was no room: waiting helps, hurrying does not."""

ENDPOINT_WAIT_SECONDS: Final = 60.0
"""How long a machine that is deleted waits for the endpoint to move to another one (M-32)."""

RESTART_FIRST_SECONDS: Final = 10.0
"""The wait between two starts of an instance that does not stay up; it doubles each time."""

RESTART_CAP_SECONDS: Final = 600.0
"""The longest wait between two starts; an instance that ran for longer has recovered."""


class MachinePass:
    """The pass.

    Args:
        scope: The machine as it was just read, and what is known of it.
        started_seconds: When this process began, on the clock.
    """

    def __init__(self, scope: MachineScope, started_seconds: float) -> None:
        self._scope = scope
        self._started_seconds = started_seconds
        self._project: Project | None = None

    async def converge(self) -> oxide.OxideError | None:
        """Bring the rack as far as it goes now.

        Returns:
            The error of the rack that ended the pass and that trying again may settle; None when there was none.

        Raises:
            KubeError: Kubernetes could not be read or written.
        """
        try:
            project = await self._enter_project()
            if project is None:
                return None
            if self._scope.machine.metadata.is_being_deleted:
                await self._converge_absent(project)
            else:
                await self._converge_present(project)
        except oxide.OxideError as error:
            return self._judge(error)
        return None

    def expect(self, controller: str, wake: Callable[[], None]) -> None:
        """Have the machine looked at when its instance changes."""
        if self._project is None:
            return
        scope = self._scope
        last, identity, sight = scope.acts.last, scope.identity, _sight(scope.facts.instance)

        def look(instances: InstanceSnapshot, floating_ips: FloatingIpSnapshot) -> Sight:
            del floating_ips
            if last is not None and instances.began <= last:
                # From before our own act: it has nothing to tell.
                return sight
            recorded = identity.instance_id
            return _sight(instances.by_id(recorded) if recorded else instances.by_name(identity.name))

        is_in_transition = not isinstance(scope.facts.step, plan.Steady | plan.Vanished | plan.Blocked)
        interest = Interest(look, sight, is_in_transition, wake, self._address_reader(self._project))
        scope.deps.racks.expect(self._project, controller, scope.key, interest)

    def forget(self, controller: str) -> None:
        """Expect nothing any more."""
        self._scope.deps.racks.forget(controller, self._scope.key)

    def _address_reader(self, project: Project) -> Callable[[Moment], Awaitable[None]] | None:
        """What reads the addresses that the machine will want when it has come up; None when it has them or goes."""
        scope, oxide_cluster = self._scope, self._scope.owners.oxide_cluster
        is_known = bool(scope.facts.addresses or scope.machine.status.addresses)
        if oxide_cluster is None or scope.machine.metadata.is_being_deleted or is_known:
            return None
        rack = scope.rack(project)
        return lambda began: rack.read_interfaces(oxide_cluster, began)

    # -- the way in ---------------------------------------------------------------------------------------------------

    async def _enter_project(self) -> Project | None:
        """The project to work in; None with the trouble in the facts when it cannot be known or used."""
        scope, facts = self._scope, self._scope.facts
        oxide_cluster, status = scope.owners.oxide_cluster, scope.machine.status
        if oxide_cluster is not None:
            reference = oxide_cluster.spec.credentials_ref
            namespace = reference.namespace or oxide_cluster.metadata.namespace
            facts.project = oxide_cluster.spec.project
            facts.credentials_ref = SecretReference(name=reference.name, namespace=namespace)
        else:
            # Only on the way out: what an earlier pass has copied is enough then (M-4).
            facts.project, facts.credentials_ref = status.project, status.credentials_ref
        if facts.project is None or facts.credentials_ref is None:
            scope.refuse(
                Reason.CREDENTIALS_INVALID,
                "the OxideCluster is gone and neither project nor credentials were recorded; "
                "make the OxideCluster again, or remove the instance by hand and then the finalizer",
            )
            return None
        try:
            credentials = await read_credentials(
                scope.deps.kube, facts.credentials_ref, scope.machine.metadata.namespace
            )
            self._project = scope.deps.racks.project(credentials, facts.project)
        except (CredentialsError, ValueError) as error:
            scope.refuse(Reason.CREDENTIALS_INVALID, str(error))
        return self._project

    # -- towards an instance ------------------------------------------------------------------------------------------

    async def _converge_present(self, project: Project) -> None:
        scope, facts = self._scope, self._scope.facts
        is_known = scope.machine.spec.provider_id is not None
        if not is_known and not machine_creation.may_be_made(scope):
            return
        scope.machine = await gate.add_finalizer(scope.deps.kube, OXIDE_MACHINES, scope.machine, MACHINE_FINALIZER)
        for _ in range(STEPS_LIMIT):
            rack = scope.rack(project)
            is_settled = is_known and scope.machine.status.initialization.provisioned and scope.acts.last is None
            seen = await rack.observe_present(REST_SECONDS if is_settled else TRANSITION_SECONDS)
            keeps_running = scope.machine.spec.power_policy != "Observe"
            step = plan.plan_present(scope.identity, seen, keeps_running=keeps_running)
            facts.step, facts.instance, facts.was_observed = step, seen.instance, True
            if isinstance(step, plan.Start) and is_settled:
                # Judged by a reading at rest; looked at once more before anything is done about it.
                scope.acts.last = project.inventory.now()
                continue
            if isinstance(step, plan.Blocked):
                scope.refuse(step.reason, step.message)
                return
            if not await self._apply_present(project, rack, step):
                break
        if isinstance(facts.step, plan.Steady):
            scope.acts.last = None
            await self._read_addresses(project)

    async def _read_addresses(self, project: Project) -> None:
        """Read the addresses when the instance has come up; at rest they are those of the status."""
        scope = self._scope
        instance, oxide_cluster = scope.facts.instance, scope.owners.oxide_cluster
        was_up = is_condition_true(scope.machine.status.conditions, ConditionType.READY)
        if instance is None or oxide_cluster is None or (was_up and scope.machine.status.addresses):
            return
        scope.facts.addresses = await scope.rack(project).addresses(instance, oxide_cluster)

    async def _apply_present(self, project: Project, rack: MachineRack, step: plan.MachineStep) -> bool:
        """Carry out a step; False when the pass has nothing more to do."""
        match step:
            case plan.Create():
                return await machine_creation.create(self._scope, project, rack)
            case plan.RecordInstance(instance_id):
                await self._scope.record_instance(instance_id)
                return True
            case plan.Start(instance_id):
                await self._start(project, rack, instance_id)
                return False
            case _:
                return False

    async def _start(self, project: Project, rack: MachineRack, instance_id: UUID) -> None:
        """Start the instance, unless it was started a moment ago and did not stay up (C-IM-10)."""
        acts, now_seconds = self._scope.acts, self._scope.deps.clock.monotonic()
        if acts.started_at is not None:
            pause = min(RESTART_CAP_SECONDS, RESTART_FIRST_SECONDS * 2.0 ** (acts.starts - 1))
            passed = now_seconds - acts.started_at
            if passed > RESTART_CAP_SECONDS:
                acts.starts = 0
            elif passed < pause:
                self._scope.retry_after_seconds = pause - passed
                return
        acts.starts, acts.started_at = acts.starts + 1, now_seconds
        instance = await project.client.instance_start(instance_id)
        self._scope.acted(rack, instance)
        self._scope.say("InstanceStarting", f"Starting instance {instance.name}, which was stopped")

    # -- towards nothing ----------------------------------------------------------------------------------------------

    async def _converge_absent(self, project: Project) -> None:
        scope, facts = self._scope, self._scope.facts
        for _ in range(STEPS_LIMIT):
            rack = scope.rack(project)
            seen = await rack.observe_absent(self._started_seconds, scope.owners.oxide_cluster)
            if seen.is_endpoint_holder and not self._waits_for_endpoint():
                seen = dataclasses.replace(seen, is_endpoint_holder=False)
            step = plan.plan_absent(scope.identity, seen)
            facts.step, facts.instance, facts.was_observed = step, seen.instance, True
            if isinstance(step, plan.Blocked):
                scope.refuse(step.reason, step.message)
                return
            if not await self._apply_absent(project, rack, step):
                return

    async def _apply_absent(self, project: Project, rack: MachineRack, step: plan.MachineStep) -> bool:
        """Carry out a step; False when the pass has nothing more to do."""
        scope = self._scope
        match step:
            case plan.RecordInstance(instance_id):
                await scope.record_instance(instance_id)
                return True
            case plan.RecordDisks(instance_id):
                await scope.record_disks(await rack.attached_disks(instance_id))
                return True
            case plan.Stop(instance_id):
                stopped = await project.client.instance_stop(instance_id)
                scope.acted(rack, stopped)
                # A failed instance is stopped at once; any other takes its time.
                return stopped.run_state == InstanceState.STOPPED
            case plan.DeleteInstance(instance_id):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.instance_delete(instance_id)
                rack.acted()
                scope.facts.instance = None
                scope.say("InstanceDeleted", f"Deleted instance {instance_id}")
                return False
            case plan.DeleteDisk(disk_id):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.disk_delete(disk_id)
                rack.acted()
                return True
            case _:
                return False

    def _waits_for_endpoint(self) -> bool:
        """Whether the endpoint can be expected to move away first: not when the cluster goes, and not for ever."""
        cluster, deleted = self._scope.owners.cluster, self._scope.machine.metadata.deletion_timestamp
        if cluster is None or cluster.metadata.is_being_deleted or deleted is None:
            return False
        return (self._scope.deps.now() - deleted).total_seconds() < ENDPOINT_WAIT_SECONDS

    def _judge(self, error: oxide.OxideError) -> oxide.OxideError | None:
        """Turn an error of the rack into words for the status; returned when trying again may settle it."""
        scope, trouble = self._scope, of_rack_error(error)
        scope.facts.trouble = trouble
        if trouble.reason == Reason.INSUFFICIENT_CAPACITY:
            scope.retry_after_seconds = CAPACITY_REQUEUE_SECONDS
        elif trouble.reason == Reason.INVALID_SPEC and not scope.machine.metadata.is_being_deleted:
            scope.retry_after_seconds = REFUSED_REQUEUE_SECONDS
        else:
            return error
        scope.deps.recorder.warning(scope.machine, trouble.reason, trouble.message)
        return None


def _sight(instance: ObservedInstance | None) -> Sight:
    return () if instance is None else (instance.id, str(instance.run_state))
