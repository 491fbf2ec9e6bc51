"""The kinds that the cloud controller manager reads and writes, as its Kubernetes client knows them."""

from __future__ import annotations

from typing import Final

from capox.kube.core_objects import Namespace, Node, Pod, Service
from capox.kube.kind import Kind
from capox.kube.lease import LEASES

__all__ = ["LEASES", "NAMESPACES", "NODES", "PODS", "SERVICES"]

NODES: Final = Kind(Node, "", "v1", "nodes", is_namespaced=False)
"""Their namespace, where a call asks for one, is the empty text."""

SERVICES: Final = Kind(Service, "", "v1", "services")
PODS: Final = Kind(Pod, "", "v1", "pods")
NAMESPACES: Final = Kind(Namespace, "", "v1", "namespaces", is_namespaced=False)
