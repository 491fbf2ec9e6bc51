"""The owner mark of what is made for a cluster as a whole."""

from __future__ import annotations

from capox.api.v1alpha1 import OxideCluster
from capox.ownership import OwnerMark

__all__ = ["cluster_mark"]


def cluster_mark(cluster: OxideCluster) -> OwnerMark:
    """The mark of everything that is made for an OxideCluster."""
    metadata = cluster.metadata
    return OwnerMark(
        kind="OxideCluster",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        cluster_id=cluster.spec.cluster_id or "",
    )
