"""A posed workload cluster is enough for Cluster API to carry machines to their Nodes."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from capox.api.v1alpha1 import CREDENTIALS_FINALIZER
from capox.provider.secret_guard import MOVE_LABEL
from hack.controlplane.workload import WorkloadCluster
from tests.integration.manifests import CORE, INFRASTRUCTURE, ClusterManifests, collection
from tests.integration.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.controlplane.binaries import Binaries
    from hack.controlplane.capi import ManagementCluster

MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture
def workload(
    own_kinds: ManagementCluster, binaries: Binaries, namespace: str, tmp_path: Path
) -> Iterator[WorkloadCluster]:
    """The API of the Cluster `posed`."""
    with WorkloadCluster(binaries, own_kinds, name="posed", namespace=namespace, directory=tmp_path) as plane:
        yield plane


class Infrastructure:
    """The test in the part of the infrastructure provider: it says that things exist, and Nodes appear.

    Args:
        management: where the objects are.
        workload: where the Nodes appear.
        namespace: of the objects.
    """

    def __init__(self, management: ManagementCluster, workload: WorkloadCluster, namespace: str) -> None:
        self._client = management.client
        self._workload = workload
        self._namespace = namespace
        self.provider_ids: dict[str, str] = {}

    def provision_cluster(self, name: str) -> None:
        """Say that the infrastructure of a Cluster is there."""
        path = f"{collection(INFRASTRUCTURE, 'v1alpha1', self._namespace, 'oxideclusters')}/{name}"
        self._client.patch_status(path, {"status": {"initialization": {"provisioned": True}}})

    def provision_machines(self) -> None:
        """Say so of every OxideMachine whose bootstrap data is ready, and let its Node join."""
        machines = collection(INFRASTRUCTURE, "v1alpha1", self._namespace, "oxidemachines")
        for item in self._client.get(machines)["items"]:
            name = item["metadata"]["name"]
            if name not in self.provider_ids and self._has_bootstrap_data(name):
                provider_id = f"oxide://{uuid.uuid4()}"
                path = f"{machines}/{name}"
                self._client.request("PATCH", path, {"spec": {"providerID": provider_id}}, content_type=MERGE_PATCH)
                self._client.patch_status(path, {"status": {"initialization": {"provisioned": True}}})
                self._workload.add_node(name, provider_id=provider_id, addresses={"Hostname": name})
                self.provider_ids[name] = provider_id

    def machines(self) -> list[dict[str, Any]]:
        """The Machines of the namespace."""
        items: list[dict[str, Any]] = self._client.get(collection(CORE, "v1beta2", self._namespace, "machines"))[
            "items"
        ]
        return items

    def _has_bootstrap_data(self, machine: str) -> bool:
        found = [item for item in self.machines() if item["metadata"]["name"] == machine]
        return bool(found) and "dataSecretName" in found[0]["spec"]["bootstrap"]


def test_machines_find_their_nodes(
    own_kinds: ManagementCluster, workload: WorkloadCluster, namespace: str, tmp_path: Path
) -> None:
    """From Cluster to nodeRef: a control plane machine, then a worker that joins, each found by its providerID."""
    manifests = ClusterManifests("posed", namespace, host=workload.host, port=workload.port)
    infrastructure = Infrastructure(own_kinds, workload, namespace)
    own_kinds.kubectl("apply", "-f", "-", stdin=json.dumps(manifests.document()))
    infrastructure.provision_cluster("posed")

    def machines_with_nodes() -> list[dict[str, Any]]:
        infrastructure.provision_machines()
        machines = infrastructure.machines()
        return machines if len(machines) == 2 and all("nodeRef" in item["status"] for item in machines) else []

    machines = eventually("a nodeRef in both Machines", machines_with_nodes, within_seconds=120)

    for machine in machines:
        name = machine["metadata"]["name"]
        assert machine["status"]["nodeRef"]["name"] == name
        assert machine["spec"]["providerID"] == infrastructure.provider_ids[name]
        node = workload.client.get(f"/api/v1/nodes/{name}")
        assert node["metadata"]["annotations"]["cluster.x-k8s.io/machine"] == name

    tree = own_kinds.clusterctl("describe", "cluster", "posed", "--namespace", namespace, "--echo")
    assert all(f"─OxideMachine {namespace}/{machine['metadata']['name']} " in tree for machine in machines)

    # The provider labels the Secrets that clusters use, and holds them.
    guarded = {"labels": {MOVE_LABEL: ""}, "finalizers": [CREDENTIALS_FINALIZER]}
    for secret, metadata in (("oxide-ccm", guarded), ("of-nobody", {})):
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, **metadata}}
        own_kinds.client.post(f"/api/v1/namespaces/{namespace}/secrets", document)
    moved = tmp_path / "moved"
    moved.mkdir()
    own_kinds.clusterctl("move", "--to-directory", str(moved), "--namespace", namespace)
    kinds = {path.name.split("_")[0] for path in moved.iterdir()}
    assert {"Cluster", "Machine", "OxideCluster", "OxideMachine", "OxideMachineTemplate", "Secret"} <= kinds
    secrets = " ".join(path.name for path in moved.iterdir() if path.name.startswith("Secret_"))
    assert "oxide-ccm" in secrets
    assert "of-nobody" not in secrets
    path = f"/api/v1/namespaces/{namespace}/secrets/oxide-ccm"
    own_kinds.client.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


def test_the_kubeconfig_secret_works(own_kinds: ManagementCluster, workload: WorkloadCluster, namespace: str) -> None:
    """`clusterctl get kubeconfig` yields one with which a Node, its providerID and its absence can be seen."""
    kubeconfig = workload.directory / "fetched.kubeconfig"
    kubeconfig.write_text(own_kinds.clusterctl("get", "kubeconfig", "posed", "--namespace", namespace))
    provider_id = f"oxide://{uuid.uuid4()}"
    workload.add_node("worker", provider_id=provider_id, is_ready=False)
    workload.add_node("bare", provider_id=None, is_control_plane=True)
    workload.remove_node("bare")

    nodes = json.loads(workload.kubectl("--kubeconfig", str(kubeconfig), "get", "nodes", "-o", "json"))["items"]

    assert [(node["metadata"]["name"], node["spec"]["providerID"]) for node in nodes] == [("worker", provider_id)]
    ready = {condition["type"]: condition["status"] for condition in nodes[0]["status"]["conditions"]}
    assert ready["Ready"] == "False"
