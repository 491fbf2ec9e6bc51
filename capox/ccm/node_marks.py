"""What is written on Nodes: the taints, labels and annotations of cloud controllers, and which instance a Node is."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from capox.kube.core_objects import Node, Taint
from capox.provider_id import PROVIDER_ID_PREFIX, ProviderIDError, parse_provider_id

__all__ = [
    "AUTOSCALER_TAINT",
    "CONTROL_PLANE_LABELS",
    "EXCLUDE_LABEL",
    "OUT_OF_SERVICE_TAINT",
    "PROVIDED_NODE_IP",
    "SHUTDOWN",
    "SHUTDOWN_TAINT",
    "UNINITIALIZED_TAINT",
    "has_shutdown_taint",
    "instance_id_of",
    "is_control_plane",
    "is_shutdown",
]

UNINITIALIZED_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
"""What a kubelet registers with and we remove; it is known by its key alone."""

SHUTDOWN_TAINT: Final = "node.cloudprovider.kubernetes.io/shutdown"
"""What a Node gets whose instance is stopped."""

SHUTDOWN: Final = Taint(key=SHUTDOWN_TAINT, effect="NoSchedule")
"""That taint as we write it; one with another effect is somebody else's."""

OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
"""What a person gives a Node that does not come back; never ours to give (2.1)."""

AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""What the autoscaler gives a Node that is about to go."""

EXCLUDE_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""What keeps a Node from carrying Services (3.5)."""

CONTROL_PLANE_LABELS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""What Nodes of the control plane are labelled with; the value does not matter."""

PROVIDED_NODE_IP: Final = "alpha.kubernetes.io/provided-node-ip"
"""Where a kubelet tells the addresses that it was given explicitly (1.5)."""


def instance_id_of(node: Node) -> UUID | None:
    """The instance that a Node's providerID names; None without one, or for one that is not an Oxide instance's (N10).

    Letters of either case are read: what a kubelet was told in capitals names the same instance.
    """
    provider_id = node.spec.provider_id
    prefix, rest = provider_id[: len(PROVIDER_ID_PREFIX)], provider_id[len(PROVIDER_ID_PREFIX) :]
    try:
        return UUID(parse_provider_id(prefix + rest.lower()))
    except ProviderIDError:
        return None


def is_control_plane(node: Node) -> bool:
    """Whether a Node belongs to the control plane."""
    return any(label in node.metadata.labels for label in CONTROL_PLANE_LABELS)


def is_shutdown(taint: Taint) -> bool:
    """Whether a taint is the one that a Node gets whose instance is stopped."""
    return (taint.key, taint.effect) == (SHUTDOWN.key, SHUTDOWN.effect)


def has_shutdown_taint(node: Node) -> bool:
    """Whether a Node has that taint."""
    return any(is_shutdown(taint) for taint in node.spec.taints)
