"""A control plane that poses as the API of a workload cluster.

Cluster API looks at a workload cluster through two things: Secrets in the management cluster that are named after the
Cluster, and Nodes behind the kubeconfig in one of them. Here both are real, and nothing else is: no machine boots.
Whoever tests a provider marks instances as provisioned, adds the Nodes that they would have become, and sees Cluster
API carry on.

The certificate authority of the posing apiserver is handed to Cluster API as the Cluster's own (`<cluster>-ca`), as a
user may who brings certificates of their own. So every kubeconfig that KubeadmControlPlane makes later works here too,
provided that the Cluster's control plane endpoint is `host` and `port`.
"""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any, Final

from hack.controlplane.pki import LOOPBACK, KeyPair, kubeconfig
from hack.controlplane.plane import ControlPlane
from hack.controlplane.programs import KUBE_APISERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hack.controlplane.binaries import Binaries

CLUSTER_LABEL: Final = "cluster.x-k8s.io/cluster-name"
SECRET_TYPE: Final = "cluster.x-k8s.io/secret"  # noqa: S105  the type of a Secret, not one
CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"


class WorkloadCluster(ControlPlane):
    """The API of the Cluster `namespace/name`.

    Start it before the Cluster is applied: Cluster API makes certificates of its own when it finds none.

    Args:
        binaries: the programs; etcd, kube-apiserver and kubectl are used.
        management: the started management cluster; Secrets are written there.
        name: name of the Cluster.
        namespace: its namespace, which exists.
        directory: as for `ControlPlane`.
        environ: as for `ControlPlane`.
        with_controllers: as for `ControlPlane`, but off: no Node here has a kubelet, and kube-controller-manager would
            soon declare all of them lost.
    """

    def __init__(
        self,
        binaries: Binaries,
        management: ControlPlane,
        *,
        name: str,
        namespace: str = "default",
        directory: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        with_controllers: bool = False,
    ) -> None:
        super().__init__(binaries, directory=directory, environ=environ, with_controllers=with_controllers)
        self._management = management
        self._name = name
        self._namespace = namespace

    @property
    def host(self) -> str:
        """Host of the control plane endpoint that the Cluster must have."""
        return LOOPBACK

    def start_in_steps(self) -> Iterator[str]:
        """As `ControlPlane.start_in_steps`; once the apiserver answers, the Secrets are written."""
        for step in super().start_in_steps():
            if step == "kube-apiserver":
                self._write_secrets()
                self._write_kubeadm_config()
            yield step

    def add_node(
        self,
        name: str,
        *,
        provider_id: str | None,
        addresses: Mapping[str, str] | None = None,
        is_control_plane: bool = False,
        is_ready: bool = True,
        taints: Iterable[Mapping[str, str]] = (),
    ) -> None:
        """Add a Node, as a kubelet that registers would.

        Args:
            name: name of the Node.
            provider_id: `spec.providerID`; None leaves it for a cloud controller manager to fill in.
            addresses: address by type (`InternalIP`, `Hostname`, ...).
            is_control_plane: whether it bears the label of control plane nodes.
            is_ready: status of its Ready condition.
            taints: `{key, value, effect}` each.
        """
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if is_control_plane:
            labels[CONTROL_PLANE_LABEL] = ""
        specification: dict[str, Any] = {"taints": [dict(taint) for taint in taints]}
        if provider_id is not None:
            specification["providerID"] = provider_id
        self.client.post(
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": specification},
        )
        self.client.patch_status(f"/api/v1/nodes/{name}", {"status": _node_status(addresses or {}, is_ready=is_ready)})

    def remove_node(self, name: str) -> None:
        """Delete a Node."""
        self.client.request("DELETE", f"/api/v1/nodes/{name}")

    def _write_secrets(self) -> None:
        authority = self.pki.authority.key_pair
        accounts = self.pki.service_account_keys
        # An administrator as kubeadm's admin.conf has it: Cluster API does not care, but people read it.
        admin = self.pki.authority.client("kubernetes-admin", ["system:masters"])
        self._write_secret("ca", {"tls.crt": authority.certificate, "tls.key": authority.key})
        self._write_secret("sa", {"tls.crt": accounts.public, "tls.key": accounts.private})
        proxy: KeyPair = self.pki.front_proxy_authority.key_pair
        self._write_secret("proxy", {"tls.crt": proxy.certificate, "tls.key": proxy.key})
        self._write_secret("kubeconfig", {"value": kubeconfig(self.server, authority.certificate, user=admin)})

    def _write_secret(self, purpose: str, data: Mapping[str, bytes]) -> None:
        """Write `<cluster>-<purpose>`, the names that Cluster API looks for."""
        name = f"{self._name}-{purpose}"
        self._management.client.apply(
            f"/api/v1/namespaces/{self._namespace}/secrets/{name}",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": SECRET_TYPE,
                "metadata": {"name": name, "namespace": self._namespace, "labels": {CLUSTER_LABEL: self._name}},
                "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
            },
        )

    def _write_kubeadm_config(self) -> None:
        """Write what `kubeadm init` leaves behind last: for KubeadmControlPlane the proof that init is over."""
        document = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "clusterName": self._name,
            "controlPlaneEndpoint": f"{self.host}:{self.port}",
            "kubernetesVersion": KUBE_APISERVER.version,
        }
        self.client.apply(
            "/api/v1/namespaces/kube-system/configmaps/kubeadm-config",
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
                "data": {"ClusterConfiguration": json.dumps(document)},
            },
        )


def _node_status(addresses: Mapping[str, str], *, is_ready: bool) -> dict[str, Any]:
    ready = ("True", "KubeletReady") if is_ready else ("False", "KubeletNotReady")
    conditions = {"Ready": ready} | {
        f"{kind}Pressure": ("False", f"KubeletHasNo{kind}Pressure") for kind in ("Memory", "Disk", "PID")
    }
    return {
        "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": "posed by hack/controlplane"}
            for kind, (status, reason) in conditions.items()
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": KUBE_APISERVER.version,
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "containerd://2.0.0",
            "osImage": "none",
            "kernelVersion": "none",
            "bootID": "",
            "machineID": "",
            "systemUUID": "",
        },
    }
