"""OxideMachine: one instance with its disks, from the first write to the last proof of absence.

A pass goes through the gates, converges by single steps, writes the status once, and says when it wants to come back.
It may end anywhere: the next pass starts from what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from capox.api.v1alpha1 import MACHINE_FINALIZER, OxideMachine, OxideMachineStatus
from capox.kube.errors import Conflict
from capox.kube.workqueue import DONE, Request, Result
from capox.provider import gate
from capox.provider import machine_plan as plan
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.machine_pass import MachinePass
from capox.provider.machine_rack import Acts
from capox.provider.machine_scope import MachineScope
from capox.provider.machine_status import machine_status, paused_status
from capox.provider.status import status_patch

__all__ = ["CONTROLLER", "MachineReconciler"]

CONTROLLER: Final = "oxidemachine"
"""The controller's name in metrics, logs and flags."""

CONFLICT_REQUEUE_SECONDS: Final = 0.5
"""When to look again after somebody else has written the object meanwhile."""

TRANSITION_REQUEUE_SECONDS: Final = 15.0
"""When to look again while the rack is at work; the watch on the project wakes earlier when something changes."""

_AT_REST: Final = (plan.Steady, plan.Vanished)


class MachineReconciler:
    """The reconciler of OxideMachines.

    Args:
        deps: What it works with.
        wake: Puts a machine back into the queue.
    """

    def __init__(self, deps: Deps, wake: Callable[[Request], None]) -> None:
        self._deps = deps
        self._wake = wake
        self._acts: dict[str, Acts] = {}
        # Since when this process leads: what another one sent just before may still be under way.
        self._started_seconds: float | None = None

    async def reconcile(self, request: Request) -> Result:
        """One pass over one machine.

        Raises:
            KubeError: Something in Kubernetes could not be read or written.
            OxideError: Something on the rack failed that trying again may settle.
        """
        if self._started_seconds is None:
            self._started_seconds = self._deps.clock.monotonic()
        machine = await gate.find(self._deps.kube, OXIDE_MACHINES, request.namespace, request.name)
        if machine is None:
            self._deps.racks.forget(CONTROLLER, request)
            return DONE
        if not gate.is_watched(machine, self._deps.watch_filter):
            return DONE
        try:
            return await self._reconcile(request, machine)
        except Conflict:
            # Somebody has written the object meanwhile: what was decided on is old, and looking again loses nothing.
            return Result(requeue_after_seconds=CONFLICT_REQUEUE_SECONDS * (1 + self._deps.randomness.random()))

    async def _reconcile(self, request: Request, machine: OxideMachine) -> Result:
        owners = await gate.machine_owners(self._deps.kube, machine)
        causes = gate.pause_causes(machine, owners.cluster)
        if causes:
            await self._write_status(machine, paused_status(machine, causes, self._deps.now()))
            return DONE
        is_deleting = machine.metadata.is_being_deleted
        if is_deleting and MACHINE_FINALIZER not in machine.metadata.finalizers:
            return DONE
        if not is_deleting and (owners.machine is None or owners.cluster is None or owners.oxide_cluster is None):
            # An owner that comes wakes us by its watch; until then the object is inert and can be deleted (C-IM-4).
            return DONE
        acts = self._acts.setdefault(machine.metadata.uid, Acts())
        assert self._started_seconds is not None
        scope = MachineScope(deps=self._deps, machine=machine, owners=owners, acts=acts)
        work = MachinePass(scope, self._started_seconds)
        error = await work.converge()
        if is_deleting and isinstance(scope.facts.step, plan.Finished) and error is None:
            work.forget(CONTROLLER)
            await gate.remove_finalizer(self._deps.kube, OXIDE_MACHINES, scope.machine, MACHINE_FINALIZER)
            self._acts.pop(machine.metadata.uid, None)
            return DONE
        await self._write_status(scope.machine, machine_status(scope.machine, scope.facts, self._deps.now()))
        if error is not None:
            raise error
        work.expect(CONTROLLER, lambda: self._wake(request))
        return self._result(scope)

    async def _write_status(self, machine: OxideMachine, status: OxideMachineStatus) -> None:
        """Write the status if it says something new."""
        patch = status_patch(machine.status, status)
        if patch is None:
            return
        metadata = machine.metadata
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": patch}
        await self._deps.kube.patch(OXIDE_MACHINES, metadata.namespace, metadata.name, body, subresource="status")

    def _result(self, scope: MachineScope) -> Result:
        if scope.retry_after_seconds is not None:
            seconds = scope.retry_after_seconds
        elif isinstance(scope.facts.step, _AT_REST):
            seconds = self._deps.sync_period_seconds
        else:
            seconds = TRANSITION_REQUEUE_SECONDS
        return Result(requeue_after_seconds=seconds * (0.9 + 0.2 * self._deps.randomness.random()))
