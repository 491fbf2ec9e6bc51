"""The kinds that the add-on installs, read whole: what is there is compared with what should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict

from capox.kube.core_objects import Node
from capox.kube.kind import Kind
from capox.kube.objects import Resource

__all__ = [
    "CONFIG_MAPS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "INSTALLED",
    "NODES",
    "PODS",
    "SERVICE_ACCOUNTS",
    "ConfigMap",
    "Manifest",
    "Pod",
]


class Manifest(Resource):
    """An object with all that it says."""

    model_config = ConfigDict(extra="allow")

    def part(self, name: str) -> Mapping[str, Any]:
        """One part of it, such as `spec`; empty when there is none."""
        found = (self.model_extra or {}).get(name)
        return found if isinstance(found, Mapping) else {}

    def document(self) -> dict[str, Any]:
        """It as a JSON object, its metadata as far as anybody here looks at it."""
        return self.model_dump(mode="json", by_alias=True)


class ServiceAccount(Manifest):
    """A ServiceAccount."""


class ClusterRole(Manifest):
    """A ClusterRole."""


class ClusterRoleBinding(Manifest):
    """A ClusterRoleBinding."""


class Role(Manifest):
    """A Role."""


class RoleBinding(Manifest):
    """A RoleBinding."""


class ConfigMap(Manifest):
    """A ConfigMap."""

    @property
    def texts(self) -> dict[str, str]:
        """Its data."""
        return {key: value for key, value in self.part("data").items() if isinstance(value, str)}


class DaemonSet(Manifest):
    """A DaemonSet."""


class Deployment(Manifest):
    """A Deployment."""


class Pod(Manifest):
    """A Pod."""


_RBAC: Final = "rbac.authorization.k8s.io"

SERVICE_ACCOUNTS: Final = Kind(ServiceAccount, "", "v1", "serviceaccounts")
CONFIG_MAPS: Final = Kind(ConfigMap, "", "v1", "configmaps")
DAEMON_SETS: Final = Kind(DaemonSet, "apps", "v1", "daemonsets")
DEPLOYMENTS: Final = Kind(Deployment, "apps", "v1", "deployments")
PODS: Final = Kind(Pod, "", "v1", "pods")
NODES: Final = Kind(Node, "", "v1", "nodes", is_namespaced=False)

INSTALLED: Final[Mapping[str, Kind[Any]]] = {
    kind.name: kind
    for kind in (
        SERVICE_ACCOUNTS,
        Kind(ClusterRole, _RBAC, "v1", "clusterroles", is_namespaced=False),
        Kind(ClusterRoleBinding, _RBAC, "v1", "clusterrolebindings", is_namespaced=False),
        Kind(Role, _RBAC, "v1", "roles"),
        Kind(RoleBinding, _RBAC, "v1", "rolebindings"),
        CONFIG_MAPS,
        DAEMON_SETS,
        DEPLOYMENTS,
    )
}
"""The kinds by their names, the Secret's apart: what it holds is never kept in plain."""
