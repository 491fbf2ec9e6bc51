"""A cluster whose machines meet what happens on a rack: a rule that is missing, and a machine that dies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hack.nodeimage.register import RegisteredImage
from tests.e2e.management import Machines, is_ready, open_machines
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

CLUSTER = "web"
BOOT_SECONDS = 900
INTERNAL = {"name": "internal", "filters": {"hosts": [{"type": "vpc", "value": "default"}]}}
API = {"name": "api", "filters": {"ports": ["6443"], "protocols": [{"type": "tcp"}]}}


@pytest.fixture
def machines(docker_host: str, node_images: list[RegisteredImage], tmp_path: Path) -> Iterator[Machines]:
    """A management cluster, a provider and a rack of the test's own."""
    with open_machines(tmp_path, docker_host, node_images[:1]) as made:
        yield made


def test_a_cluster_on_a_rack_that_bites(machines: Machines, node_images: list[RegisteredImage]) -> None:
    """Without a rule for 6443 nobody reaches a cluster; a machine that is killed comes back as the Node it was."""
    machines.make_cluster(CLUSTER, node_images[0], template="cluster-template.yaml", control_planes=1, workers=1)
    nodes = eventually("two Nodes are Ready", lambda: ready_nodes(machines), within_seconds=BOOT_SECONDS)

    machines.lab.allow(INTERNAL)
    assert machines.objects(CLUSTER, "/api/v1/nodes") == []
    machines.lab.allow(INTERNAL, API)
    eventually("the API is reached again", lambda: ready_nodes(machines), within_seconds=120)

    name = next(node["metadata"]["name"] for node in nodes if "workers" in node["metadata"]["name"])
    (instance,) = (each for each in machines.stage.instances() if each["hostname"] == name)
    machines.lab.docker("kill", machines.lab.container(instance["name"]))

    restarted = eventually(
        "the rack has restarted the instance",
        lambda: machines.lab.instance(instance["name"])["time_last_auto_restarted"],
        within_seconds=60,
    )
    eventually(
        "its kubelet is at work again",
        lambda: lease_renewed(machines, name) > datetime.fromisoformat(restarted) and bool(ready_nodes(machines)),
        within_seconds=BOOT_SECONDS,
    )
    assert machines.lab.instance(instance["name"])["id"] == instance["id"]
    assert {uid(node) for node in machines.objects(CLUSTER, "/api/v1/nodes")} == {uid(node) for node in nodes}

    machines.stage.delete_cluster(CLUSTER, within_seconds=BOOT_SECONDS)
    assert machines.stage.instances() == []
    eventually("no machine is left", lambda: len(machines.containers()) == 1)


def ready_nodes(machines: Machines) -> list[dict[str, Any]]:
    """The cluster's Nodes when there are two and both are Ready."""
    nodes = machines.objects(CLUSTER, "/api/v1/nodes")
    return nodes if len(nodes) == 2 and all(map(is_ready, nodes)) else []


def lease_renewed(machines: Machines, name: str) -> datetime:
    """When a Node's kubelet was last heard of."""
    leases = machines.objects(CLUSTER, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    times = [each["spec"]["renewTime"] for each in leases if each["metadata"]["name"] == name]
    return max(map(datetime.fromisoformat, times), default=datetime.min.replace(tzinfo=UTC))


def uid(node: dict[str, Any]) -> str:
    """What tells a Node from a later one of its name."""
    return str(node["metadata"]["uid"])
