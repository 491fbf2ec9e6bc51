"""The add-on: the cloud controller manager in each workload cluster, installed, re-keyed, upgraded, repaired, removed.

It has a queue of its own, for workload clusters are slow, dead or hostile at times: a pass has a deadline, a cluster
that does not answer is asked less and less often, and there are more workers than could hang at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final

import structlog

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, Reason
from capox.kube.conditions import Finding
from capox.kube.kind import SECRETS, Kind
from capox.kube.kubeconfig import KubeconfigRefusedError
from capox.kube.workqueue import DONE, Request, Result
from capox.oxide.errors import OxideError
from capox.provider import gate
from capox.provider.ccm_addon_credentials import CredentialsRefusedError
from capox.provider.ccm_addon_kinds import CONFIG_MAPS
from capox.provider.ccm_addon_manifests import InvalidConfigurationError
from capox.provider.ccm_addon_pass import AddonDeps, AddonPass, NotYetError, knobs_name
from capox.provider.ccm_addon_rollout import is_upgrading
from capox.provider.ccm_addon_status import finding, is_unreachable, shown, was_running, write_condition
from capox.provider.ccm_addon_workload import WorkloadError
from capox.provider.kinds import OXIDE_CLUSTERS

__all__ = ["CONTROLLER", "CcmAddonReconciler"]

CONTROLLER: Final = "oxidecluster-ccm"
"""The controller's name in metrics, logs and flags."""

PASS_SECONDS: Final = 60.0
"""How long a pass may take, whatever the cluster answers."""

SOON_SECONDS: Final = 10.0
"""When to look again while a cluster comes up or Pods become ready."""

WAITING_CAP_SECONDS: Final = 60.0
"""When to look again, at the latest, for a cluster that has not begun to come up."""

LOOK_SECONDS: Final = 120.0
"""When to look at the sources of what was installed; nobody watches Secrets (K-32)."""

REFUSED_SECONDS: Final = 120.0
"""When to look again at what a person has to put right."""

CREDENTIALS_SECONDS: Final = 30.0
"""When to read a Secret again that was not taken."""

SLOW_LANE: Final = 10
"""How many clusters that did not answer last time are asked at once, so that they never have all the workers."""

LANE_FULL_SECONDS: Final = 60.0
"""When to come back to one that found no place there."""

UNREACHABLE_FIRST_SECONDS: Final = 5.0
UNREACHABLE_CAP_SECONDS: Final = 300.0


@dataclasses.dataclass(slots=True)
class _Memory:
    """What this process remembers of a cluster; empty after a restart, which costs a pass.

    Attributes:
        settled_at: On the clock, when everything was as it should be; None when it was not.
        generation: Of the OxideCluster at that time.
        sources: The versions of what the installation is made from.
        is_installed: Whether that was to be installed.
        may_be_home: Whether something may run in the management cluster that should not.
        failures: How often in a row the cluster did not answer.
        waits: How often in a row it had not begun to come up.
    """

    settled_at: float | None = None
    generation: int = 0
    sources: tuple[str, ...] = ()
    is_installed: bool = False
    may_be_home: bool = True
    failures: int = 0
    waits: int = 0


class CcmAddonReconciler:
    """The reconciler of the cloud controller managers, by OxideCluster.

    Args:
        addon: What it works with.
    """

    def __init__(self, addon: AddonDeps) -> None:
        self._addon = addon
        self._deps = addon.deps
        self._memories: dict[str, _Memory] = {}
        self._slow = 0

    async def reconcile(self, request: Request) -> Result:
        """One pass over one cluster.

        Raises:
            KubeError: The management cluster could not be read or written.
            OxideError: The rack could not be asked.
        """
        cluster = await gate.find(self._deps.kube, OXIDE_CLUSTERS, request.namespace, request.name)
        if cluster is None or not gate.is_watched(cluster, self._deps.watch_filter):
            return DONE
        owner = None if gate.is_externally_managed(cluster) else await gate.cluster_of(self._deps.kube, cluster)
        if owner is None or cluster.metadata.is_being_deleted or owner.metadata.is_being_deleted:
            # The machines go, and with them what runs on them; its floating IPs are released by the cluster's own pass.
            self._forget(cluster.metadata.uid)
            return DONE
        if gate.pause_causes(cluster, owner):
            return DONE
        wanted = cluster.spec.cloud_controller_manager
        if wanted is not None and wanted.mode == "Orphan":
            self._forget(cluster.metadata.uid)
            await self._write(cluster, finding("True", Reason.ORPHANED))
            return DONE
        if not cluster.spec.cluster_id or not cluster.status.initialization.provisioned:
            # What changes that wakes us.
            await self._write(cluster, self._waiting(cluster, "the infrastructure is not there yet"))
            return self._after(LOOK_SECONDS)
        memory = self._memories.setdefault(cluster.metadata.uid, _Memory())
        if await self._is_still_settled(cluster, memory):
            return self._after(LOOK_SECONDS)
        memory.settled_at = None
        if not is_unreachable(cluster) and not memory.failures:
            return await self._look(cluster, owner, memory)
        if self._slow >= SLOW_LANE:
            return self._after(LANE_FULL_SECONDS)
        self._slow += 1
        try:
            return await self._look(cluster, owner, memory)
        finally:
            self._slow -= 1

    async def _look(self, cluster: OxideCluster, owner: capi.Cluster, memory: _Memory) -> Result:
        work = AddonPass(self._addon, cluster, owner)
        error: OxideError | None = None
        try:
            await work.read_kubeconfig()
            # Before the pass: what changes during it counts as new.
            sources = await self._sources(cluster)
            async with asyncio.timeout(PASS_SECONDS):
                found = await work.run(may_be_home=memory.may_be_home)
            seconds = self._settle(cluster, work, memory, sources, found)
        except NotYetError as reason:
            memory.waits = 0 if reason.is_near else memory.waits + 1
            found = self._waiting(cluster, str(reason))
            seconds = min(WAITING_CAP_SECONDS, SOON_SECONDS * 2.0 ** min(memory.waits, 10) / 2)
            seconds = SOON_SECONDS if reason.is_near else seconds
        except (WorkloadError, TimeoutError) as reason:
            found, seconds = self._unreachable(cluster, owner, memory, reason)
        except KubeconfigRefusedError as reason:
            found, seconds = finding("False", Reason.KUBECONFIG_REFUSED, shown(reason)), REFUSED_SECONDS
        except InvalidConfigurationError as reason:
            found, seconds = finding("False", Reason.INVALID_CONFIGURATION, str(reason)), REFUSED_SECONDS
        except CredentialsRefusedError as reason:
            found, seconds = finding("False", reason.reason, str(reason)), CREDENTIALS_SECONDS
        except OxideError as reason:
            message = f"the rack cannot be asked what the token may do: {reason}"
            found, seconds, error = (
                self._unless_running(cluster, finding("False", "RackUnavailable", message)),
                0,
                reason,
            )
        if work.is_reached:
            memory.failures = 0
        if not is_upgrading(cluster) and found.reason not in {Reason.UPGRADING, Reason.UPGRADE_FAILED}:
            self._addon.upgrades.finish(cluster.metadata.uid)
        await self._write(work.cluster, found)
        if error is not None:
            raise error
        return self._after(seconds)

    def _settle(
        self, cluster: OxideCluster, work: AddonPass, memory: _Memory, sources: tuple[str, ...], found: Finding
    ) -> float:
        """Remember what a pass has found; gives when to look again."""
        memory.may_be_home = work.is_at_home
        if not work.is_settled:
            return SOON_SECONDS
        memory.settled_at = self._deps.clock.monotonic()
        memory.generation = cluster.metadata.generation
        memory.is_installed = found.reason in {Reason.RUNNING, Reason.SHARED_CREDENTIALS}
        memory.sources = sources
        return LOOK_SECONDS

    async def _is_still_settled(self, cluster: OxideCluster, memory: _Memory) -> bool:
        """Whether nothing has changed since all was well, and that is not so long ago that it has to be looked at."""
        if memory.settled_at is None or memory.generation != cluster.metadata.generation:
            return False
        age_seconds = self._deps.clock.monotonic() - memory.settled_at
        if age_seconds >= self._deps.sync_period_seconds - LOOK_SECONDS / 2:
            return False
        return not memory.is_installed or memory.sources == await self._sources(cluster)

    async def _sources(self, cluster: OxideCluster) -> tuple[str, ...]:
        """The versions of the Secret and the ConfigMap from which the installation is made."""
        namespace, spec = cluster.metadata.namespace, cluster.spec
        own = spec.cloud_controller_manager.credentials_ref if spec.cloud_controller_manager is not None else None
        where = (
            (namespace, own.name)
            if own is not None
            else (
                spec.credentials_ref.namespace or namespace,
                spec.credentials_ref.name,
            )
        )
        return (
            await self._version(SECRETS, *where),
            await self._version(CONFIG_MAPS, namespace, knobs_name(cluster)),
        )

    async def _version(self, kind: Kind[Any], namespace: str, name: str) -> str:
        found = await gate.find(self._deps.kube, kind, namespace, name)
        return "" if found is None else f"{found.metadata.uid} {found.metadata.resource_version}"

    def _waiting(self, cluster: OxideCluster, message: str) -> Finding:
        return self._unless_running(cluster, finding("False", Reason.WAITING_FOR_WORKLOAD_CLUSTER, message))

    def _unreachable(
        self, cluster: OxideCluster, owner: capi.Cluster, memory: _Memory, error: Exception
    ) -> tuple[Finding, float]:
        message = shown(error) if not isinstance(error, TimeoutError) else f"no end after {PASS_SECONDS:.0f} s"
        if not owner.status.initialization.control_plane_initialized and not was_running(cluster):
            return self._waiting(cluster, f"the cluster's API does not answer yet: {message}"), SOON_SECONDS
        memory.failures += 1
        if memory.failures == 1:
            name = f"{cluster.metadata.namespace}/{cluster.metadata.name}"
            structlog.get_logger().warning("A workload cluster does not answer", OxideCluster=name, error=message)
        self._addon.upgrades.finish(cluster.metadata.uid)
        seconds = min(UNREACHABLE_CAP_SECONDS, UNREACHABLE_FIRST_SECONDS * 2.0 ** min(memory.failures, 10))
        return finding("Unknown", Reason.WORKLOAD_CLUSTER_UNREACHABLE, message), seconds

    def _unless_running(self, cluster: OxideCluster, found: Finding) -> Finding:
        """A finding that says nothing about what runs: where it ran well it is taken to run still."""
        for condition in cluster.status.conditions:
            if condition.type == found.type and condition.status == "True":
                return Finding(condition.type, condition.status, condition.reason, condition.message)
        return found

    def _forget(self, uid: str) -> None:
        self._memories.pop(uid, None)
        self._addon.upgrades.finish(uid)

    async def _write(self, cluster: OxideCluster, found: Finding) -> None:
        await write_condition(self._deps.kube, cluster, found, self._deps.now)

    def _after(self, seconds: float) -> Result:
        return Result(requeue_after_seconds=seconds * (0.9 + 0.2 * self._deps.randomness.random()))
