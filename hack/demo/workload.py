"""The workload cluster, as its administrator sees it: Nodes, and a Service with an address of the rack."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack.controlplane.errors import RequestError
from hack.controlplane.pki import write_private
from hack.controlplane.plane import CommandError
from hack.demo.cluster import CLUSTER_NAME, NAMESPACE, NODES, Row
from hack.demo.management import Management

__all__ = [
    "SERVICE",
    "SERVICE_PORT",
    "Workload",
    "address_of",
    "deployment",
    "fetch",
    "is_initialized",
    "is_ready",
    "node_rows",
    "nodes_are_ready",
]

SERVICE: Final = "hello"
SERVICE_PORT: Final = 80
POD_PORT: Final = 8080
UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_REQUEST_TIMEOUT: Final = "10s"
_COMMAND_SECONDS: Final = 60.0
_FETCH_SECONDS: Final = 3.0

_SERVER: Final = """\
import http.server, os
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"Hello from Pod {os.uname().nodename} on Node {os.environ['NODE']}\\n".encode())
http.server.ThreadingHTTPServer(("", 8080), Hello).serve_forever()
"""


class Workload:
    """The cluster, once it has a kubeconfig.

    Args:
        kubectl: the program.
        directory: where the kubeconfig goes, with mode 0600.
    """

    def __init__(self, kubectl: Path, directory: Path) -> None:
        self._kubectl = kubectl
        self._directory = directory

    @property
    def kubeconfig(self) -> Path:
        """The file by which the administrator logs in."""
        return self._directory / f"{CLUSTER_NAME}.kubeconfig"

    def fetch_kubeconfig(self, management: Management) -> bool:
        """Write the kubeconfig that Cluster API has made; False as long as there is none."""
        if self.kubeconfig.exists():
            return True
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{CLUSTER_NAME}-kubeconfig"
        try:
            secret = management.client.get(path)
        except (RequestError, CommandError):
            return False
        write_private(self.kubeconfig, base64.b64decode(secret["data"]["value"]))
        return True

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl in it.

        Raises:
            CommandError: it failed.
        """
        own = ("--kubeconfig", str(self.kubeconfig), f"--request-timeout={_REQUEST_TIMEOUT}")
        try:
            done = subprocess.run(
                [self._kubectl, *own, *words],
                env={"HOME": str(self._directory), "PATH": os.defpath},
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"kubectl {words[0]}: no answer within {_COMMAND_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise CommandError(f"kubectl {' '.join(words)} failed: {done.stderr.strip()}")
        return done.stdout

    def nodes(self) -> list[dict[str, Any]]:
        """Its Nodes; none as long as nobody answers."""
        return self._list("/api/v1/nodes")

    def pods(self) -> list[dict[str, Any]]:
        """The Pods of the demo's deployment; none as long as nobody answers."""
        return self._list(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{SERVICE}")

    def service(self) -> dict[str, Any]:
        """The demo's Service.

        Raises:
            CommandError: it could not be read.
        """
        found: dict[str, Any] = json.loads(
            self.kubectl("get", "--raw", f"/api/v1/namespaces/default/services/{SERVICE}")
        )
        return found

    def expose(self, image: str) -> None:
        """Make a small deployment, and a Service of type LoadBalancer for it as every user does.

        What is there already stays, so after a failure it can be called again.

        Args:
            image: one with Python that the machines have.

        Raises:
            CommandError: it was refused.
        """
        self.kubectl("apply", "-f", "-", stdin=json.dumps(deployment(image)))
        if self._list(f"/api/v1/namespaces/default/services?fieldSelector=metadata.name%3D{SERVICE}"):
            return
        self.kubectl(
            *("expose", "deployment", SERVICE, "--type", "LoadBalancer"),
            *("--port", str(SERVICE_PORT), "--target-port", str(POD_PORT)),
        )

    def _list(self, path: str) -> list[dict[str, Any]]:
        try:
            # The path itself: to find it by a kind's name, kubectl would ask for all kinds first.
            items: list[dict[str, Any]] = json.loads(self.kubectl("get", "--raw", path))["items"]
        except CommandError:
            return []
        return items


def fetch(address: str) -> str | None:
    """What answers at an address of the rack; None when nothing does."""
    # A proxy of the person's has no way to an address of this computer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}:{SERVICE_PORT}/", timeout=_FETCH_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def node_rows(nodes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What there is to be seen of Nodes."""
    found = []
    for node in nodes:
        words = "Ready" if is_ready(node) else "not Ready"
        if not is_initialized(node):
            words += ", waits for the cloud controller manager"
        found.append(("Node", node["metadata"]["name"], words))
    return found


def nodes_are_ready(found: Sequence[Row]) -> bool:
    """Whether all Nodes of the cluster are there and Ready."""
    nodes = [state for kind, _, state in found if kind == "Node"]
    return len(nodes) == NODES and all(state.startswith("Ready") for state in nodes)


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a Node, or a Pod, says so."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_initialized(node: Mapping[str, Any]) -> bool:
    """Whether a cloud controller manager has taken a Node."""
    return UNINITIALIZED not in {taint["key"] for taint in node.get("spec", {}).get("taints") or ()}


def address_of(service: Mapping[str, Any]) -> str | None:
    """The floating IP of a Service: its first address, behind which there is a translation; None before that."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return next((str(each["ip"]) for each in ingress if each.get("ipMode") == "Proxy"), None)


def deployment(image: str) -> dict[str, Any]:
    """Two Pods that tell who answers.

    Args:
        image: one with Python.
    """
    labels = {"app": SERVICE}
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": SERVICE,
        "image": image,
        "command": ["python3", "-c", _SERVER],
        "env": [node],
        "ports": [{"containerPort": POD_PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": POD_PORT}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SERVICE, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "enableServiceLinks": False},
            },
        },
    }
