"""A cluster of machines that boot: Cluster API, the provider, a rack, and in its instances kubeadm and kubelets."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import components
from hack.controlplane.binaries import resolve
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.programs import KUBE_APISERVER, KUBECTL
from hack.nodeimage.register import RegisteredImage, registered
from tests.e2e.lab import Lab
from tests.integration.provider_process import CONFIG, ProviderProcess, install
from tests.integration.stage import TOKEN, Stage
from tests.integration.waiting import eventually
from tests.rack_process import CONFIG as RACK_CONFIG

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

NAME = "first"
BOOT_SECONDS = 900
API_RULE = {"name": "api", "filters": {"ports": ["6443"], "protocols": [{"type": "tcp"}]}}
INTERNAL_RULE = {"name": "internal", "filters": {"hosts": [{"type": "vpc", "value": "default"}]}}


@pytest.fixture
def node_image(docker_host: str) -> RegisteredImage:
    """A node image with the control plane's Kubernetes."""
    for image in registered(os.environ):
        known = ["docker", "image", "inspect", image.reference]
        environment = {**os.environ, "DOCKER_HOST": docker_host}
        is_here = subprocess.run(known, env=environment, capture_output=True, check=False).returncode == 0
        if image.kubernetes == KUBE_APISERVER.version and is_here:
            return image
    pytest.skip(f"no node image with Kubernetes {KUBE_APISERVER.version} has been made; `make node-image` makes it")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ManagementCluster]:
    """A management cluster with this provider's kinds, policies and roles."""
    try:
        binaries = resolve(os.environ)
        manifests = components.ensure(os.environ, binaries, None)
    except ControlPlaneError as error:
        pytest.skip(f"the control plane has not been built: {error}")
    directory = tmp_path / "controlplane"
    directory.mkdir()
    with ManagementCluster(binaries, manifests, directory=directory) as made:
        made.kubectl("apply", "--server-side", "-k", str(CONFIG / "crd"))
        install(made)
        yield made


@pytest.fixture
def stage(
    plane: ManagementCluster, docker_host: str, node_image: RegisteredImage, tmp_path: Path
) -> Iterator[tuple[Stage, Lab]]:
    """The management cluster with the provider, and a rack whose instances boot the node image."""
    (silo,) = RACK_CONFIG["silos"]
    silos = [silo | {"images": [node_image.rack_entry()]}]
    directory = tmp_path / "rack"
    directory.mkdir()
    namespace = f"test-{secrets.token_hex(4)}"
    plane.client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with (
        Lab(directory, docker_host, node_image.reference, silos=silos) as lab,
        ProviderProcess(plane, tmp_path) as provider,
    ):
        yield Stage(plane, lab.rack, provider, namespace), lab


def test_a_cluster_comes_and_goes(stage: tuple[Stage, Lab], tmp_path: Path) -> None:
    """A control plane and a worker become Nodes with their instances' ids; deleted, nothing of them is left."""
    scene, lab = stage
    lab.allow(API_RULE, INTERNAL_RULE)
    # The address under which machines reach the rack as well.
    host = lab.rack.announcement["api_shared"]
    scene.apply(scene.secret("oxide-credentials", {"oxide-host": host, "oxide-token": TOKEN}))
    scene.plane.kubectl("apply", "-f", "-", stdin=scene.generate(NAME, workers=1))

    nodes = eventually("two Nodes are there", lambda: two_nodes(scene, tmp_path), within_seconds=BOOT_SECONDS)

    ids = {instance["name"]: instance["id"] for instance in scene.instances()}
    assert {node["metadata"]["name"]: node["spec"]["providerID"] for node in nodes} == {
        name: f"oxide://{identity}" for name, identity in ids.items()
    }
    eventually(
        "each Machine has its Node",
        lambda: all(machine.get("status", {}).get("nodeRef") for machine in scene.objects("machine")),
        within_seconds=120,
    )
    eventually("the Pod network is there", lambda: are_ready(scene, tmp_path), within_seconds=300)
    (control_plane,) = (name for name in ids if "control-plane" in name)
    assert "kubeadm" in lab.console(control_plane) or "cloud-init" in lab.console(control_plane)

    scene.delete_cluster(NAME, within_seconds=BOOT_SECONDS)
    assert scene.instances() == []
    eventually("no machine is left", lambda: len(lab.ours()["containers"]) == 1)


def are_ready(scene: Stage, directory: Path) -> bool:
    """Whether both Nodes are Ready, which takes a Pod network."""
    conditions = [node["status"].get("conditions", []) for node in two_nodes(scene, directory)]
    ready = [each["status"] for found in conditions for each in found if each["type"] == "Ready"]
    return ready == ["True", "True"]


def two_nodes(scene: Stage, directory: Path) -> list[Any]:
    """The workload cluster's Nodes when there are two, by its own API."""
    secret = scene.get("secret", f"{NAME}-kubeconfig")
    if secret is None:
        return []
    kubeconfig = directory / "workload.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_bytes(base64.b64decode(secret["data"]["value"]))
    words = [os.fspath(scene.plane.binaries.path(KUBECTL)), "--kubeconfig", os.fspath(kubeconfig)]
    words += ["--request-timeout=5s", "get", "nodes", "-o", "json"]
    # kubectl keeps what it has discovered in the home directory.
    environment = {"PATH": os.defpath, "HOME": os.fspath(directory)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    nodes: list[Any] = json.loads(done.stdout)["items"] if done.returncode == 0 else []
    return nodes if len(nodes) == 2 else []
