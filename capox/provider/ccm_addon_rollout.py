"""How many clusters are upgraded at once, and when no further one is.

A new release of the provider brings a new cloud controller manager for every cluster. A few get it at a time, and when
one that had it working does not get it ready again, no further one gets it: what is wrong is wrong everywhere. The
condition of each OxideCluster is the memory of that, so a restart neither forgets a failure nor begins more at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from capox.api.v1alpha1 import ConditionType, OxideCluster, Reason
from capox.kube.client import KubeAPI
from capox.kube.conditions import get_condition, is_condition_true
from capox.oxide.clock import Clock
from capox.provider.kinds import OXIDE_CLUSTERS

__all__ = ["UPGRADES_MAX", "Upgrades", "is_upgrading"]

UPGRADES_MAX: Final = 3
"""How many clusters are upgraded at once."""

PATIENCE_SECONDS: Final = 600.0
"""How long one of them may take until it counts as failed."""


class Upgrades:
    """The upgrades of all clusters.

    Args:
        kube: The management cluster.
        namespace: The only one that is looked after; None for all.
        clock: The time that patience goes by.
    """

    def __init__(self, kube: KubeAPI, namespace: str | None, clock: Clock) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def admit(self, cluster: OxideCluster) -> str:
        """Ask whether a cluster may be upgraded now.

        Returns:
            Empty when it may, and then `finish` is due; else why it has to wait.

        Raises:
            KubeError: The other clusters could not be read.
        """
        uid = cluster.metadata.uid
        async with self._lock:
            if uid in self._begun or is_upgrading(cluster):
                # Among the first already. What is to come now may be what mends it, so its time begins anew.
                self._begun[uid] = self._clock.monotonic()
                return ""
            others = await self._kube.list(OXIDE_CLUSTERS, self._namespace)
            alive = {each.metadata.uid for each in others}
            self._begun = {each: since for each, since in self._begun.items() if each in alive}
            for each in others:
                if is_upgrading(each, failed_only=True):
                    return f"an upgrade waits: {_name(each)} did not become ready after its own"
            busy = {each.metadata.uid: _name(each) for each in others if is_upgrading(each)}
            busy |= {each.metadata.uid: _name(each) for each in others if each.metadata.uid in self._begun}
            if len(busy) >= UPGRADES_MAX:
                return f"an upgrade waits for those of {', '.join(sorted(busy.values()))}"
            self._begun[uid] = self._clock.monotonic()
            return ""

    def is_late(self, cluster: OxideCluster) -> bool:
        """Whether an upgrade takes longer than it may; after a restart its time begins anew."""
        since = self._begun.setdefault(cluster.metadata.uid, self._clock.monotonic())
        return self._clock.monotonic() - since > PATIENCE_SECONDS

    def finish(self, uid: str) -> None:
        """Note that a cluster is not being upgraded any more, or cannot be reached."""
        self._begun.pop(uid, None)


def is_upgrading(cluster: OxideCluster, *, failed_only: bool = False) -> bool:
    """Whether a cluster's condition says that an upgrade was begun and is not done. Who is paused does not count."""
    if is_condition_true(cluster.status.conditions, ConditionType.PAUSED) or cluster.metadata.is_being_deleted:
        return False
    condition = get_condition(cluster.status.conditions, ConditionType.CLOUD_CONTROLLER_MANAGER_READY)
    reasons = {Reason.UPGRADE_FAILED} if failed_only else {Reason.UPGRADING, Reason.UPGRADE_FAILED}
    return condition is not None and condition.status == "False" and condition.reason in reasons


def _name(cluster: OxideCluster) -> str:
    return f"{cluster.metadata.namespace}/{cluster.metadata.name}"
