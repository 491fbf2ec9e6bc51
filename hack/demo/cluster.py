"""The cluster of the demo: its manifests, and what is to be seen of it while it comes to be."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Final

from hack.controlplane.capi import ManagementCluster
from hack.demo.rack import IMAGE_ID, PROJECT, DemoRack

__all__ = ["CLUSTER_NAME", "NAMESPACE", "apply_cluster", "is_there", "rows"]

NAMESPACE: Final = "demo"
CLUSTER_NAME: Final = "demo"
TEMPLATE: Final = Path(__file__).resolve().parents[2] / "config" / "templates" / "cluster-template.yaml"

_INFRASTRUCTURE: Final = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1"
_CORE: Final = "/apis/cluster.x-k8s.io/v1beta2"


def apply_cluster(plane: ManagementCluster, rack: DemoRack, kubernetes_version: str) -> None:
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
    plane.kubectl("apply", "-f", "-", stdin=credentials)
    manifest = plane.clusterctl(
        "generate",
        "cluster",
        CLUSTER_NAME,
        "--from",
        os.fspath(TEMPLATE),
        "--target-namespace",
        NAMESPACE,
        "--kubernetes-version",
        kubernetes_version,
        "--control-plane-machine-count",
        "1",
        "--worker-machine-count",
        "2",
        variables={"OXIDE_PROJECT": PROJECT, "OXIDE_IMAGE_ID": IMAGE_ID},
    )
    plane.kubectl("apply", "-f", "-", stdin=manifest)


def rows(plane: ManagementCluster, rack: DemoRack) -> list[tuple[str, str, str]]:
    """What there is now: kind, name, and how it is, first in Cluster API, then on the rack."""
    client = plane.client
    found: list[tuple[str, str, str]] = []
    for kind, path in (
        ("Cluster", f"{_CORE}/namespaces/{NAMESPACE}/clusters"),
        ("OxideCluster", f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxideclusters"),
        ("Machine", f"{_CORE}/namespaces/{NAMESPACE}/machines"),
        ("OxideMachine", f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxidemachines"),
    ):
        found += [(kind, item["metadata"]["name"], _state(item)) for item in client.get(path)["items"]]
    names = {}
    for instance in rack.list("instances"):
        names[instance["id"]] = instance["name"]
        found.append(("instance", instance["name"], instance["run_state"]))
    for floating_ip in rack.list("floating-ips"):
        holder = floating_ip["instance_id"]
        where = f"on {names.get(holder, holder)}" if holder else "attached to nothing"
        found.append(("floating IP", floating_ip["name"], f"{floating_ip['ip']}, {where}"))
    return found


def is_there(found: list[tuple[str, str, str]]) -> bool:
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
