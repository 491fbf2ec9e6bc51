"""The service controller: Services of type LoadBalancer, in terms of `load_balancer` only.

A pass reads the Service live, and everything around it from what the watches have told. The finalizer is stored before
anything is made, and goes when nothing is left (3.3, 3.4). The status is repaired in every pass, and passes come at
least once a period, whoever changed what (S1, S6). Nothing is done before Nodes and Services are known (R9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import structlog

from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.kinds import SERVICES
from capox.ccm.load_balancer import LoadBalancer
from capox.ccm.node_syncs import NodeSyncs
from capox.ccm.placement import Port, Protocol
from capox.ccm.service_plan import (
    FINALIZER,
    RECLAIM,
    Task,
    desired,
    ingress_patch,
    is_wanted,
    notices_of,
    task_of,
    wanted_of,
)
from capox.ccm.service_targets_plan import grace_left_seconds, targets_of
from capox.ccm.wanted import Entry, Notice, Outcome, Refusal, Surroundings, Wanted
from capox.kube.core_objects import Service
from capox.kube.errors import Conflict, NotFound
from capox.kube.workqueue import DONE, Request, Result
from capox.oxide.errors import OxideError, Unauthorized

__all__ = ["COMPONENT", "CONTROLLER", "ServiceReconciler"]

CONTROLLER: Final = "service"
"""The controller's name in metrics, logs and --controllers."""

COMPONENT: Final = "service-controller"
"""Who the Events are from."""

PERIOD_SECONDS: Final = 90.0
"""After how long a Service at rest is looked at again (S1)."""

UNSYNCED_SECONDS: Final = 1.0
"""When to look again while not everything around is known."""

CONFLICT_SECONDS: Final = 0.5
"""When to look again after somebody else has written the Service meanwhile."""

REFUSED_SECONDS: Final = 300.0
"""When to look again at what cannot be had as it is wanted."""

FAILED_FIRST_SECONDS: Final = 2.0
"""When to try again after the rack could not be read (S23)."""

FAILED_CAP_SECONDS: Final = 30.0
"""The longest pause between two such attempts."""

UNAUTHORIZED_SECONDS: Final = 60.0
"""When to try again while the rack refuses the credentials."""


class ServiceReconciler:
    """The reconciler of Services.

    Args:
        deps: What it works with.
        load_balancer: What brings traffic to nodes.
        wake: Puts a Service back into the queue.
        proxy_mode: Tells how kube-proxy works; empty for unknown.
        node_syncs: Is told of every pass, to tell how Services follow Nodes.
        period_seconds: After how long a Service at rest is looked at again.
    """

    def __init__(
        self,
        deps: Deps,
        load_balancer: LoadBalancer,
        wake: Callable[[Request], None],
        *,
        proxy_mode: Callable[[], Awaitable[str]],
        node_syncs: NodeSyncs | None = None,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._deps = deps
        self._load_balancer = load_balancer
        self._wake = wake
        self._proxy_mode = proxy_mode
        self._node_syncs = node_syncs or NodeSyncs(deps.clock)
        self._period_seconds = period_seconds
        self._uids: dict[Request, str] = {}
        self._waiting: set[Request] = set()
        self._failures: dict[Request, int] = {}
        self._releasing: set[str] = set()

    async def reconcile(self, request: Request) -> Result:
        """One pass over one Service.

        Raises:
            KubeError: Kubernetes could not be read or written.
            NotLeadingError: The Lease is not surely ours any more.
        """
        deps = self._deps
        if not (deps.nodes.is_synced and deps.services.is_synced and deps.pods.is_synced):
            return Result(requeue_after_seconds=UNSYNCED_SECONDS)
        try:
            service = await deps.kube.get(SERVICES, request.namespace, request.name)
        except NotFound:
            self._forget(request)
            return DONE
        uid = service.metadata.uid
        if self._uids.get(request, uid) != uid:
            # Another one of the same name: the old one's finalizer is gone, so nothing of it is left (S8).
            self._forget(request)
        task = task_of(service)
        if task is Task.NOTHING:
            self._forget(request)
            return DONE
        self._uids[request] = uid
        began_seconds = deps.clock.monotonic()
        work = _ServicePass(deps, self._load_balancer, service, await self._surroundings(service))
        try:
            outcome = await (work.ensure() if task is Task.ENSURE else work.release(self._releasing))
        except Conflict:
            return Result(requeue_after_seconds=CONFLICT_SECONDS * (1 + deps.randomness.random()))
        except (OxideError, CredentialsError) as error:
            self._node_syncs.ended(request, began_seconds, is_success=False)
            return self._on_failure(request, work, error)
        self._node_syncs.ended(request, began_seconds, is_success=outcome.is_complete)
        return self._on_outcome(request, task, outcome)

    def _on_outcome(self, request: Request, task: Task, outcome: Outcome) -> Result:
        self._failures.pop(request, None)
        (self._waiting.add if outcome.is_waiting else self._waiting.discard)(request)
        if outcome.has_freed:
            for other in self._waiting - {request}:
                self._wake(other)
        if task is Task.CLEAN_UP and outcome.is_complete:
            self._forget(request)
            return DONE
        pauses = [self._period_seconds if outcome.retry_seconds is None else outcome.retry_seconds]
        pauses = [each * (1.0 + 0.2 * self._deps.randomness.random()) for each in pauses]
        grace_seconds = grace_left_seconds(self._deps.nodes, self._deps.now())
        if grace_seconds is not None:
            # Not a moment before: what has just been well for too long must not be found well again. And not a fifth
            # later, as other pauses may be: traffic waits for it.
            pauses.append(grace_seconds + 1.0 + self._deps.randomness.random())
        return Result(requeue_after_seconds=min(pauses))

    def _on_failure(self, request: Request, work: _ServicePass, error: OxideError | CredentialsError) -> Result:
        """The rack could not be read, or does not let these credentials do something: all stays as it is (S11, S23)."""
        failures = self._failures.get(request, 0)
        self._failures[request] = failures + 1
        message = error.message if isinstance(error, OxideError) else str(error)
        work.say([Notice("SyncLoadBalancerFailed", message)])
        structlog.get_logger().warning("Reconciling a Service failed", Service=str(request), error=str(error))
        seconds = min(FAILED_FIRST_SECONDS * 2.0 ** min(failures, 10), FAILED_CAP_SECONDS)
        if isinstance(error, Unauthorized | CredentialsError):
            seconds = UNAUTHORIZED_SECONDS
        return Result(requeue_after_seconds=seconds * (0.8 + 0.4 * self._deps.randomness.random()))

    async def _surroundings(self, service: Service) -> Surroundings:
        """What a Service has around it; of itself what was just read."""
        deps = self._deps
        wanted: dict[str, Wanted] = {}
        node_ports = {}
        uids = {service.metadata.uid}
        everybody = [each for each in deps.services if each.metadata.uid != service.metadata.uid]
        for each in (*everybody, service):
            uids.add(each.metadata.uid)
            name = f"{each.metadata.namespace}/{each.metadata.name}"
            for port in each.spec.ports:
                if port.node_port:
                    node_ports[Port(cast("Protocol", port.protocol), port.node_port)] = name
            if not is_wanted(each) or each.metadata.is_being_deleted:
                continue
            wish = desired(each)
            if isinstance(wish, Wanted):
                wanted[each.metadata.uid] = wish
        return Surroundings(
            targets=targets_of(deps.nodes, deps.pods, deps.now()),
            wanted=wanted,
            service_uids=frozenset(uids),
            node_ports=node_ports,
            proxy_mode=await self._proxy_mode(),
        )

    def _forget(self, request: Request) -> None:
        uid = self._uids.pop(request, None)
        self._waiting.discard(request)
        self._failures.pop(request, None)
        self._node_syncs.forget(request)
        if uid is not None:
            self._releasing.discard(uid)
            self._load_balancer.forget(uid)


class _ServicePass:
    """One pass over one Service.

    Args:
        deps: What it works with.
        load_balancer: What brings traffic to nodes.
        service: The Service as it was just read.
        surroundings: What is around it.
    """

    def __init__(self, deps: Deps, load_balancer: LoadBalancer, service: Service, surroundings: Surroundings) -> None:
        self._deps = deps
        self._load_balancer = load_balancer
        self._service = service
        self._surroundings = surroundings

    async def ensure(self) -> Outcome:
        """Have what is wanted."""
        wanted = desired(self._service)
        refusal = wanted if isinstance(wanted, Refusal) else self._load_balancer.refusal(wanted, self._surroundings)
        if isinstance(wanted, Refusal) or refusal is not None:
            assert refusal is not None, "one of the two is there"
            return await self._refuse(refusal)
        if FINALIZER not in self._service.metadata.finalizers:
            self.say([Notice("EnsuringLoadBalancer", "Ensuring load balancer", is_warning=False)])
            await self._set_finalizers([*self._service.metadata.finalizers, FINALIZER])
        before = self._service.status.load_balancer
        outcome = await self._load_balancer.ensure(wanted, self._surroundings, self._publish)
        self.say((*outcome.notices, *notices_of(self._service)))
        if outcome.entries is not None:
            await self._publish(outcome.entries)
        if outcome.is_complete and self._service.status.load_balancer != before:
            self.say([Notice("EnsuredLoadBalancer", "Ensured load balancer", is_warning=False)])
        return outcome

    async def release(self, releasing: set[str]) -> Outcome:
        """Give up everything, and the finalizer at last.

        Args:
            releasing: The UIDs of those of which it was told that they are being given up.
        """
        metadata = self._service.metadata
        wanted = desired(self._service)
        if isinstance(wanted, Refusal):
            # What cannot be read is rather kept than lost.
            is_kept = metadata.annotations.get(RECLAIM, "").strip() not in {"", "Delete"}
            wanted = wanted_of(self._service, keeps_address=is_kept)
        if metadata.uid not in releasing:
            releasing.add(metadata.uid)
            self.say([Notice("DeletingLoadBalancer", "Deleting load balancer", is_warning=False)])
        outcome = await self._load_balancer.release(wanted, self._surroundings)
        self.say(outcome.notices)
        if outcome.is_complete:
            # The status first empties with the finalizer: a crash in between would leave an address that is gone (3.4).
            rest = [each for each in metadata.finalizers if each != FINALIZER]
            empty = None if metadata.is_being_deleted else ingress_patch(self._service, ())
            await self._set_finalizers(rest, status=empty)
            self.say([Notice("DeletedLoadBalancer", "Deleted load balancer", is_warning=False)])
        return outcome

    def say(self, notices: Sequence[Notice]) -> None:
        """Tell people."""
        for notice in notices:
            tell = self._deps.recorder.warning if notice.is_warning else self._deps.recorder.normal
            tell(self._service, notice.reason, notice.message)

    async def _refuse(self, refusal: Refusal) -> Outcome:
        self.say([Notice(refusal.reason, refusal.message)])
        if refusal.withdraws and FINALIZER in self._service.metadata.finalizers:
            await self._publish(())
        return Outcome(retry_seconds=REFUSED_SECONDS)

    async def _publish(self, entries: tuple[Entry, ...]) -> None:
        """Have the status say something; nothing is written when it does already (S6)."""
        patch = ingress_patch(self._service, entries)
        if patch is not None:
            await self._write({}, patch)

    async def _set_finalizers(self, finalizers: list[str], status: dict[str, Any] | None = None) -> None:
        # Through the status, as every cloud's controller does: a Service itself need not be ours to write (3.3).
        await self._write({"finalizers": finalizers or None}, status)

    async def _write(self, metadata: dict[str, Any], status: dict[str, Any] | None) -> None:
        """Write to the Service as it was last seen; one that is gone needs nothing any more."""
        before = self._service.metadata
        body: dict[str, Any] = {"metadata": {"resourceVersion": before.resource_version, **metadata}}
        if status is not None:
            body["status"] = status
        try:
            self._service = await self._deps.kube.patch(
                SERVICES, before.namespace, before.name, body, subresource="status"
            )
        except NotFound:
            return
