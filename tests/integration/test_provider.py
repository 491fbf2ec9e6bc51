"""The provider's whole path on a real control plane: from a Cluster manifest to instances, and back to nothing."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.capi import ManagementCluster
from tests.integration.stage import Stage, open_stage, world
from tests.integration.waiting import eventually


@pytest.fixture
def stage(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A rack and the provider for each story; the control plane is shared."""
    with open_stage(own_kinds, namespace, tmp_path) as stage:
        yield stage


def ready(condition_type: str, document: Any) -> str | None:
    """The status of a condition."""
    conditions = (document or {}).get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == condition_type), None)


def test_a_manifest_becomes_an_instance_and_nothing_is_left_of_it(stage: Stage) -> None:
    """The template ends in a floating IP on an instance with exactly its bootstrap data; deletion undoes all of it."""
    before = world(stage.rack)

    stage.plane.kubectl("apply", "-f", "-", stdin=stage.generate("web"))
    eventually(
        "the control plane's instance runs",
        lambda: [each for each in stage.instances() if each["run_state"] == "running"],
        within_seconds=120,
    )
    (instance,) = stage.instances()
    (oxide_machine,) = stage.objects("oxidemachine")
    eventually("the machine is provisioned", lambda: ready("Ready", stage.objects("oxidemachine")[0]) == "True")
    eventually(
        "the floating IP is on it",
        lambda: stage.ask("/v1/floating-ips")["items"][0]["instance_id"] == instance["id"],
    )

    (machine,) = stage.objects("machine")
    secret = stage.get("secret", machine["spec"]["bootstrap"]["dataSecretName"])
    expected = base64.b64decode(secret["data"]["value"])
    sent = stage.rack.control.user_data(instance["id"])
    assert (gzip.decompress(sent) if sent[:2] == b"\x1f\x8b" else sent) == expected
    cluster = stage.get("cluster", "web")
    assert cluster["status"]["initialization"]["infrastructureProvisioned"] is True
    (floating_ip,) = stage.ask("/v1/floating-ips")["items"]
    assert cluster["spec"]["controlPlaneEndpoint"] == {"host": floating_ip["ip"], "port": 6443}
    recorded = stage.get("oxidemachine", oxide_machine["metadata"]["name"])
    assert recorded["spec"]["providerID"] == f"oxide://{instance['id']}"
    assert recorded["metadata"]["finalizers"] == ["oxidemachine.infrastructure.cluster.x-k8s.io"]
    template = stage.get("oxidemachinetemplate", "web-control-plane")
    assert template["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "50Gi"}

    stage.plane.kubectl("delete", "cluster", "web", "-n", stage.namespace, "--wait=false")
    eventually("the Cluster is gone", lambda: stage.get("cluster", "web") is None, within_seconds=120)
    assert world(stage.rack) == before


def machine_deployment(stage: Stage, cluster: str, replicas: int) -> list[dict[str, Any]]:
    """Give a MachineDeployment of plain Machines with a given bootstrap Secret, and what it needs."""
    namespace = stage.namespace
    template = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideMachineTemplate",
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {
            "template": {
                "spec": {"imageID": stage.image_id(), "nCPUs": 1, "memory": "1Gi", "diskSize": "2Gi"},
            }
        },
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": "plain-bootstrap", "namespace": namespace},
        "data": {"value": base64.b64encode(b"#cloud-config\n").decode()},
    }
    machine = {
        "clusterName": cluster,
        "bootstrap": {"dataSecretName": "plain-bootstrap"},
        "infrastructureRef": {
            "apiGroup": "infrastructure.cluster.x-k8s.io",
            "kind": "OxideMachineTemplate",
            "name": "plain",
        },
    }
    deployment = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {
            "clusterName": cluster,
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "plain"}},
            "template": {"metadata": {"labels": {"app": "plain"}}, "spec": machine},
        },
    }
    return [template, secret, deployment]


def running(stage: Stage) -> int:
    """How many instances run."""
    return sum(each["run_state"] == "running" for each in stage.instances())


def test_plain_machines_come_and_go(stage: Stage) -> None:
    """A MachineDeployment of given bootstrap data grows from 0 to 5 and shrinks to 1; disks go with their machines."""
    stage.apply(*stage.plain_cluster("plain"), *machine_deployment(stage, "plain", 0))
    eventually("the cluster is provisioned", lambda: ready("Ready", stage.get("oxidecluster", "plain")) == "True")
    assert stage.instances() == []

    stage.plane.kubectl("scale", "machinedeployment", "plain", "--replicas=5", "-n", stage.namespace)
    eventually("five instances run", lambda: running(stage) == 5, within_seconds=120)
    eventually(
        "all are provisioned", lambda: all(ready("Ready", each) == "True" for each in stage.objects("oxidemachine"))
    )

    stage.plane.kubectl("scale", "machinedeployment", "plain", "--replicas=1", "-n", stage.namespace)
    eventually("one instance is left", lambda: len(stage.instances()) == 1, within_seconds=120)
    eventually("one disk is left", lambda: len(stage.ask("/v1/disks")["items"]) == 1)


def test_provider_dies_at_any_moment(stage: Stage) -> None:
    """Killed again and again, with a fifth of the calls failing: one instance a machine, and none in the end."""
    before = world(stage.rack)
    for kind in ("unavailable", "lost_reply"):
        stage.rack.control.add_fault(kind, probability=0.1, seed=7)
    stage.apply(*stage.plain_cluster("plain"), *machine_deployment(stage, "plain", 4))

    for _ in range(3):
        calls = len(stage.rack.control.calls())
        eventually("the provider is at work", lambda: len(stage.rack.control.calls()) > calls + 15, within_seconds=90)  # noqa: B023 -- looked at at once
        stage.provider.kill()
        stage.provider.start()
    eventually("four instances run", lambda: running(stage) == 4, within_seconds=180)
    assert len(stage.instances()) == 4
    assert len(stage.ask("/v1/disks")["items"]) == 4

    stage.plane.kubectl("delete", "cluster", "plain", "-n", stage.namespace, "--wait=false")
    for _ in range(3):
        calls = len(stage.rack.control.calls())
        eventually("the provider is at work", lambda: len(stage.rack.control.calls()) > calls + 6, within_seconds=90)  # noqa: B023 -- looked at at once
        stage.provider.kill()
        stage.provider.start()
    stage.rack.control.clear_faults()
    eventually("the Cluster is gone", lambda: stage.get("cluster", "plain") is None, within_seconds=240)
    assert world(stage.rack) == before
