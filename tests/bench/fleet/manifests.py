"""A fleet as a user would write it: plain Machines with given bootstrap Secrets, spread over a few Clusters."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["IN_MEMORY", "Document", "Fleet", "Infrastructure", "oxide", "path_of"]

Document = dict[str, Any]

_GROUP: Final = "infrastructure.cluster.x-k8s.io"
_CORE: Final = "cluster.x-k8s.io/v1beta2"

MACHINES_PER_CLUSTER: Final = 50
"""20 clusters at 1000 machines."""

CREDENTIALS: Final = "oxide-credentials"

_PLURALS: Final = {
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Cluster": f"/apis/{_CORE}/namespaces/{{namespace}}/clusters",
    "Machine": f"/apis/{_CORE}/namespaces/{{namespace}}/machines",
    "OxideCluster": f"/apis/{_GROUP}/v1alpha1/namespaces/{{namespace}}/oxideclusters",
    "OxideMachine": f"/apis/{_GROUP}/v1alpha1/namespaces/{{namespace}}/oxidemachines",
    "DevCluster": f"/apis/{_GROUP}/v1beta2/namespaces/{{namespace}}/devclusters",
    "DevMachine": f"/apis/{_GROUP}/v1beta2/namespaces/{{namespace}}/devmachines",
}


@dataclasses.dataclass(frozen=True)
class Infrastructure:
    """A provider's kinds, and what their objects ask for.

    Attributes:
        version: Of its API.
        cluster_kind: Of the infrastructure of a Cluster.
        machine_kind: Of the infrastructure of a Machine.
        cluster_spec: What every one of the first has.
        machine_spec: What every one of the second has.
    """

    version: str
    cluster_kind: str
    machine_kind: str
    cluster_spec: Mapping[str, Any]
    machine_spec: Mapping[str, Any]


def oxide(image_id: str) -> Infrastructure:
    """This provider, with machines of the smallest size and an image of the rack."""
    return Infrastructure(
        version="v1alpha1",
        cluster_kind="OxideCluster",
        machine_kind="OxideMachine",
        cluster_spec={"credentialsRef": {"name": CREDENTIALS}, "project": "demo"},
        machine_spec={"imageID": image_id, "nCPUs": 1, "memory": "1Gi", "diskSize": "2Gi"},
    )


_AT_ONCE: Final = {"provisioning": {"startupDuration": "0s"}}

IN_MEMORY: Final = Infrastructure(
    version="v1beta2",
    cluster_kind="DevCluster",
    machine_kind="DevMachine",
    cluster_spec={"backend": {"inMemory": {}}},
    machine_spec={"backend": {"inMemory": {"vm": _AT_ONCE, "node": _AT_ONCE}}},
)
"""Cluster API's provider for development, whose machines are there at once: what is left is Cluster API's own time."""


@dataclasses.dataclass(frozen=True)
class Fleet:
    """So many machines of an infrastructure.

    Attributes:
        infrastructure: Whose.
        namespace: Where everything is.
        machines: How many Machines.
    """

    infrastructure: Infrastructure
    namespace: str
    machines: int

    @property
    def clusters(self) -> int:
        """How many Clusters."""
        return -(-self.machines // MACHINES_PER_CLUSTER)

    def batches(self) -> list[list[Document]]:
        """The documents; those of one batch belong together and are applied one after the other."""
        clusters = [self._cluster(f"fleet-{number:02}") for number in range(self.clusters)]
        return clusters + [
            self._machine(f"fleet-{number % self.clusters:02}", f"node-{number:04}") for number in range(self.machines)
        ]

    def _cluster(self, name: str) -> list[Document]:
        kinds = self.infrastructure
        infrastructure = self._object(f"{_GROUP}/{kinds.version}", kinds.cluster_kind, name, dict(kinds.cluster_spec))
        # The in-memory provider writes an annotation and does not think of there being none.
        infrastructure["metadata"]["annotations"] = {"bench": "fleet"}
        return [
            infrastructure,
            self._object(
                _CORE,
                "Cluster",
                name,
                {"infrastructureRef": {"apiGroup": _GROUP, "kind": kinds.cluster_kind, "name": name}},
            ),
        ]

    def _machine(self, cluster: str, name: str) -> list[Document]:
        kinds = self.infrastructure
        labels = {"cluster.x-k8s.io/cluster-name": cluster}
        bootstrap = self._object("v1", "Secret", f"{name}-bootstrap", None, labels)
        bootstrap["type"] = "cluster.x-k8s.io/secret"
        bootstrap["data"] = {"value": base64.b64encode(f"#cloud-config\n# {name}\n".encode()).decode()}
        return [
            bootstrap,
            self._object(f"{_GROUP}/{kinds.version}", kinds.machine_kind, name, dict(kinds.machine_spec), labels),
            self._object(
                _CORE,
                "Machine",
                name,
                {
                    "clusterName": cluster,
                    "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                    "infrastructureRef": {"apiGroup": _GROUP, "kind": kinds.machine_kind, "name": name},
                },
                labels,
            ),
        ]

    def _object(
        self,
        api_version: str,
        kind: str,
        name: str,
        spec: Mapping[str, Any] | None,
        labels: Mapping[str, str] | None = None,
    ) -> Document:
        metadata = {"name": name, "namespace": self.namespace, **({"labels": labels} if labels else {})}
        document = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        return document if spec is None else {**document, "spec": spec}


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """The API's path of an object, or of all of a kind in a namespace."""
    return _PLURALS[kind].format(namespace=namespace) + (f"/{name}" if name else "")
