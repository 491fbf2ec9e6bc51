"""OxideCluster: the floating IP of a cluster's endpoint, and its place on a control plane machine.

This reconciler alone moves the endpoint (M-32). Passes have the shape of `machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from capox.api.v1alpha1 import CLUSTER_FINALIZER, OxideCluster, OxideClusterStatus
from capox.kube.errors import Conflict
from capox.kube.workqueue import DONE, Request, Result
from capox.provider import cluster_plan as plan
from capox.provider import gate
from capox.provider.cluster_firewall import is_managed
from capox.provider.cluster_pass import ClusterPass
from capox.provider.cluster_rack import EndpointMemory
from capox.provider.cluster_status import cluster_status, paused_cluster_status
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_CLUSTERS
from capox.provider.secret_guard import ccm_credentials_reference, credentials_reference, release
from capox.provider.status import status_patch

__all__ = ["CONTROLLER", "ClusterReconciler"]

CONTROLLER: Final = "oxidecluster"
"""The controller's name in metrics, logs and flags."""

CONFLICT_REQUEUE_SECONDS: Final = 0.5
"""When to look again after somebody else has written the object meanwhile."""

TRANSITION_REQUEUE_SECONDS: Final = 10.0
"""When to look again while something is awaited; watches wake earlier when something changes."""

REFUSED_REQUEUE_SECONDS: Final = 120.0
"""When to try again what a person has to put right."""

FIREWALL_REQUEUE_SECONDS: Final = 120.0
"""When to look again at a firewall whose rules are ours to keep."""

CREDENTIALS_REQUEUE_SECONDS: Final = 30.0
"""When to read the Secret again that was missing or incomplete; nobody watches Secrets (K-32)."""


class ClusterReconciler:
    """The reconciler of OxideClusters.

    Args:
        deps: What it works with.
        wake: Puts a cluster back into the queue.
    """

    def __init__(self, deps: Deps, wake: Callable[[Request], None]) -> None:
        self._deps = deps
        self._wake = wake
        self._memories: dict[str, EndpointMemory] = {}

    async def reconcile(self, request: Request) -> Result:
        """One pass over one cluster.

        Raises:
            KubeError: Something in Kubernetes could not be read or written.
            OxideError: Something on the rack failed that trying again may settle.
        """
        cluster = await gate.find(self._deps.kube, OXIDE_CLUSTERS, request.namespace, request.name)
        if cluster is None:
            self._deps.racks.forget(CONTROLLER, request)
            return DONE
        if not gate.is_watched(cluster, self._deps.watch_filter):
            return DONE
        if gate.is_externally_managed(cluster):
            return DONE
        try:
            return await self._reconcile(request, cluster)
        except Conflict:
            return Result(requeue_after_seconds=CONFLICT_REQUEUE_SECONDS * (1 + self._deps.randomness.random()))

    async def _reconcile(self, request: Request, cluster: OxideCluster) -> Result:
        owner = await gate.cluster_of(self._deps.kube, cluster)
        causes = gate.pause_causes(cluster, owner)
        if causes:
            await self._write_status(cluster, paused_cluster_status(cluster, causes, self._deps.now()))
            return DONE
        is_deleting = cluster.metadata.is_being_deleted
        if owner is None and not is_deleting:
            # An owner that comes wakes us by its watch (C-IC-10).
            return DONE
        if is_deleting and CLUSTER_FINALIZER not in cluster.metadata.finalizers:
            return DONE
        if is_deleting and cluster.status.released:
            await self._let_go(cluster)
            return DONE
        memory = self._memories.get(cluster.metadata.uid)
        if memory is None:
            memory = self._memories[cluster.metadata.uid] = EndpointMemory()
            endpoint = cluster.spec.control_plane_endpoint
            if CLUSTER_FINALIZER in cluster.metadata.finalizers and (endpoint is None or not endpoint.host):
                # A process before this one may have asked for the floating IP and not lived to see it.
                memory.unanswered_at = self._deps.clock.monotonic()
        work = ClusterPass(self._deps, cluster, owner, memory)
        error = await work.converge()
        if work.is_finished and error is None:
            work.forget(CONTROLLER)
            await self._let_go(work.cluster)
            self._memories.pop(cluster.metadata.uid, None)
            return DONE
        await self._write_status(work.cluster, cluster_status(work.cluster, work.facts, self._deps.now()))
        if error is not None:
            raise error
        work.expect(CONTROLLER, lambda: self._wake(request))
        return self._result(work)

    async def _let_go(self, cluster: OxideCluster) -> None:
        """The last writes, when nothing is left on the rack: the credentials are released, then the object is.

        A Secret can vanish at once, and then nobody could look at the rack again: that nothing is left there is
        therefore stored first.
        """
        metadata = cluster.metadata
        if not cluster.status.released:
            body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": {"released": True}}
            cluster = await self._deps.kube.patch(
                OXIDE_CLUSTERS, metadata.namespace, metadata.name, body, subresource="status"
            )
        kept = (
            credentials_reference(cluster),
            ccm_credentials_reference(cluster),
            cluster.status.credentials_ref,
            cluster.status.cloud_controller_manager_credentials_ref,
        )
        for reference in dict.fromkeys(each for each in kept if each is not None):
            await release(self._deps, cluster, reference)
        await gate.remove_finalizer(self._deps.kube, OXIDE_CLUSTERS, cluster, CLUSTER_FINALIZER)

    async def _write_status(self, cluster: OxideCluster, status: OxideClusterStatus) -> None:
        """Write the status if it says something new."""
        patch = status_patch(cluster.status, status)
        if patch is None:
            return
        metadata = cluster.metadata
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": patch}
        await self._deps.kube.patch(OXIDE_CLUSTERS, metadata.namespace, metadata.name, body, subresource="status")

    def _result(self, work: ClusterPass) -> Result:
        facts = work.facts
        if facts.credentials is not None or facts.is_ccm_secret_missing:
            seconds = CREDENTIALS_REQUEUE_SECONDS
        elif facts.trouble is not None:
            seconds = REFUSED_REQUEUE_SECONDS
        elif (
            work.cluster.metadata.is_being_deleted
            or isinstance(facts.step, plan.Wait)
            or work.is_proving
            or (isinstance(facts.step, plan.Placed) and facts.step.warning)
        ):
            seconds = TRANSITION_REQUEUE_SECONDS
        elif is_managed(work.cluster):
            # Nobody tells of a rule that somebody else has changed.
            seconds = min(FIREWALL_REQUEUE_SECONDS, self._deps.sync_period_seconds)
        else:
            seconds = self._deps.sync_period_seconds
        return Result(requeue_after_seconds=seconds * (0.9 + 0.2 * self._deps.randomness.random()))
