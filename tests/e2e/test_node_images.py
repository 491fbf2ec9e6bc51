"""Clusters of machines that boot node images: what the Nodes of the template are, and how another version comes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.nodeimage.register import RegisteredImage
from tests.e2e.management import NAMESPACE, Machines, await_initialized, is_ready, open_machines
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

BOOT_SECONDS = 900
# Two machines boot one after the other, and two are taken away.
UPGRADE_SECONDS = 1500
# A look is a kubectl, which takes from the machines what they need to boot.
LOOK_SECONDS = 5

NODES = "/api/v1/nodes"

_CORE = "/apis/cluster.x-k8s.io/v1beta2"
_CONTROL_PLANE = "/apis/controlplane.cluster.x-k8s.io/v1beta2"
_INFRASTRUCTURE = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1"


@pytest.fixture(scope="session")
def images(node_images: list[RegisteredImage]) -> list[RegisteredImage]:
    """Two node images."""
    if len(node_images) < 2:
        pytest.skip("two node images are needed; `make node-image` makes them")
    return node_images[:2]


@pytest.fixture
def machines(docker_host: str, images: list[RegisteredImage], tmp_path: Path) -> Iterator[Machines]:
    """A management cluster, a provider and a rack of the test's own."""
    with open_machines(tmp_path, docker_host, images) as made:
        yield made


def test_nodes_are_ready_and_get_another_version(machines: Machines, images: list[RegisteredImage]) -> None:
    """The default template makes Nodes that are Ready, know their instances, are initialized; then both are upgraded."""
    old, new = images
    machines.make_cluster("web", old, template="cluster-template.yaml", control_planes=1, workers=1)

    eventually(
        "two Nodes are Ready", lambda: ready_versions(machines) == [old.kubernetes] * 2, within_seconds=BOOT_SECONDS
    )
    expect_nodes_of_instances(machines)
    before = {node["metadata"]["uid"] for node in machines.objects("web", NODES)}

    upgrade(machines, old, new)

    eventually(
        "two Nodes of the other version are Ready",
        lambda: ready_versions(machines) == [new.kubernetes] * 2,
        within_seconds=UPGRADE_SECONDS,
        every_seconds=LOOK_SECONDS,
    )
    expect_nodes_of_instances(machines)
    assert before.isdisjoint({node["metadata"]["uid"] for node in machines.objects("web", NODES)})
    # The machines held both, so nobody had to ask a registry.
    eventually(
        "every Node has the new kube-proxy",
        lambda: proxies_ready(machines, new) == 2,
        within_seconds=300,
        every_seconds=LOOK_SECONDS,
    )

    machines.stage.delete_cluster("web", within_seconds=600)
    assert machines.stage.instances() == []
    assert machines.stage.on_rack("disks") == []
    eventually("only the rack's networks are left", lambda: len(machines.containers()) == 1)


def proxies_ready(machines: Machines, image: RegisteredImage) -> int:
    """On how many Nodes the kube-proxy of an image is ready; 0 while it is another one that is wanted."""
    for each in machines.objects("web", "/apis/apps/v1/namespaces/kube-system/daemonsets"):
        name = each["spec"]["template"]["spec"]["containers"][0]["image"]
        is_settled = each["status"].get("observedGeneration") == each["metadata"]["generation"]
        if "/kube-proxy:" in name and name.endswith(image.reference.partition(":")[2]) and is_settled:
            return min(int(each["status"].get(number, 0)) for number in ("numberReady", "updatedNumberScheduled"))
    return 0


def ready_versions(machines: Machines) -> list[str]:
    """The kubelets' versions when every Node is Ready."""
    nodes = machines.objects("web", NODES)
    return [node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes] if all(map(is_ready, nodes)) else []


def expect_nodes_of_instances(machines: Machines) -> None:
    """Each Node is one instance, by name, provider ID and address, and the cloud controller manager has taken it."""
    instances = {each["hostname"]: each for each in machines.stage.instances()}
    nodes = {node["metadata"]["name"]: node for node in await_initialized(machines, "web", len(instances))}
    assert nodes.keys() == instances.keys()
    for name, node in nodes.items():
        assert node["spec"]["providerID"] == f"oxide://{instances[name]['id']}"
        addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
        assert addresses["InternalIP"] == machines.private_address(instances[name]["name"])
    eventually(
        "each Machine knows its Node",
        lambda: (
            {(each.get("status", {}).get("nodeRef") or {}).get("name") for each in machines.stage.objects("machine")}
            == nodes.keys()
        ),
        within_seconds=120,
    )


def upgrade(machines: Machines, old: RegisteredImage, new: RegisteredImage) -> None:
    """As its users do: new machine templates with the other image, then their names and the version."""
    client = machines.stage.plane.client
    for role in ("control-plane", "workers"):
        path = f"{_INFRASTRUCTURE}/namespaces/{NAMESPACE}/oxidemachinetemplates"
        template = client.get(f"{path}/web-{role}")
        spec: dict[str, Any] = copy.deepcopy(template["spec"])
        assert spec["template"]["spec"]["imageID"] == old.id
        spec["template"]["spec"]["imageID"] = new.id
        client.post(
            path,
            {
                "apiVersion": template["apiVersion"],
                "kind": template["kind"],
                "metadata": {"name": f"web-{role}-new", "namespace": NAMESPACE},
                "spec": spec,
            },
        )
    changes = {
        f"{_CONTROL_PLANE}/namespaces/{NAMESPACE}/kubeadmcontrolplanes/web-control-plane": {
            "version": new.kubernetes,
            "machineTemplate": {"spec": {"infrastructureRef": {"name": "web-control-plane-new"}}},
        },
        f"{_CORE}/namespaces/{NAMESPACE}/machinedeployments/web-workers": {
            "template": {"spec": {"version": new.kubernetes, "infrastructureRef": {"name": "web-workers-new"}}}
        },
    }
    for path, change in changes.items():
        client.request("PATCH", path, {"spec": change}, content_type="application/merge-patch+json")


def test_a_control_plane_of_three_is_spread(machines: Machines, images: list[RegisteredImage]) -> None:
    """The flavor ha has three control plane Nodes with an etcd member each, on instances of one anti-affinity group."""
    group = {"name": "control-planes", "description": "", "policy": "fail", "failure_domain": "sled"}
    machines.stage.tell("/v1/anti-affinity-groups", group)
    machines.make_cluster(
        "web",
        images[0],
        template="cluster-template-ha.yaml",
        control_planes=3,
        workers=1,
        CONTROL_PLANE_ANTI_AFFINITY_GROUP="control-planes",
    )

    eventually(
        "four Nodes are Ready",
        lambda: ready_versions(machines) == [images[0].kubernetes] * 4,
        within_seconds=2 * BOOT_SECONDS,
        every_seconds=LOOK_SECONDS,
    )
    expect_nodes_of_instances(machines)
    control_planes = machines.objects("web", f"{NODES}?labelSelector=node-role.kubernetes.io%2Fcontrol-plane")
    members = machines.stage.ask("/v1/anti-affinity-groups/control-planes/members")["items"]
    assert {each["value"]["name"] for each in members} == {each["metadata"]["name"] for each in control_planes}
    assert len(control_planes) == 3
    etcds = machines.objects("web", "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Detcd")
    assert {each["spec"]["nodeName"] for each in etcds} == {each["metadata"]["name"] for each in control_planes}
    assert all(each["status"]["containerStatuses"][0]["ready"] for each in etcds)
