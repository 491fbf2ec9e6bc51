"""The add-on with a real management cluster, real workload clusters and the rights that are shipped."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capox.ownership import OwnerMark, format_mark
from capox.provider.ccm_addon_kinds import INSTALLED
from capox.provider.ccm_addon_manifests import NAME, packaged
from hack.controlplane.binaries import Binaries
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import RequestError
from hack.controlplane.pki import CertificateAuthority, kubeconfig
from hack.controlplane.workload import WorkloadCluster
from tests.integration.provider_process import CONFIG
from tests.integration.stage import TOKEN, Stage, open_stage
from tests.integration.waiting import eventually

IMAGE = "registry.example.com/capox:v1"
CCM_TOKEN = "oxide-token-viewer"
"""Of a user who is no administrator."""

CONDITION = "CloudControllerManagerReady"
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
DAEMON_SET = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{NAME}"
DEPLOYMENT = "web-cloud-controller-manager"

SECONDS = 120.0

pytestmark = pytest.mark.timeout(900)
"""Each of these brings a second apiserver up, and one waits for what is looked at every ten seconds."""


@pytest.fixture
def stage(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A rack and the provider; the control plane is shared."""
    with open_stage(own_kinds, namespace, tmp_path, f"--ccm-image={IMAGE}", is_provider_started=False) as stage:
        yield stage


@pytest.fixture
def workload(
    own_kinds: ManagementCluster, binaries: Binaries, namespace: str, tmp_path: Path
) -> Iterator[WorkloadCluster]:
    """The API of the Cluster `web`."""
    with WorkloadCluster(binaries, own_kinds, name="web", namespace=namespace, directory=tmp_path / "web") as plane:
        yield plane


def find(plane: WorkloadCluster, path: str) -> Any:
    """Read an object; None when there is none."""
    try:
        return plane.client.get(path)
    except RequestError as error:
        if error.status == 404:
            return None
        raise


def installed(plane: WorkloadCluster) -> set[str]:
    """What is there of what is installed."""
    found = set()
    for document in packaged():
        kind, metadata = document["kind"], document["metadata"]
        path = f"/api/v1/namespaces/kube-system/secrets/{NAME}"
        if kind != "Secret":
            path = INSTALLED[kind].path(metadata.get("namespace"), metadata["name"])
        if find(plane, path) is not None:
            found.add(f"{kind} {metadata['name']} {metadata.get('namespace', '')}")
    return found


def credentials(plane: WorkloadCluster) -> dict[str, str]:
    """What the Secret in the cluster holds."""
    secret = find(plane, f"/api/v1/namespaces/kube-system/secrets/{NAME}") or {}
    return {key: base64.b64decode(value).decode() for key, value in secret.get("data", {}).items()}


def run_pods(plane: WorkloadCluster) -> None:
    """Do what the controller of DaemonSets and a kubelet do."""
    generation = plane.client.get(DAEMON_SET)["metadata"]["generation"]
    counts = {"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1}
    status = counts | {"numberReady": 1, "numberMisscheduled": 0, "observedGeneration": generation}
    plane.client.patch_status(DAEMON_SET, {"status": status})


def told(stage: Stage, name: str, reason: str) -> str:
    """Wait until the condition of an OxideCluster has a reason; gives its message, which may be empty."""

    def seen() -> dict[str, str]:
        found = stage.condition("oxidecluster", name, CONDITION)
        return found if found.get("reason") == reason else {}

    return eventually(f"{name} is {reason}", seen, within_seconds=SECONDS)["message"]


def change(stage: Stage, spec: dict[str, Any]) -> None:
    """Change the OxideCluster's `cloudControllerManager`."""
    patch = json.dumps({"spec": {"cloudControllerManager": spec}})
    stage.plane.kubectl("patch", "oxidecluster", "web", "-n", stage.namespace, "--type=merge", "-p", patch)


def may(plane: WorkloadCluster, verb: str, resource: str, namespace: str = "default") -> bool:
    """Whether the account in the cluster may do something."""
    group, _, plural = resource.rpartition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:kube-system:{NAME}",
            "resourceAttributes": {"verb": verb, "group": group, "resource": plural, "namespace": namespace},
        },
    }
    answer = plane.client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_the_life_of_a_cloud_controller_manager(stage: Stage, workload: WorkloadCluster) -> None:
    """Powerful credentials refused, then installed, ready, repaired, re-keyed, removed; no token is told anywhere."""
    stage.apply(stage.secret("oxide-ccm", {"oxide-host": stage.rack.url, "oxide-token": CCM_TOKEN}))
    stage.apply(*stage.plain_cluster("web"))
    workload.add_node("web-0", provider_id=None, is_control_plane=True, taints=[UNINITIALIZED])
    stage.provider.start()
    message = told(stage, "web", "CredentialsTooPowerful")
    assert "silo_admin" in message
    assert installed(workload) == set()

    change(stage, {"credentialsRef": {"name": "oxide-ccm"}})
    told(stage, "web", "Installing")
    everything = installed(workload)
    assert len(everything) == len(packaged())
    cluster_id = stage.get("oxidecluster", "web")["spec"]["clusterID"]
    daemon_set = workload.client.get(DAEMON_SET)
    assert daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert {each["manager"] for each in daemon_set["metadata"]["managedFields"]} == {"capox-ccm-addon"}
    assert credentials(workload) == {
        "oxide-host": stage.rack.url,
        "oxide-token": CCM_TOKEN,
        "oxide-project": "demo",
    }
    config_map = workload.client.get(f"/api/v1/namespaces/kube-system/configmaps/{NAME}")
    assert config_map["data"]["CAPOX_CLUSTER_ID"] == cluster_id
    run_pods(workload)
    told(stage, "web", "Running")

    assert may(workload, "patch", "nodes")
    assert may(workload, "list", "coordination.k8s.io/leases", "kube-node-lease")
    assert may(workload, "create", "authentication.k8s.io/tokenreviews")
    assert not may(workload, "get", "secrets", "kube-system")
    assert not may(workload, "update", "services")

    # Nothing is applied again that is as it should be: a restart looks at everything.
    versions = workload.client.get(DAEMON_SET)["metadata"]["resourceVersion"]
    workload.client.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}")
    stage.provider.stop()
    stage.provider.start()
    eventually("the role is there again", lambda: installed(workload) == everything, within_seconds=SECONDS)
    assert workload.client.get(DAEMON_SET)["metadata"]["resourceVersion"] == versions

    moved = stage.rack.url.replace("127.0.0.1", "localhost")
    stage.apply(stage.secret("oxide-ccm", {"oxide-host": moved, "oxide-token": CCM_TOKEN}))
    stage.annotate("oxidecluster", "web", "cluster.x-k8s.io/looked-at=again")
    eventually(
        "the new credentials are there", lambda: credentials(workload)["oxide-host"] == moved, within_seconds=SECONDS
    )
    assert workload.client.get(DAEMON_SET)["metadata"]["resourceVersion"] == versions
    stage.apply(stage.secret("oxide-ccm", {"oxide-host": moved, "oxide-token": "wrong-token-of-tests"}))
    stage.annotate("oxidecluster", "web", "cluster.x-k8s.io/looked-at=once-more")
    told(stage, "web", "CredentialsInvalid")
    assert credentials(workload)["oxide-token"] == CCM_TOKEN

    change(stage, {"mode": "Unmanaged"})
    told(stage, "web", "Unmanaged")
    assert installed(workload) == set()
    said = stage.provider.log_file.read_text() + json.dumps([stage.get("oxidecluster", "web"), stage.objects("event")])
    assert CCM_TOKEN not in said
    assert TOKEN not in said


def test_floating_ips_of_services_go_with_their_cluster(stage: Stage) -> None:
    """Those that bear its id and a Service's mark, but for the one to be kept; strangers' stay (no Nodes are left)."""
    stage.apply(*stage.plain_cluster("web"))
    stage.provider.start()
    stage.await_ready("oxidecluster", "web")
    cluster_id = stage.get("oxidecluster", "web")["spec"]["clusterID"]

    def add(name: str, owner: str, **further: str) -> None:
        mark = OwnerMark(kind="Service", namespace="a", name=name, uid="u", cluster_id=owner, further=further)
        allocator = {"type": "auto", "pool_selector": {"type": "auto"}}
        body = {"name": name, "description": format_mark(mark), "address_allocator": allocator}
        stage.tell("/v1/floating-ips", body)

    add("goes", cluster_id)
    add("kept", cluster_id, reclaim="retain")
    add("other", "another-cluster")
    stage.delete_cluster("web")
    assert sorted(each["name"] for each in stage.on_rack("floating-ips")) == ["kept", "other"]


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A port of loopback at which connections are taken and nothing is ever said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def test_bad_neighbours_are_told_apart_and_slow_nobody(stage: Stage, workload: WorkloadCluster) -> None:
    """One that is silent, one whose kubeconfig would run a program: told, and the next one is served meanwhile."""
    authority = CertificateAuthority("bad").key_pair.certificate
    with silent_server() as port:
        text = kubeconfig(f"https://127.0.0.1:{port}", authority, token="token-of-nobody")
        evil = json.loads(text)
        evil["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}}
        for name, value in (("dead", text), ("evil", json.dumps(evil).encode())):
            stage.apply(stage.secret(f"{name}-kubeconfig", {"value": value}), *stage.plain_cluster(name))
        stage.apply(stage.secret("oxide-ccm", {"oxide-host": stage.rack.url, "oxide-token": CCM_TOKEN}))
        ccm = {"credentialsRef": {"name": "oxide-ccm"}}
        stage.apply(*stage.plain_cluster("web", cloudControllerManager=ccm))
        workload.add_node("web-0", provider_id=None, is_control_plane=True, taints=[UNINITIALIZED])
        stage.provider.start()
        told(stage, "web", "Installing")
        message = told(stage, "evil", "KubeconfigRefused")
        assert "the user has exec" in message
        told(stage, "dead", "WaitingForWorkloadCluster")
        eventually(
            "the silence is told",
            lambda: "no answer in 10 s" in stage.condition("oxidecluster", "dead", CONDITION)["message"],
            within_seconds=SECONDS,
        )


def test_at_home_it_needs_rights_that_are_switched_on(stage: Stage, workload: WorkloadCluster) -> None:
    """Without them a condition says what to apply; with them a Deployment runs beside the OxideCluster."""
    stage.apply(*stage.plain_cluster("web", cloudControllerManager={"placement": "ManagementCluster"}))
    workload.add_node("web-0", provider_id=None, is_control_plane=True, taints=[UNINITIALIZED])
    stage.provider.start()
    message = told(stage, "web", "InvalidConfiguration")
    assert "config/ccm-at-home" in message
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/{DEPLOYMENT}"
    try:
        stage.plane.kubectl("apply", "--server-side", "-k", str(CONFIG / "ccm-at-home"))
        stage.annotate("oxidecluster", "web", "cluster.x-k8s.io/looked-at=again")
        told(stage, "web", "Installing")
        deployment = stage.plane.client.get(path)
        assert deployment["metadata"]["ownerReferences"][0]["name"] == "web"
        assert installed(workload) == set()
        change(stage, {"mode": "Unmanaged", "placement": "ManagementCluster"})
        told(stage, "web", "Unmanaged")
        with pytest.raises(RequestError, match="not found"):
            stage.plane.client.get(path)
    finally:
        stage.plane.kubectl("delete", "-k", str(CONFIG / "ccm-at-home"))
