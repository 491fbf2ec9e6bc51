"""The cluster of the demo: its manifests, and what is to be seen of it while it comes to be."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hack.controlplane.programs import KUBE_APISERVER
from hack.demo.management import Management
from hack.demo.rack import PROJECT, DemoRack

__all__ = ["CLUSTER_NAME", "NAMESPACE", "NODES", "Row", "apply_cluster", "infrastructure_stands", "machine_of", "rows"]

NAMESPACE: Final = "demo"
CLUSTER_NAME: Final = "demo"
TEMPLATE: Final = Path(__file__).resolve().parents[2] / "config" / "templates" / "cluster-template.yaml"
CONTROL_PLANES: Final = 1
WORKERS: Final = 2
NODES: Final = CONTROL_PLANES + WORKERS
IMAGE_ID: Final = "6f3f8a0e-5a86-4f0c-9d9e-1a0e7ac3f0d1"
"""Of the image in rack.yaml, which stands for what nobody boots."""

_INFRASTRUCTURE: Final = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1"
_CORE: Final = "/apis/cluster.x-k8s.io/v1beta2"
_SMALL: Final = {"NCPUS": "2", "MEMORY": "3Gi", "DISK_SIZE": "10Gi"}
"""For machines that share one computer."""

Row = tuple[str, str, str]
"""Kind, name, and how it is."""


def apply_cluster(management: Management, rack: DemoRack) -> None:
    """Make the namespace, the credentials, and the cluster of the template."""
    credentials = f"""apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
---
apiVersion: v1
kind: Secret
metadata:
  name: oxide-credentials
  namespace: {NAMESPACE}
  labels:
    clusterctl.cluster.x-k8s.io/move: ""
data:
  oxide-host: {_encode(rack.url)}
  oxide-token: {_encode(rack.token)}
"""
    # By standard input: an argument could be read by every user of the computer.
    management.kubectl("apply", "-f", "-", stdin=credentials)
    image = rack.image
    variables = {"OXIDE_PROJECT": PROJECT, "OXIDE_IMAGE_ID": image.id if image is not None else IMAGE_ID}
    if image is not None:
        variables |= {f"{role}_{name}": _SMALL[name] for role in ("CONTROL_PLANE", "WORKER") for name in _SMALL}
    manifest = management.clusterctl(
        *("generate", "cluster", CLUSTER_NAME, "--from", os.fspath(TEMPLATE), "--target-namespace", NAMESPACE),
        *("--kubernetes-version", image.kubernetes if image is not None else KUBE_APISERVER.version),
        *("--control-plane-machine-count", str(CONTROL_PLANES), "--worker-machine-count", str(WORKERS)),
        variables=variables,
    )
    management.kubectl("apply", "-f", "-", stdin=manifest)


def rows(management: Management, rack: DemoRack) -> list[Row]:
    """What there is now, first in Cluster API, then on the rack."""
    found: list[Row] = []
    for kind, path in (
        ("Cluster", f"{_CORE}/namespaces/{NAMESPACE}/clusters"),
        ("OxideCluster", f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxideclusters"),
        ("Machine", f"{_CORE}/namespaces/{NAMESPACE}/machines"),
        ("OxideMachine", f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxidemachines"),
    ):
        found += [(kind, item["metadata"]["name"], _state(item)) for item in management.client.get(path)["items"]]
    names = {}
    for instance in rack.list("instances"):
        names[instance["id"]] = instance["name"]
        found.append(("instance", instance["name"], instance["run_state"]))
    for floating_ip in rack.list("floating-ips"):
        holder = floating_ip["instance_id"]
        where = f"on {names.get(holder, holder)}" if holder else "attached to nothing"
        found.append(("floating IP", floating_ip["name"], f"{floating_ip['ip']}, {where}"))
    return found


def machine_of(management: Management, instance: str) -> str:
    """The name of the OxideMachine of an instance with this id."""
    listed = management.client.get(f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxidemachines")["items"]
    (name,) = (each["metadata"]["name"] for each in listed if each["spec"].get("providerID") == f"oxide://{instance}")
    return str(name)


def infrastructure_stands(found: Sequence[Row]) -> bool:
    """Whether the cluster's infrastructure stands: an instance runs and carries the endpoint."""
    is_running = any(kind == "instance" and state == "running" for kind, _, state in found)
    is_held = any(kind == "floating IP" and ", on " in state for kind, _, state in found)
    is_reported = any(kind == "OxideMachine" and state.startswith("Ready") for kind, _, state in found)
    return is_running and is_held and is_reported


def _state(item: dict[str, Any]) -> str:
    """The condition that says most: Ready, or for Cluster API's own kinds Available."""
    conditions = {each["type"]: each for each in item.get("status", {}).get("conditions") or ()}
    condition = conditions.get("Ready") or conditions.get("Available")
    if condition is None:
        return "no condition yet"
    words = f"{condition['type']}: {condition['reason']}" if condition["status"] == "True" else condition["reason"]
    message = (condition.get("message") or "").strip().splitlines()
    return f"{words}: {message[0].removeprefix('* ')}" if message else words


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
