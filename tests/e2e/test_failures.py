"""What happens to clusters of machines that boot, and what users see of it; `make e2e-full` runs these stories."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hack.nodeimage.register import RegisteredImage
from tests.e2e.management import Machines, open_machines
from tests.e2e.situations import Situations
from tests.e2e.workload import BOOT_SECONDS, LOOK_SECONDS, Workload, await_as_before, world
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(3600)]

HA = "cluster-template-ha.yaml"
# As a real rack; longer than the provider's pace at rest, so that the failure is seen.
FAILED_SECONDS = 60.0
# The bound for what a health check decides: a Node is silent for a while, then unhealthy for a minute.
REMEDIATION_SECONDS = 1200


@pytest.fixture
def machines(docker_host: str, node_images: list[RegisteredImage], tmp_path: Path) -> Iterator[Machines]:
    """A management cluster, a provider and a rack of the test's own."""
    timing = {"preset": "quick", "auto_restart": FAILED_SECONDS}
    with open_machines(tmp_path, docker_host, node_images[:1], timing=timing) as made:
        group = {"name": "control-planes", "description": "", "policy": "fail", "failure_domain": "sled"}
        made.stage.tell("/v1/anti-affinity-groups", group)
        yield made


def make(machines: Machines, image: RegisteredImage, **fields: Any) -> Workload:
    """A cluster of the flavor ha, whose lost Nodes are replaced."""
    web = Workload(machines)
    machines.make_cluster(web.name, image, template=HA, CONTROL_PLANE_ANTI_AFFINITY_GROUP="control-planes", **fields)
    return web


def test_workers_come_go_fail_and_are_replaced(
    machines: Machines, node_images: list[RegisteredImage], situations: Situations
) -> None:
    """Scaled out and in; a rebooted sled costs no machine, and a deleted instance is replaced by a new machine."""
    version = node_images[0].kubernetes
    before = world(machines)
    web = make(machines, node_images[0], control_planes=1, workers=1)
    web.await_nodes(2, version)

    web.change_workers({"replicas": 3})
    web.await_nodes(4, version, within_seconds=2 * BOOT_SECONDS)
    web.expect_nodes_of_instances()
    situations.keep(machines, web.name, "three-workers")

    reboot_the_sled_of_a_worker(machines, web, situations, version)
    delete_the_instance_of_a_worker(machines, web, situations, version)

    web.change_workers({"replicas": 1})
    web.await_nodes(2, version)
    web.expect_nodes_of_instances()

    machines.stage.delete_cluster(web.name, within_seconds=BOOT_SECONDS)
    await_as_before(machines, before)


def a_worker(web: Workload) -> dict[str, Any]:
    """One of the workers' Nodes."""
    control_plane = {node["metadata"]["name"] for node in web.control_plane_nodes()}
    return next(node for node in web.nodes() if node["metadata"]["name"] not in control_plane)


def reboot_the_sled_of_a_worker(machines: Machines, web: Workload, situations: Situations, version: str) -> None:
    """Its instances fail and are restarted by the rack: they are the machines and Nodes that they were."""
    ids = web.machine_ids()
    uids = {node["metadata"]["uid"] for node in web.nodes()}
    worker = web.instance_of(a_worker(web))
    boot = machines.lab.within(worker["name"], "cat", "/proc/1/stat").split()[21]
    control = machines.stage.rack.control
    (sled,) = (each for each in control.must("GET", "/sleds")["items"] if worker["id"] in each["instances"])
    machine = next(name for name, each in web.machines().items() if each["spec"]["providerID"].endswith(worker["id"]))
    oxide_machine = web.machines()[machine]["spec"]["infrastructureRef"]["name"]

    control.lose_sled(sled["id"])
    control.restore_sled(sled["id"], rebooted=True)
    machines.stage.await_reason("oxidemachine", oxide_machine, "InstanceFailed")
    situations.keep(machines, web.name, "sled-rebooted")

    restarted = eventually(
        "the rack has restarted the instance",
        lambda: machines.lab.instance(worker["name"])["time_last_auto_restarted"],
        within_seconds=300,
    )
    eventually(
        "its kubelet is at work again",
        lambda: web.heard_of(worker["hostname"]) > datetime.fromisoformat(restarted),
        within_seconds=BOOT_SECONDS,
        every_seconds=LOOK_SECONDS,
    )
    assert machines.lab.within(worker["name"], "cat", "/proc/1/stat").split()[21] != boot
    machines.stage.await_ready("oxidemachine", oxide_machine, within_seconds=BOOT_SECONDS)
    web.await_nodes(4, version)
    assert web.machine_ids() == ids
    assert {node["metadata"]["uid"] for node in web.nodes()} == uids
    assert {f"oxide://{each['id']}" for each in machines.stage.instances()} == set(ids.values())


def delete_the_instance_of_a_worker(machines: Machines, web: Workload, situations: Situations, version: str) -> None:
    """Somebody deletes it on the rack; its machine is replaced by the health check, and the others stay."""
    # As the template has it, after five minutes; the story has less patience.
    conditions = [{"type": "Ready", "status": status, "timeoutSeconds": 60} for status in ("Unknown", "False")]
    web.change_health_check("workers", {"unhealthyNodeConditions": conditions})
    node = a_worker(web)
    worker = web.instance_of(node)
    ids = web.machine_ids()
    machine = next(name for name, each in web.machines().items() if each["spec"]["providerID"].endswith(worker["id"]))
    oxide_machine = web.machines()[machine]["spec"]["infrastructureRef"]["name"]

    def is_deleted() -> bool:
        """Stop it and delete it, faster than it is started again."""
        client, path = machines.lab.client, f"/v1/instances/{worker['id']}"
        if client.get(path).status_code == http.client.NOT_FOUND:
            return True
        client.post(f"{path}/stop")
        return client.delete(path).is_success

    eventually("the instance is deleted", is_deleted, within_seconds=60)
    machines.stage.await_reason("oxidemachine", oxide_machine, "InstanceNotFound")
    situations.keep(machines, web.name, "instance-deleted")

    eventually(
        "the machine is gone",
        lambda: machine not in web.machines(),
        within_seconds=REMEDIATION_SECONDS,
        every_seconds=1,
    )
    web.await_nodes(4, version, within_seconds=REMEDIATION_SECONDS)
    web.expect_nodes_of_instances()
    now = web.machine_ids()
    assert len(now.items() & ids.items()) == 3
    assert f"oxide://{worker['id']}" not in now.values()
    # Its disk was left behind by who deleted the instance, and is not by us.
    disks = {each["name"] for each in machines.stage.on_rack("disks")}
    assert len(disks) == 4
    assert worker["name"].replace("capi-", "capi-boot-", 1) not in disks


def test_a_first_control_plane_that_cannot_start_is_replaced(
    machines: Machines, node_images: list[RegisteredImage], situations: Situations
) -> None:
    """Its user data ends before kubeadm; the user mends them, and the machine that was made of them is replaced."""

    def break_bootstrap(document: dict[str, Any]) -> None:
        """Have the first script end, and the health check be quick."""
        if document["kind"] == "KubeadmControlPlane":
            document["spec"]["kubeadmConfigSpec"]["preKubeadmCommands"] = ["echo this is wrong", "exit 1"]
        if document["kind"] == "MachineHealthCheck" and document["metadata"]["name"] == "web-control-plane":
            document["spec"]["checks"]["nodeStartupTimeoutSeconds"] = 60

    before = world(machines)
    web = make(machines, node_images[0], control_planes=1, workers=0, amend=break_bootstrap)
    eventually("there is a machine", web.machines, within_seconds=120)
    (first,) = web.machines()
    machines.stage.await_ready("oxidemachine", first, within_seconds=BOOT_SECONDS)
    (instance,) = machines.stage.instances()
    machines.lab.await_console(instance["name"], "this is wrong")
    assert web.endpoint()["instance_id"] == instance["id"]
    situations.keep(machines, web.name, "bootstrap-failed")

    web.change_control_plane({"kubeadmConfigSpec": {"preKubeadmCommands": None}})
    eventually(
        "another machine is there",
        lambda: set(web.machines()) - {first},
        within_seconds=REMEDIATION_SECONDS,
        every_seconds=1,
    )
    # It has as much time as machines need here.
    web.change_health_check("control-plane", {"nodeStartupTimeoutSeconds": BOOT_SECONDS})
    web.await_nodes(1, node_images[0].kubernetes)

    web.expect_nodes_of_instances()
    (now,) = machines.stage.instances()
    assert now["id"] != instance["id"]
    assert web.endpoint()["instance_id"] == now["id"]
    situations.keep(machines, web.name, "bootstrap-mended")

    machines.stage.delete_cluster(web.name, within_seconds=BOOT_SECONDS)
    await_as_before(machines, before)
