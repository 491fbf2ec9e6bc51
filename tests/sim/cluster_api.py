"""Cluster API's part in a simulation: what its controllers do to our objects, in the order in which they do it.

It makes machines (the OxideMachine before its Machine, C-IM-4), gives owners, copies what the provider reports, and
takes machines away (Machine first, then its OxideMachine, then the bootstrap Secret; section 4.1).
"""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any

from capox.kube import errors
from capox.kube.kind import SECRETS, Kind
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINES
from tests.sim.store import Store

NAMESPACE = "team"
CREDENTIALS = "oxide-credentials"
MACHINE_FINALIZER = "machine.cluster.x-k8s.io"
CLUSTER_FINALIZER = "cluster.cluster.x-k8s.io"
CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"


class ClusterAPI:
    """The core controllers.

    Args:
        store: The management cluster.
        dice: Decides how long things take.

    Attributes:
        bootstrap_data: The bootstrap data of each machine by name, for comparison with what its instance got.
    """

    def __init__(self, store: Store, dice: random.Random) -> None:
        self.store = store
        self.bootstrap_data: dict[str, bytes] = {}
        self._dice = dice

    async def run(self) -> None:
        """Reconcile for ever."""
        while True:
            await asyncio.sleep(self._dice.uniform(0.2, 0.6))
            for cluster in self.store.list(CLUSTERS, NAMESPACE):
                self._reconcile_cluster(cluster)
            for machine in self.store.list(MACHINES, NAMESPACE):
                self._reconcile_machine(machine)

    # What a user does.

    def add_cluster(self, name: str, **spec: Any) -> None:
        """Apply a Cluster with its OxideCluster."""
        infrastructure = {"apiGroup": OXIDE_CLUSTERS.group, "kind": "OxideCluster", "name": name}
        self._create(OXIDE_CLUSTERS, name, spec={"credentialsRef": {"name": CREDENTIALS}, "project": "demo", **spec})
        self._create(CLUSTERS, name, spec={"infrastructureRef": infrastructure}, finalizers=[CLUSTER_FINALIZER])

    def add_machine(self, cluster: str, name: str, spec: dict[str, Any], *, is_control_plane: bool = False) -> None:
        """Make a machine as KubeadmControlPlane or a MachineSet does."""
        role = {CONTROL_PLANE_LABEL: ""} if is_control_plane else {DEPLOYMENT_LABEL: "workers"}
        labels = {CLUSTER_LABEL: cluster} | role
        size = {"nCPUs": 2, "memory": "4Gi", "diskSize": "10Gi"} | spec
        self._create(OXIDE_MACHINES, name, labels=labels, spec=size)
        data = f"#cloud-config\n# secret of {name}: {self._dice.getrandbits(64):x}\n".encode()
        self.bootstrap_data[name] = data
        self._create_secret(f"{name}-bootstrap", {"value": data})
        machine_spec = {
            "clusterName": cluster,
            "version": "v1.36.3",
            "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
            "infrastructureRef": {"apiGroup": OXIDE_MACHINES.group, "kind": "OxideMachine", "name": name},
        }
        self._create(MACHINES, name, labels=labels, spec=machine_spec, finalizers=[MACHINE_FINALIZER])

    def add_credentials(self, host: str, token: str) -> None:
        """Make the Secret that clusters refer to."""
        self._create_secret(CREDENTIALS, {"oxide-host": host.encode(), "oxide-token": token.encode()})

    def delete_machine(self, name: str) -> None:
        """Delete a Machine; the rest follows."""
        self._delete(MACHINES, name)

    def delete_cluster(self, name: str) -> None:
        """Delete a Cluster; the rest follows."""
        self._delete(CLUSTERS, name)

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause or unpause a Cluster."""
        self.store.patch(CLUSTERS, NAMESPACE, name, {"spec": {"paused": paused or None}})

    def initialize_control_plane(self, name: str) -> None:
        """Report that the control plane has answered once."""
        status = {"status": {"initialization": {"controlPlaneInitialized": True}}}
        self.store.patch(CLUSTERS, NAMESPACE, name, status, subresource="status")

    def report_health(self, machine: str, *, is_healthy: bool) -> None:
        """Report what KubeadmControlPlane sees of a machine's apiserver, once its Node has registered."""
        status = {
            "nodeRef": {"name": machine},
            "conditions": [{"type": "APIServerPodHealthy", "status": "True" if is_healthy else "False"}],
        }
        self.store.patch(MACHINES, NAMESPACE, machine, {"status": status}, subresource="status")

    # What the controllers do.

    def _reconcile_cluster(self, cluster: Any) -> None:
        name = cluster["metadata"]["name"]
        infrastructure = self._find(OXIDE_CLUSTERS, name)
        if cluster["metadata"].get("deletionTimestamp"):
            self._delete_cluster_parts(name, has_infrastructure=infrastructure is not None)
            return
        if infrastructure is None:
            return
        self._own(OXIDE_CLUSTERS, infrastructure, cluster)
        if (infrastructure.get("status") or {}).get("initialization", {}).get("provisioned"):
            endpoint = infrastructure["spec"].get("controlPlaneEndpoint")
            self.store.patch(CLUSTERS, NAMESPACE, name, {"spec": {"controlPlaneEndpoint": endpoint}})
            status = {"status": {"initialization": {"infrastructureProvisioned": True}}}
            self.store.patch(CLUSTERS, NAMESPACE, name, status, subresource="status")

    def _delete_cluster_parts(self, name: str, *, has_infrastructure: bool) -> None:
        """Machines first, then the infrastructure, then the Cluster itself (section 4.2)."""
        machines = self.store.list(MACHINES, NAMESPACE, {CLUSTER_LABEL: name})
        if machines:
            for machine in machines:
                self._delete(MACHINES, machine["metadata"]["name"])
        elif has_infrastructure:
            self._delete(OXIDE_CLUSTERS, name)
        else:
            self.store.patch(CLUSTERS, NAMESPACE, name, {"metadata": {"finalizers": None}})

    def _reconcile_machine(self, machine: Any) -> None:
        name = machine["metadata"]["name"]
        infrastructure = self._find(OXIDE_MACHINES, name)
        if machine["metadata"].get("deletionTimestamp"):
            if infrastructure is not None:
                self._delete(OXIDE_MACHINES, name)
            else:
                self._delete(SECRETS, f"{name}-bootstrap")
                self.store.patch(MACHINES, NAMESPACE, name, {"metadata": {"finalizers": None}})
            return
        if infrastructure is None:
            return
        self._own(OXIDE_MACHINES, infrastructure, machine)
        provider_id = infrastructure["spec"].get("providerID")
        if (infrastructure.get("status") or {}).get("initialization", {}).get("provisioned") and provider_id:
            self.store.patch(MACHINES, NAMESPACE, name, {"spec": {"providerID": provider_id}})

    def _own(self, kind: Kind[Any], owned: Any, owner: Any) -> None:
        if owned["metadata"].get("ownerReferences"):
            return
        metadata = owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        patch = {"metadata": {"ownerReferences": [reference], "labels": {CLUSTER_LABEL: self._cluster_of(owner)}}}
        self.store.patch(kind, NAMESPACE, owned["metadata"]["name"], patch)

    def _cluster_of(self, owner: Any) -> str:
        return str(owner["spec"].get("clusterName") or owner["metadata"]["name"])

    def _create(
        self,
        kind: Kind[Any],
        name: str,
        *,
        spec: dict[str, Any],
        labels: dict[str, str] | None = None,
        finalizers: list[str] | None = None,
    ) -> None:
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}, "finalizers": finalizers or []}
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        self.store.create(kind, NAMESPACE, document)

    def _create_secret(self, name: str, values: dict[str, bytes]) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        metadata = {"name": name, "namespace": NAMESPACE}
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self.store.create(SECRETS, NAMESPACE, document)

    def _find(self, kind: Kind[Any], name: str) -> Any:
        try:
            return self.store.get(kind, NAMESPACE, name)
        except errors.NotFound:
            return None

    def _delete(self, kind: Kind[Any], name: str) -> None:
        try:
            self.store.delete(kind, NAMESPACE, name)
        except errors.NotFound:
            return
