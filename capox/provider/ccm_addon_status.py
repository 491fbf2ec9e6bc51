"""What the add-on tells: one condition of the OxideCluster, which it shares with the cluster's own reconciler."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

from capox.api.v1alpha1 import ConditionType, OxideCluster, Reason
from capox.kube.client import KubeAPI
from capox.kube.conditions import Finding, get_condition, set_condition
from capox.kube.errors import Conflict, NotFound
from capox.kube.objects import ConditionStatus
from capox.provider.kinds import OXIDE_CLUSTERS
from capox.provider.status import status_patch

__all__ = ["finding", "is_unreachable", "shown", "was_running", "write_condition"]

ATTEMPTS: Final = 5
"""How often a write is tried that meets one of the cluster's own reconciler."""

_SHOWN_CHARACTERS_MAX: Final = 300


def finding(status: ConditionStatus, reason: str, message: str = "") -> Finding:
    """A finding about the cloud controller manager."""
    return Finding(ConditionType.CLOUD_CONTROLLER_MANAGER_READY, status, reason, message)


def shown(text: object) -> str:
    """A stranger's words for a condition: one short line of printable characters."""
    line = "".join(each if each.isprintable() else " " for each in str(text))
    return line if len(line) <= _SHOWN_CHARACTERS_MAX else f"{line[:_SHOWN_CHARACTERS_MAX]} ..."


async def write_condition(
    kube: KubeAPI, cluster: OxideCluster, found: Finding, now: Callable[[], datetime.datetime]
) -> OxideCluster:
    """Set the condition, where that says something new, and return the object as it is then.

    Raises:
        KubeError: It was not written.
    """
    metadata = cluster.metadata
    for attempt in range(1, ATTEMPTS + 1):
        conditions = set_condition(
            cluster.status.conditions, found, observed_generation=metadata.generation or None, now=now()
        )
        patch = status_patch(cluster.status, cluster.status.model_copy(update={"conditions": conditions}))
        if patch is None:
            return cluster
        body = {"metadata": {"resourceVersion": cluster.metadata.resource_version}, "status": patch}
        try:
            return await kube.patch(OXIDE_CLUSTERS, metadata.namespace, metadata.name, body, subresource="status")
        except NotFound:
            return cluster
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            cluster = await kube.get(OXIDE_CLUSTERS, metadata.namespace, metadata.name)
    raise AssertionError("an attempt ends in a return or in an error")


def is_unreachable(cluster: OxideCluster) -> bool:
    """Whether the last finding was that the cluster does not answer."""
    condition = get_condition(cluster.status.conditions, ConditionType.CLOUD_CONTROLLER_MANAGER_READY)
    return condition is not None and condition.reason == Reason.WORKLOAD_CLUSTER_UNREACHABLE


def was_running(cluster: OxideCluster) -> bool:
    """Whether the last finding was that it runs, or that it was being upgraded while it did."""
    condition = get_condition(cluster.status.conditions, ConditionType.CLOUD_CONTROLLER_MANAGER_READY)
    return condition is not None and condition.reason in {
        Reason.RUNNING,
        Reason.SHARED_CREDENTIALS,
        Reason.UPGRADING,
        Reason.UPGRADE_FAILED,
    }
