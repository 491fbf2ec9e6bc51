"""The cluster templates that clusterctl fills in: what they ask for, and what the Nodes of such a cluster are told."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.programs import FLANNELD
from hack.nodeimage.releases import FLANNEL_IMAGE

TEMPLATES_DIRECTORY = Path(__file__).resolve().parents[2] / "config" / "templates"

Objects = list[dict[str, Any]]


def of(objects: Objects, kind: str) -> Objects:
    """The objects of a kind."""
    return [each for each in objects if each["kind"] == kind]


def the(objects: Objects, kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of a kind, or of a kind and name."""
    (found,) = [each for each in of(objects, kind) if name in (None, each["metadata"]["name"])]
    return found


VARIABLES = {
    "CLUSTER_NAME": "",
    "NAMESPACE": "",
    "KUBERNETES_VERSION": "",
    "CONTROL_PLANE_MACHINE_COUNT": "1",
    "WORKER_MACHINE_COUNT": "1",
    "OXIDE_PROJECT": "",
    "OXIDE_VPC": "default",
    "OXIDE_SUBNET": "default",
    "OXIDE_IP_POOL": '""',
    "OXIDE_IMAGE_ID": "",
    "OXIDE_SECRET": "oxide-credentials",
    "OXIDE_SECRET_NAMESPACE": "NAMESPACE",
    "CONTROL_PLANE_NCPUS": "4",
    "CONTROL_PLANE_MEMORY": "8Gi",
    "CONTROL_PLANE_DISK_SIZE": "50Gi",
    "WORKER_NCPUS": "8",
    "WORKER_MEMORY": "16Gi",
    "WORKER_DISK_SIZE": "100Gi",
}
HA_VARIABLES = VARIABLES | {
    "CONTROL_PLANE_MACHINE_COUNT": "3",
    "WORKER_MACHINE_COUNT": "3",
    "CONTROL_PLANE_ANTI_AFFINITY_GROUP": "",
}
TEMPLATES = ["cluster-template.yaml", "cluster-template-ha.yaml"]


def template(name: str) -> str:
    """The text of a template."""
    return (TEMPLATES_DIRECTORY / name).read_text()


def filled_in(name: str) -> Objects:
    """The objects of a template, every variable replaced by a word or by its default."""
    text = template(name).replace("${NAMESPACE}}", "NAMESPACE}")
    text = re.sub(r"\$\{\w+:=([^}]*)\}", r"\1", text)
    return list(yaml.safe_load_all(re.sub(r"\$\{(\w+)\}", lambda match: match[1].lower(), text)))


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_asks_for_what_it_says(name: str) -> None:
    """The variables that users of Oxide's own provider have set already, with its defaults (L-6)."""
    text = template(name).replace("${NAMESPACE}}", "NAMESPACE}")
    variables = dict(re.findall(r"\$\{(\w+)(?::=((?:[^{}]|\{\w+\})*))?\}", text))

    assert variables == (HA_VARIABLES if "-ha" in name else VARIABLES)
    # clusterctl would take any other dollar sign for one of its variables.
    assert text.count("$") == len(re.findall(r"\$\{\w+(?::=[^$}]*)?\}", text))


def registrations(objects: Objects) -> list[dict[str, Any]]:
    """How each sort of machine registers as a Node."""
    control_plane = the(objects, "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"]
    worker = the(objects, "KubeadmConfigTemplate")["spec"]["template"]["spec"]
    configurations = [
        control_plane["initConfiguration"],
        control_plane["joinConfiguration"],
        worker["joinConfiguration"],
    ]
    return [configuration["nodeRegistration"] for configuration in configurations]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_node_knows_its_instance_and_waits_for_the_cloud_controller_manager(name: str) -> None:
    """The provider ID from the instance's metadata, an address before anybody sets one, and the taint that stays."""
    objects = filled_in(name)
    for registration in registrations(objects):
        arguments = {each["name"]: each["value"] for each in registration["kubeletExtraArgs"]}
        assert arguments == {
            "cloud-provider": "external",
            "node-ip": "0.0.0.0",  # noqa: S104 -- the kubelet's word for "choose one"
            "provider-id": "oxide://{{ ds.meta_data.instance_id }}",
        }
        # The Node is called what the rack calls the instance; nothing takes its taints away.
        assert registration["name"] == "{{ ds.meta_data.local_hostname }}"
        assert "taints" not in registration
    # A kubelet's argument would end the controller manager.
    cluster = the(objects, "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]
    assert cluster == {"controllerManager": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]}}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_pod_network_comes_with_the_cluster(name: str) -> None:
    """The set selects this cluster alone, its network is the cluster's, and its image is the one that machines hold."""
    objects = filled_in(name)
    cluster, chosen, content = (the(objects, kind) for kind in ("Cluster", "ClusterResourceSet", "ConfigMap"))
    flannel = list(yaml.safe_load_all(content["data"]["flannel.yaml"]))
    network = json.loads(the(flannel, "ConfigMap")["data"]["net-conf.json"])["Network"]
    pod = the(flannel, "DaemonSet")["spec"]["template"]["spec"]

    assert chosen["spec"]["clusterSelector"]["matchLabels"] == cluster["metadata"]["labels"]
    assert cluster["metadata"]["name"] in cluster["metadata"]["labels"]["cni"]
    assert chosen["spec"]["resources"] == [{"kind": "ConfigMap", "name": content["metadata"]["name"]}]
    assert [network] == cluster["spec"]["clusterNetwork"]["pods"]["cidrBlocks"]
    assert {each["image"] for each in pod["containers"]} == {f"{FLANNEL_IMAGE}:{FLANNELD.version}"}
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_flannel_s_words_become_the_configuration_of_the_network(tmp_path: Path) -> None:
    """The shell command in the manifest, run on what flannel writes."""
    flannel = list(yaml.safe_load_all(the(filled_in(TEMPLATES[0]), "ConfigMap")["data"]["flannel.yaml"]))
    (script,) = [
        each["command"][2]
        for each in the(flannel, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        if each["name"] == "cni"
    ]
    (tmp_path / "subnet.env").write_text(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    commands = script.replace("/run/flannel", str(tmp_path)).replace("/etc/cni/net.d", str(tmp_path))
    once = commands.partition("trap ")[0]

    subprocess.run(["/bin/sh", "-ec", once], check=True, timeout=30)

    bridge = json.loads((tmp_path / "10-flannel.conflist").read_text())["plugins"][0]
    assert bridge["mtu"] == 1450
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24"}]]
    assert {"dst": "10.244.0.0/16"} in bridge["ipam"]["routes"]


def test_the_ha_template_is_the_other_one_and_what_it_adds() -> None:
    """Three control plane machines on different sleds, and lost Nodes replaced; nothing else differs."""
    plain, ha = (filled_in(name) for name in TEMPLATES)
    checks = of(ha, "MachineHealthCheck")
    for each in checks:
        ha.remove(each)
    machine = the(ha, "OxideMachineTemplate", "cluster_name-control-plane")["spec"]["template"]["spec"]

    assert {each["metadata"]["name"] for each in checks} == {"cluster_name-control-plane", "cluster_name-workers"}
    assert machine.pop("antiAffinityGroups") == ["control_plane_anti_affinity_group"]
    assert the(ha, "KubeadmControlPlane")["spec"].pop("replicas") == 3
    assert the(ha, "MachineDeployment")["spec"].pop("replicas") == 3
    for kind in ("KubeadmControlPlane", "MachineDeployment"):
        the(plain, kind)["spec"].pop("replicas")
    assert ha == plain
