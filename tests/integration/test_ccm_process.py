"""The cloud controller manager on a real apiserver: Nodes from their taint to their end, and who may work and look."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hack.controlplane.capi import ManagementCluster
from tests.integration.ccm_process import LEASE, NAMESPACE, UNINITIALIZED, CCMProcess, Kubelets, install_rights
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

TOKEN = "oxide-token-admin"


class Scene:
    """A cluster with its rack, its kubelets and its cloud controller manager.

    Args:
        plane: The control plane.
        directory: For files.
        rack: The rack.
    """

    def __init__(self, plane: ManagementCluster, directory: Path, rack: RackProcess) -> None:
        self.plane = plane
        self.rack = rack
        self.kubelets = Kubelets(plane)
        self.ccm = CCMProcess(plane, directory, rack.url, TOKEN)

    def add_instance(self, name: str) -> str:
        """A running instance; gives its id."""
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 2,
            "memory": 4 * 2**30,
            "network_interfaces": {"type": "default_ipv4"},
        }
        with self.rack.client() as client:
            made = client.post("/v1/instances", params={"project": "demo"}, json=body)
            assert made.status_code == 201, made.text
            instance_id: str = made.json()["id"]
            eventually("it runs", lambda: self._state(client, instance_id) == "running")
        return instance_id

    def delete_instance(self, instance_id: str) -> None:
        """Stop and delete an instance."""
        with self.rack.client() as client:
            client.post(f"/v1/instances/{instance_id}/stop").raise_for_status()
            eventually("it is stopped", lambda: self._state(client, instance_id) == "stopped")
            client.delete(f"/v1/instances/{instance_id}").raise_for_status()

    def is_initialised(self, name: str) -> bool:
        """Whether a Node has lost its taint."""
        self.kubelets.beat()
        taints = self.kubelets.node(name)["spec"].get("taints") or []
        return not any(taint["key"] == UNINITIALIZED for taint in taints)

    def lease(self) -> Any:
        """The Lease's spec; empty before the first replica has made it, which may be after that one is ready."""
        return self.plane.client.get(LEASE)["spec"] if self.plane.client.exists(LEASE) else {}

    def events(self, reason: str) -> list[Any]:
        """The Events about Nodes that give a reason."""
        items: list[Any] = self.plane.client.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [each for each in items if each.get("reason") == reason and each["regarding"]["kind"] == "Node"]

    @staticmethod
    def _state(client: httpx.Client, instance_id: str) -> str:
        state: str = client.get(f"/v1/instances/{instance_id}").json()["run_state"]
        return state


@pytest.fixture
def scene(control_plane: ManagementCluster, tmp_path: Path) -> Iterator[Scene]:
    """A rack and a cloud controller manager for each story; the control plane is shared."""
    install_rights(control_plane)
    with RackProcess(tmp_path) as rack:
        scene = Scene(control_plane, tmp_path, rack)
        try:
            with scene.ccm:
                yield scene
        finally:
            scene.kubelets.clean()


def test_nodes_begin_and_end(scene: Scene) -> None:
    """Nodes are initialised in one write under the shipped RBAC; the Node of a deleted instance goes, others stay."""
    ids = {name: scene.add_instance(name) for name in ("node-1", "node-2", "node-3", "node-4")}
    for name in ids:
        scene.kubelets.register(name)
    for name in ids:
        eventually(f"{name} is initialised", functools.partial(scene.is_initialised, name))
    for name, instance_id in ids.items():
        node = scene.kubelets.node(name)
        assert node["spec"]["providerID"] == f"oxide://{instance_id}"
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "2-4"
        assert [each["type"] for each in node["status"]["addresses"]] == ["InternalIP", "Hostname"]
        assert not node["metadata"].get("finalizers")
    eventually("it was told of", lambda: scene.events("Synced"))
    assert scene.events("Synced")[0]["reportingController"] == "cloud-node-controller"

    scene.delete_instance(ids["node-2"])
    scene.kubelets.silence("node-2")
    eventually(
        "its Node is deleted",
        lambda: scene.kubelets.beat() and scene.kubelets.node("node-2") is None,
        within_seconds=180,
    )
    assert scene.events("DeletingNode")
    for name in ("node-1", "node-3", "node-4"):
        assert scene.kubelets.node(name) is not None
    assert scene.ccm.stop() == 0
    log = scene.ccm.log_file.read_text()
    assert "A permission is missing" not in log
    assert "Traceback" not in log
    assert TOKEN not in log


def test_a_service_gets_an_address_and_gives_it_back(scene: Scene, namespace: str) -> None:
    """S4, V1, R8: under the shipped RBAC, finalizer included; the floating IP is gone when the Service is."""
    scene.add_instance("carrier")
    scene.kubelets.register("carrier")
    eventually("the Node is initialised", lambda: scene.is_initialised("carrier"))
    (private,) = [each["address"] for each in scene.kubelets.node("carrier")["status"]["addresses"][:1]]
    path = f"/api/v1/namespaces/{namespace}/services"
    spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}
    scene.plane.client.post(path, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})

    def ingress() -> list[Any]:
        scene.kubelets.beat()
        found: list[Any] = scene.plane.client.get(f"{path}/web")["status"]["loadBalancer"].get("ingress") or []
        return found

    eventually("it has an address", lambda: len(ingress()) == 2, within_seconds=120)
    with scene.rack.client() as client:
        (floating_ip,) = client.get("/v1/floating-ips", params={"project": "demo"}).json()["items"]
    assert [(each["ip"], each["ipMode"]) for each in ingress()] == [(floating_ip["ip"], "Proxy"), (private, "VIP")]

    scene.plane.client.request("DELETE", f"{path}/web")
    eventually(
        "the Service is gone",
        lambda: scene.kubelets.beat() and not scene.plane.client.exists(f"{path}/web"),
        within_seconds=120,
    )
    with scene.rack.client() as client:
        assert client.get("/v1/floating-ips", params={"project": "demo"}).json()["items"] == []
    assert "Traceback" not in scene.ccm.log_file.read_text()


def test_a_rotated_token_is_taken_without_a_restart(scene: Scene) -> None:
    """R3: with a wrong token it is not ready and a Node waits; the right one is taken from the file."""
    scene.ccm.write_credentials(scene.rack.url, "oxide-token-nobody")
    scene.add_instance("rotated")
    scene.kubelets.register("rotated")
    eventually("it is not ready", lambda: scene.kubelets.beat() and scene.ccm.ask("/readyz")[0] == 500)
    assert scene.ccm.ask("/healthz")[0] == 200
    assert not scene.is_initialised("rotated")

    scene.ccm.write_credentials(scene.rack.url, TOKEN)
    eventually("the Node is initialised", lambda: scene.is_initialised("rotated"))
    eventually("it is ready", lambda: scene.ccm.ask("/readyz")[0] == 200)


def test_one_works_at_a_time(scene: Scene) -> None:
    """5.1, R1: the Lease has the name that all share, is given back in order, and its loss ends the process."""
    first = eventually("somebody leads", lambda: scene.lease().get("holderIdentity"))
    assert first.startswith(f"ccm-{scene.ccm.port}_")
    assert scene.ccm.stop() == 0
    assert not scene.lease().get("holderIdentity")

    scene.ccm.start()
    eventually("it leads again", lambda: scene.lease().get("holderIdentity") not in (None, "", first))
    stolen = {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}
    scene.plane.kubectl(
        "patch",
        "lease",
        "cloud-controller-manager",
        "-n",
        NAMESPACE,
        "--type=merge",
        "-p",
        json.dumps({"spec": stolen}),
    )
    assert scene.ccm.wait() == 1


def test_metrics_are_for_those_who_may(scene: Scene, namespace: str) -> None:
    """5.1: /metrics asks the apiserver who asks; without a token 401, without the right 403, with it the metrics."""
    token = scene.plane.client.post(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )["status"]["token"]
    assert scene.ccm.ask("/metrics")[0] == 401
    assert scene.ccm.ask("/metrics", "not-a-token")[0] == 401
    assert scene.ccm.ask("/metrics", token)[0] == 403

    name = "ccm-metrics-reader"
    scene.plane.kubectl("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
    scene.plane.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={NAMESPACE}:default"
    )
    try:
        eventually("it may", lambda: scene.ccm.ask("/metrics", token)[0] == 200)
        path = f"/api/v1/namespaces/{namespace}/services"
        spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}
        document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "scraped"}, "spec": spec}
        scene.plane.client.post(path, document)
        scene.add_instance("scraped")
        scene.kubelets.register("scraped")

        def sample(name: str) -> float:
            scene.kubelets.beat()
            lines = scene.ccm.ask("/metrics", token)[1].splitlines()
            return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

        followed = "service_controller_nodesync_latency_seconds_count"
        eventually("the Service has followed the Nodes", lambda: sample(followed) >= 1, within_seconds=60)
        assert sample("service_controller_update_loadbalancer_host_latency_seconds_count") >= 1
        assert sample("service_controller_loadbalancer_sync_total") >= 1
        assert sample("service_controller_nodesync_error_total") >= 0
        scene.plane.client.request("DELETE", f"{path}/scraped")
        eventually(
            "the Service is gone",
            lambda: scene.kubelets.beat() and not scene.plane.client.exists(f"{path}/scraped"),
            within_seconds=120,
        )
        text = scene.ccm.ask("/metrics", token)[1]
    finally:
        scene.plane.kubectl("delete", "clusterrole,clusterrolebinding", name)
    assert "node_controller_initial_node_sync_delay_seconds" in text
    assert 'capox_rack_calls_total{operation="project_view",result="success"} 1.0' in text
