"""Services of type LoadBalancer on machines that boot, from the quick start on: nobody installs anything for them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from capox.provider.ccm_addon_manifests import NAME as MANAGER
from hack.nodeimage.register import RegisteredImage
from tests.e2e.management import (
    CLUSTER_TOKEN,
    NEXT_CLUSTER_TOKEN,
    Machines,
    await_initialized,
    open_machines,
)
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

CLUSTER = "web"
WORKERS = 2
SERVICES = "/api/v1/namespaces/default/services"
MANAGER_PODS = f"/api/v1/namespaces/kube-system/pods?labelSelector=app.kubernetes.io%2Fname%3D{MANAGER}"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
OPEN_PORTS = ("6443", "80", "81")
FAILOVER_SECONDS = 300
# What changed in the management cluster is looked at every two minutes, and a kubelet needs one more for its Pods.
ROTATION_SECONDS = 400

# The image is on every machine, because capox itself runs in it; nothing has to be fetched from anywhere.
BACKEND = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      # One on each worker: the one that is left answers when the other one's instance is stopped.
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {app: web}
      containers:
        - name: web
          image: IMAGE
          imagePullPolicy: Never
          command: [python3, -m, http.server, "8080", --directory, /etc/ssl]
          readinessProbe:
            httpGet: {port: 8080}
"""
ANSWER = "certs/"

State = TypeVar("State")


@pytest.fixture
def machines(docker_host: str, node_images: list[RegisteredImage], tmp_path: Path) -> Iterator[Machines]:
    """A management cluster, a provider and a rack whose firewall lets Services through."""
    with open_machines(tmp_path, docker_host, node_images[:1]) as made:
        made.lab.allow(
            {"name": "internal", "filters": {"hosts": [{"type": "vpc", "value": "default"}]}},
            {"name": "services", "filters": {"ports": list(OPEN_PORTS), "protocols": [{"type": "tcp"}]}},
        )
        yield made


def test_services_of_a_cluster(
    machines: Machines, node_images: list[RegisteredImage], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exposed and reached; moved when the holder stops; a rotated token; and no address stays, whoever deletes it."""
    before = world(machines)
    machines.make_cluster(CLUSTER, node_images[0], template="cluster-template.yaml", control_planes=1, workers=WORKERS)
    await_initialized(machines, CLUSTER, 1 + WORKERS)
    (pod,) = await_seen("the manager is there by itself", lambda: machines.objects(CLUSTER, MANAGER_PODS))
    await_seen("CoreDNS runs", lambda: available(machines, "kube-system", "coredns") == 2)

    expose(machines, pod["spec"]["containers"][0]["image"])
    address = await_seen("the Service has its address", lambda: external(machines, "web"))
    eventually("the Service answers", lambda: answers(address), within_seconds=120)

    gap = stop_holder(machines, address)
    with capsys.disabled():
        print(f"\nA holder was stopped; its Service answered again {gap:.1f} s later.")  # noqa: T201 - a figure for people

    rotate(machines)
    machines.command(CLUSTER, "expose", "deployment", "web", "--name=next", "--type=LoadBalancer", *ports(81))
    second = await_seen("a new Service has its address", lambda: external(machines, "next"))
    eventually("the new Service answers", lambda: answers(second, 81), within_seconds=120)
    (later,) = machines.objects(CLUSTER, MANAGER_PODS)
    assert later["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [each["restartCount"] for each in later["status"]["containerStatuses"]] == [0]

    machines.command(CLUSTER, "delete", "service", "next", "--timeout=50s")
    assert second not in addresses(machines)
    assert answers(address)

    machines.stage.delete_cluster(CLUSTER, within_seconds=900)
    eventually("rack and Docker are as before", lambda: world(machines) == before, within_seconds=60, every_seconds=1)


def await_seen(what: str, look: Callable[[], State]) -> State:
    """Wait until a look at the cluster gives something; each is a kubectl, which takes work itself."""
    return eventually(what, look, within_seconds=300, every_seconds=2)


def world(machines: Machines) -> Any:
    """What is in Docker and on the rack, but for its users, who get and lose tokens."""
    inventory = machines.lab.rack.control.inventory()
    projects = [silo["projects"] for silo in inventory["silos"]]
    return {"projects": projects, "pools": inventory["ip_pools"], "docker": machines.lab.ours()}


def available(machines: Machines, namespace: str, name: str) -> int:
    """How many Pods of a Deployment are available."""
    found = machines.objects(CLUSTER, f"/apis/apps/v1/namespaces/{namespace}/deployments")
    return sum(each["status"].get("availableReplicas", 0) for each in found if each["metadata"]["name"] == name)


def expose(machines: Machines, image: str) -> None:
    """Run two Pods that answer, and give them a Service, as users do."""
    machines.command(CLUSTER, "apply", "-f", "-", stdin=BACKEND.replace("IMAGE", image))
    machines.command(CLUSTER, "expose", "deployment", "web", "--type=LoadBalancer", *ports(80))
    await_seen("the Pods are there", lambda: available(machines, "default", "web") == WORKERS)


def ports(port: int) -> list[str]:
    """The words for kubectl that lead from a port to the Pods."""
    return [f"--port={port}", "--target-port=8080"]


def external(machines: Machines, service: str) -> str:
    """The floating IP of a Service, once its status tells it together with the private address of its Node."""
    found = [each for each in machines.objects(CLUSTER, SERVICES) if each["metadata"]["name"] == service]
    entries = found[0]["status"]["loadBalancer"].get("ingress", []) if found else []
    by_mode = {each["ipMode"]: each["ip"] for each in entries}
    return str(by_mode["Proxy"]) if by_mode.keys() == {"Proxy", "VIP"} else ""


def addresses(machines: Machines) -> dict[str, str | None]:
    """The instance at each floating IP of the rack."""
    return {each["ip"]: each["instance_id"] for each in machines.stage.on_rack("floating-ips")}


def answers(address: str, port: int = 80) -> bool:
    """Whether the Pods answer this computer at an address."""
    # A process of its own: the tests' own is kept on loopback.
    words = ["curl", "--silent", "--fail", "--max-time", "1", "--noproxy", "*", f"http://{address}:{port}/"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode == 0 and ANSWER in done.stdout


def stop_holder(machines: Machines, address: str) -> float:
    """Stop the instance that has an address, for good; gives after how many seconds the address answers again."""
    holder = str(addresses(machines)[address])
    (machine,) = (
        each for each in machines.stage.objects("oxidemachine") if each["spec"].get("providerID") == f"oxide://{holder}"
    )
    name = machine["metadata"]["name"]
    patch = json.dumps({"spec": {"powerPolicy": "Observe"}})
    machines.stage.plane.kubectl(
        *("patch", "oxidemachine", name, "-n", machines.stage.namespace, "--type=merge", "-p", patch)
    )
    (instance,) = (each for each in machines.stage.instances() if each["id"] == holder)
    machines.lab.power(instance["name"], "stop")
    began = time.monotonic()
    eventually(
        "another instance has the address, and it answers",
        lambda: addresses(machines)[address] not in (None, holder) and answers(address),
        within_seconds=FAILOVER_SECONDS,
    )
    gap = time.monotonic() - began
    nodes = {each["spec"]["providerID"] for each in machines.objects(CLUSTER, "/api/v1/nodes")}
    assert f"oxide://{addresses(machines)[address]}" in nodes
    await_seen("its Node is told to be shut down", lambda: SHUTDOWN in taints_of(machines, holder))
    assert machines.lab.instance(instance["name"])["run_state"] == "stopped"
    await_seen("the status tells the new Node", lambda: external(machines, "web") == address)
    return gap


def taints_of(machines: Machines, instance: str) -> set[str]:
    """The taints of the Node of an instance."""
    nodes = machines.objects(CLUSTER, "/api/v1/nodes")
    found = [each for each in nodes if each["spec"].get("providerID") == f"oxide://{instance}"]
    return {taint["key"] for node in found for taint in node["spec"].get("taints") or []}


def rotate(machines: Machines) -> None:
    """Put another token into the cluster's Secret, and delete the old one as soon as the workload cluster has it."""
    machines.add_credentials(NEXT_CLUSTER_TOKEN)
    wanted = machines.stage.secret("any", {"oxide-token": NEXT_CLUSTER_TOKEN})["data"]["oxide-token"]

    def is_there() -> bool:
        secret = machines.command(CLUSTER, "get", "secret", MANAGER, "-n", "kube-system", "-o", "json")
        return bool(json.loads(secret)["data"]["oxide-token"] == wanted)

    eventually("the cluster has the new token", is_there, within_seconds=ROTATION_SECONDS, every_seconds=2)
    with machines.lab.rack.client("cluster-next") as client:
        tokens = client.get("/v1/me/access-tokens").raise_for_status().json()["items"]
        (old,) = (each["id"] for each in tokens if each["time_expires"] is None)
        client.delete(f"/v1/me/access-tokens/{old}").raise_for_status()
    with machines.lab.rack.client(CLUSTER_TOKEN.removeprefix("oxide-token-")) as client:
        assert client.get("/v1/me").status_code == 401
