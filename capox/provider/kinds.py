"""The kinds that the provider reads and writes, as its Kubernetes client knows them."""

from __future__ import annotations

from typing import Final

from capox.api import capi, v1alpha1
from capox.kube.kind import Kind

__all__ = ["CLUSTERS", "MACHINES", "OXIDE_CLUSTERS", "OXIDE_MACHINES", "OXIDE_MACHINE_TEMPLATES"]

_CAPI_VERSION: Final = "v1beta2"

CLUSTERS: Final = Kind(capi.Cluster, capi.GROUP, _CAPI_VERSION, "clusters")
MACHINES: Final = Kind(capi.Machine, capi.GROUP, _CAPI_VERSION, "machines")
OXIDE_CLUSTERS: Final = Kind(v1alpha1.OxideCluster, v1alpha1.GROUP, v1alpha1.VERSION, "oxideclusters")
OXIDE_MACHINES: Final = Kind(v1alpha1.OxideMachine, v1alpha1.GROUP, v1alpha1.VERSION, "oxidemachines")
OXIDE_MACHINE_TEMPLATES: Final = Kind(
    v1alpha1.OxideMachineTemplate, v1alpha1.GROUP, v1alpha1.VERSION, "oxidemachinetemplates"
)
