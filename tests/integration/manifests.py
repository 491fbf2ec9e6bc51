"""A Cluster with this provider's kinds, as a user would write it; small, and without a rack to make it real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hack.controlplane.programs import KUBE_APISERVER

CORE = "cluster.x-k8s.io"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
IMAGE_ID = "0a4f2f1e-7c59-4d0b-9a53-5f6d0c1f7e21"


@dataclass(frozen=True)
class ClusterManifests:
    """The objects of one Cluster: a control plane of one machine and a MachineDeployment of one machine.

    Attributes:
        name: name of the Cluster and the beginning of all others.
        namespace: namespace of everything.
        host: host of the control plane endpoint.
        port: port of the control plane endpoint.
        replicas: machines of the control plane.
    """

    name: str
    namespace: str
    host: str = "192.0.2.10"
    port: int = 6443
    replicas: int = 1

    def document(self) -> dict[str, Any]:
        """All of them, as one List."""
        return {"apiVersion": "v1", "kind": "List", "items": self.objects()}

    def objects(self) -> list[dict[str, Any]]:
        """All of them, the Cluster last, as if a slow user had written it."""
        return [
            self.oxide_cluster(),
            self.oxide_machine_template(f"{self.name}-control-plane"),
            self.oxide_machine_template(f"{self.name}-workers"),
            self.kubeadm_control_plane(),
            self.kubeadm_config_template(),
            self.machine_deployment(),
            self.cluster(),
        ]

    def cluster(self) -> dict[str, Any]:
        """The Cluster."""
        return self._object(
            f"{CORE}/v1beta2",
            "Cluster",
            self.name,
            {
                "clusterNetwork": {"pods": {"cidrBlocks": ["10.244.0.0/16"]}},
                "infrastructureRef": _reference(INFRASTRUCTURE, "OxideCluster", self.name),
                "controlPlaneRef": _reference(CONTROL_PLANE, "KubeadmControlPlane", self.name),
            },
        )

    def oxide_cluster(self) -> dict[str, Any]:
        """The OxideCluster."""
        return self._object(
            f"{INFRASTRUCTURE}/v1alpha1",
            "OxideCluster",
            self.name,
            {
                "credentialsRef": {"name": "oxide-credentials"},
                "project": "demo",
                "vpc": "default",
                "subnet": "default",
                "controlPlaneEndpoint": {"host": self.host, "port": self.port},
            },
        )

    def oxide_machine_template(self, name: str) -> dict[str, Any]:
        """An OxideMachineTemplate."""
        machine = {"nCPUs": 4, "memory": "8Gi", "diskSize": "50Gi", "imageID": IMAGE_ID}
        template = {"template": {"spec": machine}}
        return self._object(f"{INFRASTRUCTURE}/v1alpha1", "OxideMachineTemplate", name, template)

    def kubeadm_control_plane(self) -> dict[str, Any]:
        """The KubeadmControlPlane. Its kubeadmConfigSpec may not be empty."""
        template = _reference(INFRASTRUCTURE, "OxideMachineTemplate", f"{self.name}-control-plane")
        return self._object(
            f"{CONTROL_PLANE}/v1beta2",
            "KubeadmControlPlane",
            self.name,
            {
                "replicas": self.replicas,
                "version": KUBE_APISERVER.version,
                "machineTemplate": {"spec": {"infrastructureRef": template}},
                "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": [self.host]}}},
            },
        )

    def kubeadm_config_template(self) -> dict[str, Any]:
        """The KubeadmConfigTemplate of the workers."""
        registration = {"kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}]}
        configuration = {"joinConfiguration": {"nodeRegistration": registration}}
        template = {"template": {"spec": configuration}}
        return self._object(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate", f"{self.name}-workers", template)

    def machine_deployment(self) -> dict[str, Any]:
        """The MachineDeployment."""
        name = f"{self.name}-workers"
        machine = {
            "clusterName": self.name,
            "version": KUBE_APISERVER.version,
            "bootstrap": {"configRef": _reference(BOOTSTRAP, "KubeadmConfigTemplate", name)},
            "infrastructureRef": _reference(INFRASTRUCTURE, "OxideMachineTemplate", name),
        }
        return self._object(
            f"{CORE}/v1beta2",
            "MachineDeployment",
            name,
            {
                "clusterName": self.name,
                "replicas": 1,
                "selector": {"matchLabels": {}},
                "template": {"spec": machine},
            },
        )

    def _object(self, api_version: str, kind: str, name: str, specification: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": specification}


def _reference(group: str, kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": group, "kind": kind, "name": name}


def collection(group: str, version: str, namespace: str, plural: str) -> str:
    """Path of the objects of a kind in a namespace."""
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"
