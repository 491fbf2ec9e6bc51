"""What comes before work in every reconcile: owners, pause, finalizers.

An owner that is not there is a wait, an owner that could not be read is an error: only a 404 of a kind that is served
counts as "not there" (L-50). Owners are read live, at once before whatever creates or destroys.
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeVar

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, OxideMachine
from capox.kube.client import KubeAPI
from capox.kube.errors import NotFound
from capox.kube.kind import Kind
from capox.kube.objects import Resource
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS

__all__ = [
    "MachineOwners",
    "add_finalizer",
    "cluster_by_label",
    "cluster_of",
    "find",
    "is_externally_managed",
    "is_watched",
    "machine_owners",
    "pause_causes",
    "remove_finalizer",
]

R = TypeVar("R", bound=Resource)

_DELETE_FOR_MOVE: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
_MANAGED_BY: Final = "cluster.x-k8s.io/managed-by"
_WATCH_FILTER: Final = "cluster.x-k8s.io/watch-filter"


@dataclasses.dataclass(frozen=True, slots=True)
class MachineOwners:
    """What an OxideMachine belongs to; None is a 404.

    Attributes:
        machine: The Machine that owns it.
        cluster: The Cluster of that Machine, or of the label when there is no Machine.
        oxide_cluster: The Cluster's infrastructure (C-IC-11).
    """

    machine: capi.Machine | None
    cluster: capi.Cluster | None
    oxide_cluster: OxideCluster | None


async def find(kube: KubeAPI, kind: Kind[R], namespace: str, name: str) -> R | None:
    """Read an object that need not be there.

    Raises:
        KubeError: It could not be read, which is not the same as not being there.
    """
    try:
        return await kube.get(kind, namespace, name)
    except NotFound:
        return None


async def machine_owners(kube: KubeAPI, oxide_machine: OxideMachine) -> MachineOwners:
    """Read a machine's owners, live.

    Raises:
        KubeError: One of them could not be read.
    """
    metadata = oxide_machine.metadata
    reference = metadata.owner(group=capi.GROUP, kind="Machine")
    machine = None
    if reference is not None:
        machine = await find(kube, MACHINES, metadata.namespace, reference.name)
    cluster_name = machine.spec.cluster_name if machine is not None else metadata.labels.get(capi.CLUSTER_NAME_LABEL)
    if not cluster_name:
        return MachineOwners(machine, None, None)
    cluster = await find(kube, CLUSTERS, metadata.namespace, cluster_name)
    return MachineOwners(machine, cluster, await _infrastructure_of(kube, cluster))


async def cluster_of(kube: KubeAPI, oxide_cluster: OxideCluster) -> capi.Cluster | None:
    """Read the Cluster that owns an OxideCluster, live; None when it has no such owner or the owner is gone (C-IC-10).

    Raises:
        KubeError: It could not be read.
    """
    reference = oxide_cluster.metadata.owner(group=capi.GROUP, kind="Cluster")
    if reference is None:
        return None
    return await find(kube, CLUSTERS, oxide_cluster.metadata.namespace, reference.name)


async def cluster_by_label(kube: KubeAPI, resource: Resource) -> capi.Cluster | None:
    """Read the Cluster that an object's label names, live; None when it has no label or the Cluster is gone.

    Raises:
        KubeError: It could not be read.
    """
    name = resource.metadata.labels.get(capi.CLUSTER_NAME_LABEL)
    return await find(kube, CLUSTERS, resource.metadata.namespace, name) if name else None


def pause_causes(resource: Resource, cluster: capi.Cluster | None) -> tuple[str, ...]:
    """Why an object is to be left alone; empty when nothing pauses it (C-PA-1, C-PA-4)."""
    causes = []
    if cluster is not None and cluster.spec.paused:
        causes.append("Cluster spec.paused is true")
    annotations = resource.metadata.annotations
    if capi.PAUSED_ANNOTATION in annotations:
        causes.append(f"annotation {capi.PAUSED_ANNOTATION} is present")
    if _DELETE_FOR_MOVE in annotations:
        causes.append(f"annotation {_DELETE_FOR_MOVE} is present")
    return tuple(causes)


def is_externally_managed(oxide_cluster: OxideCluster) -> bool:
    """Whether somebody else provides this cluster's infrastructure (C-IC-9)."""
    return _MANAGED_BY in oxide_cluster.metadata.annotations


def is_watched(resource: Resource, watch_filter: str) -> bool:
    """Whether an object is one of those that this process is to look after (C-PA-5)."""
    return not watch_filter or resource.metadata.labels.get(_WATCH_FILTER) == watch_filter


async def add_finalizer(kube: KubeAPI, kind: Kind[R], resource: R, finalizer: str) -> R:
    """Store a finalizer and return the object as it is stored then; at once when it has it (C-IM-3).

    Raises:
        KubeError: It was not stored; nothing may be made on the rack.
    """
    metadata = resource.metadata
    if finalizer in metadata.finalizers:
        return resource
    return await _write_finalizers(kube, kind, resource, (*metadata.finalizers, finalizer))


async def remove_finalizer(kube: KubeAPI, kind: Kind[R], resource: R, finalizer: str) -> None:
    """Take our finalizer off, and no other.

    Raises:
        KubeError: It is still there.
    """
    metadata = resource.metadata
    if finalizer not in metadata.finalizers:
        return
    left = tuple(other for other in metadata.finalizers if other != finalizer)
    try:
        await _write_finalizers(kube, kind, resource, left)
    except NotFound:
        # Somebody else has taken it off, and the object is gone.
        return


async def _write_finalizers(kube: KubeAPI, kind: Kind[R], resource: R, finalizers: tuple[str, ...]) -> R:
    metadata = resource.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": list(finalizers)}}
    return await kube.patch(kind, metadata.namespace, metadata.name, patch)


async def _infrastructure_of(kube: KubeAPI, cluster: capi.Cluster | None) -> OxideCluster | None:
    reference = cluster.spec.infrastructure_ref if cluster is not None else None
    if cluster is None or reference is None or reference.kind != "OxideCluster":
        return None
    return await find(kube, OXIDE_CLUSTERS, cluster.metadata.namespace, reference.name)
