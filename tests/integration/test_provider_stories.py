"""What users and operators do with the provider, on a real control plane, one story a test."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capox.ownership import OwnerMark, format_mark
from hack.controlplane.capi import ManagementCluster
from tests.integration.stage import Stage, open_stage, world
from tests.integration.waiting import eventually
from tests.unit.api import go_provider


@pytest.fixture
def stage(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A rack and the provider for each story; the control plane is shared."""
    with open_stage(own_kinds, namespace, tmp_path) as stage:
        yield stage


def named(items: list[Any], part: str) -> list[Any]:
    """Those whose names contain a part."""
    return [item for item in items if part in item["name"]]


def property_of(stage: Stage, cluster: str) -> str:
    """Everything on the rack that bears a cluster's name, with every field."""
    found = {kind: named(stage.on_rack(kind), cluster) for kind in ("instances", "disks", "floating-ips")}
    return json.dumps(found, sort_keys=True)


def make_instance(stage: Stage, name: str, **fields: Any) -> Any:
    """Make an instance on the rack, past the provider; it has a boot disk."""
    boot_disk = {
        "type": "create",
        "name": fields.pop("boot_disk", f"{name}-disk"),
        "description": "",
        "size": 2 * 1024**3,
        "disk_backend": {"type": "distributed", "disk_source": {"type": "image", "image_id": stage.image_id()}},
    }
    body = {
        "name": name,
        "hostname": name,
        "description": "",
        "ncpus": 1,
        "memory": 1024**3,
        "boot_disk": boot_disk,
        "network_interfaces": {"type": "default_dual_stack"},
        **fields,
    }
    made = stage.tell("/v1/instances", body)
    eventually(f"{name} runs", lambda: any(each["run_state"] == "running" for each in named(stage.instances(), name)))
    return made


def make_floating_ip(stage: Stage, name: str, description: str = "") -> Any:
    """Make a floating IP on the rack, past the provider."""
    return stage.tell("/v1/floating-ips", {"name": name, "description": description})


def attach(stage: Stage, floating_ip: Any, instance: Any) -> None:
    """Attach a floating IP, past the provider."""
    stage.tell(f"/v1/floating-ips/{floating_ip['name']}/attach", {"kind": "instance", "parent": instance["name"]})


def test_two_clusters_of_a_project_do_not_meet(stage: Stage) -> None:
    """Two clusters have their own addresses and instances; the end of one leaves what the other has as it was."""
    for name in ("east", "west"):
        stage.apply(*stage.plain_cluster(name), *stage.control_plane_machine(f"{name}-0", name))
    for name in ("east", "west"):
        stage.await_settled(name, f"{name}-0")
    floating_ips = {each["name"]: each for each in stage.on_rack("floating-ips")}
    instances = {each["id"]: each["name"] for each in stage.instances()}
    assert {name: instances[each["instance_id"]] for name, each in floating_ips.items()} == {
        f"capi-fip-{stage.namespace}-{name}": f"capi-{stage.namespace}-{name}-0" for name in ("east", "west")
    }
    before = property_of(stage, "east")

    stage.delete_cluster("west")

    assert property_of(stage, "east") == before
    assert len(stage.instances()) == len(stage.on_rack("disks")) == len(stage.on_rack("floating-ips")) == 1
    assert stage.is_ready("oxidecluster", "east")


def test_names_that_another_management_cluster_has_taken(stage: Stage) -> None:
    """What bears our names and another's mark is reported and left alone, and our objects can be deleted."""
    marks = {
        kind: format_mark(
            OwnerMark(kind=kind, namespace=stage.namespace, name=name, uid="elsewhere", cluster_id="another")
        )
        for kind, name in (("OxideCluster", "taken"), ("OxideMachine", "ours-0"))
    }
    make_floating_ip(stage, f"capi-fip-{stage.namespace}-taken", marks["OxideCluster"])
    make_instance(stage, f"capi-{stage.namespace}-ours-0", description=marks["OxideMachine"])
    before = world(stage.rack)

    stage.apply(*stage.plain_cluster("taken"))
    message = stage.await_reason("oxidecluster", "taken", "NameConflict")
    assert f"capi-fip-{stage.namespace}-taken" in message
    assert stage.get("oxidecluster", "taken")["spec"].get("controlPlaneEndpoint") is None
    stage.apply(*stage.plain_cluster("ours"), *stage.control_plane_machine("ours-0", "ours"))
    message = stage.await_reason("oxidemachine", "ours-0", "NameConflict")
    assert f"capi-{stage.namespace}-ours-0" in message
    assert stage.get("oxidemachine", "ours-0")["spec"].get("providerID") is None

    stage.delete_cluster("ours")
    stage.delete_cluster("taken")
    assert world(stage.rack) == before


def as_left_by_the_go_provider(stage: Stage) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Make a cluster with a machine on the rack as Oxide's own provider does; returns objects and statuses."""
    cluster, machine = go_provider.oxide_cluster(), go_provider.oxide_machine()
    cluster_name, machine_name = cluster["metadata"]["name"], machine["metadata"]["name"]
    namespace = stage.namespace
    data_disk = {
        "type": "create",
        "name": f"capi-data-0-{namespace}-{machine_name}",
        "description": "",
        "size": 20 * 1024**3,
        "disk_backend": {"type": "distributed", "disk_source": {"type": "blank", "block_size": 4096}},
    }
    instance = make_instance(
        stage,
        f"capi-{namespace}-{machine_name}",
        boot_disk=f"capi-boot-{namespace}-{machine_name}",
        disks=[data_disk],
    )
    floating_ip = make_floating_ip(stage, f"capi-fip-{namespace}-{cluster_name}")
    attach(stage, floating_ip, instance)

    for each in (cluster, machine):
        each["metadata"]["namespace"] = namespace
        # Cluster API sets them again; here the owners have other UIDs.
        del each["metadata"]["ownerReferences"]
    cluster["spec"]["credentialsRef"]["namespace"] = namespace
    cluster["spec"]["project"] = "demo"
    cluster["spec"]["controlPlaneEndpoint"]["host"] = floating_ip["ip"]
    machine["spec"] |= {"providerID": f"oxide://{instance['id']}", "imageID": stage.image_id()}
    bootstrap, _, owner = stage.control_plane_machine(machine_name, cluster_name)
    statuses = {each["kind"].lower(): each.pop("status") for each in (cluster, machine)}
    return [cluster, stage.plain_cluster(cluster_name)[1], bootstrap, machine, owner], statuses


def test_what_oxides_own_provider_leaves_is_taken_over(
    own_kinds: ManagementCluster, namespace: str, tmp_path: Path
) -> None:
    """Nothing is made, stopped or moved; the status is completed; deletion then takes everything, disks included."""
    with open_stage(own_kinds, namespace, tmp_path, is_provider_started=False) as stage:
        empty = world(stage.rack)
        documents, statuses = as_left_by_the_go_provider(stage)
        stage.apply(*documents)
        cluster_name, machine_name = go_provider.CLUSTER_NAME, go_provider.oxide_machine()["metadata"]["name"]
        for kind, name in (("oxidecluster", cluster_name), ("oxidemachine", machine_name)):
            eventually(f"{name} has its owner", lambda: stage.get(kind, name)["metadata"].get("ownerReferences"))  # noqa: B023 -- looked at at once
            stage.plane.client.patch_status(stage.path(kind, name), {"status": statuses[kind]})
        before, last_call = world(stage.rack), stage.last_call()

        stage.provider.start()
        eventually(
            "the machine's status is completed",
            lambda: (stage.get("oxidemachine", machine_name)["status"].get("addresses")) or None,
        )
        eventually(
            "the cluster's status is completed",
            lambda: stage.get("oxidecluster", cluster_name)["status"].get("controlPlaneFloatingIP", {}).get("machine"),
        )
        machine = stage.get("oxidemachine", machine_name)
        assert machine["status"]["project"] == "demo"
        assert machine["status"]["credentialsRef"] == {"name": "oxide-credentials", "namespace": namespace}
        assert stage.get("oxidecluster", cluster_name)["spec"]["clusterID"]
        assert stage.is_ready("oxidecluster", cluster_name)
        assert stage.is_ready("oxidemachine", machine_name)
        assert stage.writes(last_call) == []
        assert world(stage.rack) == before

        stage.delete_cluster(cluster_name)
        assert world(stage.rack) == empty


def barrier(stage: Stage) -> None:
    """Let the provider do a whole cluster after what came before: then it has seen that, too."""
    name = f"barrier-{secrets.token_hex(3)}"
    stage.apply(*stage.plain_cluster(name))
    stage.await_ready("oxidecluster", name)
    stage.delete_cluster(name)


@pytest.mark.parametrize("cause", ["spec.paused", "annotation"])
def test_paused_is_left_alone_until_it_is_not(stage: Stage, cause: str) -> None:
    """A paused machine whose instance stops is not started again before the pause ends; then it is."""

    def pause(*, is_paused: bool) -> None:
        if cause == "spec.paused":
            stage.pause("web", is_paused=is_paused)
        else:
            stage.annotate("oxidemachine", "web-0", "cluster.x-k8s.io/paused" + ("=yes" if is_paused else "-"))

    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
    instance = stage.await_settled("web", "web-0")["spec"]["providerID"].removeprefix("oxide://")
    pause(is_paused=True)
    eventually(
        "the machine is paused", lambda: stage.condition("oxidemachine", "web-0", "Paused").get("status") == "True"
    )

    stage.rack.control.power_off(instance)
    eventually("the instance stands still", lambda: stage.instances()[0]["run_state"] == "stopped")
    last_call = stage.last_call()
    stage.annotate("oxidemachine", "web-0", "cluster.x-k8s.io/looked-at=again")
    barrier(stage)
    assert set(stage.writes(last_call)) == {"floating_ip_create", "floating_ip_delete"}
    assert stage.instances()[0]["run_state"] == "stopped"

    pause(is_paused=False)
    eventually("the instance runs again", lambda: stage.instances()[0]["run_state"] == "running")
    eventually("it is ready", lambda: stage.is_ready("oxidemachine", "web-0"))
    assert stage.condition("oxidemachine", "web-0", "Paused")["status"] == "False"


def test_what_is_deleted_for_a_move_stays_on_the_rack(stage: Stage) -> None:
    """`clusterctl move` deletes objects whose instances live on elsewhere: they are out of our hands."""
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
    stage.await_settled("web", "web-0")
    before = property_of(stage, "web")
    for kind, name in (("oxidecluster", "web"), ("oxidemachine", "web-0")):
        stage.annotate(kind, name, "clusterctl.cluster.x-k8s.io/delete-for-move=")
        stage.delete(kind, name)

    barrier(stage)
    for kind, name in (("oxidecluster", "web"), ("oxidemachine", "web-0")):
        assert len(stage.get(kind, name)["metadata"]["finalizers"]) == 1
        patch = json.dumps({"metadata": {"finalizers": []}})
        stage.plane.kubectl("patch", kind, name, "-n", stage.namespace, "--type=merge", "-p", patch)
    eventually("the objects are gone", lambda: stage.objects("oxidemachine") == stage.objects("oxidecluster") == [])
    barrier(stage)
    assert property_of(stage, "web") == before


def test_an_externally_managed_cluster_is_not_ours(stage: Stage) -> None:
    """The annotation managed-by means that somebody else provides the infrastructure: no finalizer, no status."""
    oxide_cluster, cluster = stage.plain_cluster("web", host="192.0.2.7")
    oxide_cluster["metadata"] = oxide_cluster["metadata"] | {"annotations": {"cluster.x-k8s.io/managed-by": "others"}}
    stage.apply(oxide_cluster, cluster)
    eventually("it has its owner", lambda: stage.get("oxidecluster", "web")["metadata"].get("ownerReferences"))

    barrier(stage)
    found = stage.get("oxidecluster", "web")
    assert "finalizers" not in found["metadata"]
    assert "status" not in found
    assert stage.on_rack("floating-ips") == []
    stage.delete_cluster("web")


def test_an_endpoint_that_somebody_else_balances(stage: Stage) -> None:
    """With endpointMode External the endpoint is taken as given and no floating IP is touched."""
    before = world(stage.rack)
    stage.apply(
        *stage.plain_cluster("web", host="api.example.org", endpointMode="External"),
        *stage.control_plane_machine("web-0", "web"),
    )
    stage.await_ready("oxidecluster", "web")
    stage.await_ready("oxidemachine", "web-0")
    stage.await_endpoint("web", "api.example.org")
    assert stage.on_rack("floating-ips") == []

    stage.delete_cluster("web")
    assert world(stage.rack) == before
    assert not [each for each in stage.writes() if each.startswith("floating_ip")]


def test_a_floating_ip_that_the_user_brings(stage: Stage) -> None:
    """It is attached to the control plane, and in the end it is detached and still there."""
    brought = make_floating_ip(stage, "mine", "the address in our DNS")
    stage.apply(
        *stage.plain_cluster("web", host="api.example.org", controlPlaneFloatingIP="mine"),
        *stage.control_plane_machine("web-0", "web"),
    )
    machine = stage.await_ready("oxidemachine", "web-0")
    instance = machine["spec"]["providerID"].removeprefix("oxide://")
    eventually("it is on the instance", lambda: stage.on_rack("floating-ips")[0]["instance_id"] == instance)
    stage.await_endpoint("web", "api.example.org")

    stage.delete_cluster("web")
    (left,) = stage.on_rack("floating-ips")
    assert (left["id"], left["instance_id"]) == (brought["id"], None)
    assert left["description"] == "the address in our DNS"
    assert stage.instances() == stage.on_rack("disks") == []


def test_an_address_that_the_user_chooses(stage: Stage) -> None:
    """An IP address in the endpoint is allocated as it stands there, and given back in the end."""
    before = world(stage.rack)
    stage.apply(*stage.plain_cluster("web", host="198.51.100.40"))
    stage.await_ready("oxidecluster", "web")
    (floating_ip,) = stage.on_rack("floating-ips")
    assert (floating_ip["ip"], floating_ip["name"]) == ("198.51.100.40", f"capi-fip-{stage.namespace}-web")
    stage.await_endpoint("web", "198.51.100.40")

    stage.delete_cluster("web")
    assert world(stage.rack) == before


def describe(stage: Stage, kind: str, name: str) -> str:
    """What `kubectl describe` says, its line breaks undone."""
    return " ".join(stage.plane.kubectl("describe", kind, name, "-n", stage.namespace).split())


def await_description(stage: Stage, kind: str, name: str, reason: str) -> str:
    """Wait until Ready has a reason and an Event tells it, and return the description."""
    stage.await_reason(kind, name, reason)
    eventually(
        "an Event tells it",
        lambda: [
            each
            for each in stage.objects("event")
            if each["reason"] == reason and each["involvedObject"]["name"] == name and each["type"] == "Warning"
        ],
    )
    return describe(stage, kind, name)


def test_describe_tells_that_there_is_no_room(stage: Stage) -> None:
    """A rack without room or addresses says InsufficientCapacity in a condition and an Event; no harm is done."""
    pool = stage.rack.control.add_fault("pool_exhausted")
    stage.apply(*stage.plain_cluster("web"))
    assert "InsufficientCapacity" in await_description(stage, "oxidecluster", "web", "InsufficientCapacity")

    stage.rack.control.remove_fault(pool)
    stage.apply(*stage.plain_cluster("other"), *stage.control_plane_machine("other-0", "other"))
    stage.rack.control.add_fault("insufficient_capacity", operation="instance_create")
    assert "InsufficientCapacity" in await_description(stage, "oxidemachine", "other-0", "InsufficientCapacity")
    assert stage.instances() == []
    for name in ("web", "other"):
        stage.delete_cluster(name)
    assert stage.on_rack("floating-ips") == []


def test_describe_tells_what_is_wrong_with_a_spec(stage: Stage) -> None:
    """An image that does not exist is named with the field, in a condition and an Event."""
    unknown = "11111111-2222-4333-8444-555555555555"
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web", imageID=unknown))
    described = await_description(stage, "oxidemachine", "web-0", "InvalidSpec")
    assert unknown in described
    assert stage.instances() == []


def test_describe_tells_that_bootstrap_data_is_too_large(stage: Stage) -> None:
    """Data beyond the rack's limit even when compressed is named with Secret, sizes and remedy, and without a byte."""
    data = b"#cloud-config\n# " + secrets.token_hex(40 * 1024).encode()
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web", bootstrap_data=data))
    message = stage.await_reason("oxidemachine", "web-0", "UserDataTooLarge")
    assert f"{stage.namespace}/web-0-bootstrap" in message
    assert f"{len(data)} bytes" in message
    assert "32768" in message
    assert "UserDataTooLarge" in describe(stage, "oxidemachine", "web-0")
    assert stage.instances() == []
