"""A management cluster with the provider, beside a rack whose machines boot node images."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane import components
from hack.controlplane.binaries import resolve
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.programs import KUBECTL
from hack.nodeimage.last_layer import MANAGER_LABEL
from hack.nodeimage.register import RegisteredImage
from tests.e2e.lab import NAME, Lab
from tests.integration.provider_process import ProviderProcess, install
from tests.integration.stage import Stage
from tests.integration.waiting import eventually
from tests.rack_process import CONFIG

TEMPLATES = Path(__file__).resolve().parents[2] / "config" / "templates"
NAMESPACE = "e2e"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"

CLUSTER_TOKEN = "oxide-token-cluster"
NEXT_CLUSTER_TOKEN = "oxide-token-cluster-next"
"""Of a user who may do what a cluster needs and no more: the cloud controller manager gets no other."""

_CRDS = TEMPLATES.parents[1] / "crds"
_COMMAND_SECONDS = 60


class Machines:
    """What the stories of whole clusters need.

    Args:
        stage: management cluster, provider and rack.
        lab: the rack, seen from below.
        kubectl: the program.
        directory: for kubeconfigs.
    """

    def __init__(self, stage: Stage, lab: Lab, kubectl: Path, directory: Path) -> None:
        self.stage = stage
        self.lab = lab
        self._kubectl = kubectl
        self._directory = directory

    def make_cluster(
        self,
        name: str,
        image: RegisteredImage,
        *,
        template: str,
        control_planes: int,
        workers: int,
        amend: Callable[[dict[str, Any]], None] | None = None,
        **variables: str,
    ) -> None:
        """Apply a template, as its users do, for small machines.

        Args:
            name: of the cluster.
            image: what the machines boot.
            template: the file.
            control_planes: how many of them.
            workers: how many of them.
            amend: changes an object of what came out, as a user does who edits it before applying it.
            **variables: further ones of the template.
        """
        small = {
            "OXIDE_PROJECT": "demo",
            "OXIDE_IMAGE_ID": image.id,
            **{f"{kind}_NCPUS": "2" for kind in ("CONTROL_PLANE", "WORKER")},
            **{f"{kind}_MEMORY": "3Gi" for kind in ("CONTROL_PLANE", "WORKER")},
            **{f"{kind}_DISK_SIZE": "10Gi" for kind in ("CONTROL_PLANE", "WORKER")},
        }
        manifest = self.stage.plane.clusterctl(
            *("generate", "cluster", name, "--from", str(TEMPLATES / template), "--target-namespace", NAMESPACE),
            *("--kubernetes-version", image.kubernetes, "--control-plane-machine-count", str(control_planes)),
            *("--worker-machine-count", str(workers)),
            variables=small | variables,
        )
        if amend is not None:
            documents = list(yaml.safe_load_all(manifest))
            for document in documents:
                amend(document)
            manifest = yaml.safe_dump_all(documents)
        self.stage.plane.kubectl("apply", "-f", "-", stdin=manifest)

    def add_credentials(self, token: str) -> None:
        """Make the Secret that clusters refer to, or put another token into it."""
        # Under this address the cloud controller manager within a machine reaches the rack, too.
        host = self.lab.rack.announcement["api_shared"]
        self.stage.apply(self.stage.secret("oxide-credentials", {"oxide-host": host, "oxide-token": token}))

    def objects(self, cluster: str, path: str) -> list[dict[str, Any]]:
        """The items of a list of a workload cluster's API, by its path; none as long as nobody answers."""
        # The path itself: to find it by a kind's name, kubectl would ask for all kinds first.
        said = self.ask_cluster(cluster, "get", "--raw", path)
        return list(json.loads(said)["items"]) if said is not None else []

    def ask_cluster(self, cluster: str, *words: str) -> str | None:
        """What kubectl says of a workload cluster to its administrator; None as long as nobody answers."""
        kubeconfig = self.kubeconfig(cluster)
        if kubeconfig is None:
            return None
        try:
            done = self._run(kubeconfig, *words, "--request-timeout=10s")
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def command(self, cluster: str, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in a workload cluster that answers, as its users do."""
        kubeconfig = self.kubeconfig(cluster)
        assert kubeconfig is not None, f"{cluster} has no kubeconfig"
        done = self._run(kubeconfig, *words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def _run(self, kubeconfig: Path, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._kubectl, "--kubeconfig", kubeconfig, *words],
            env={"HOME": str(self._directory), "PATH": os.defpath},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_SECONDS,
        )

    def private_address(self, instance: str) -> str:
        """The IPv4 address of an instance's NIC."""
        (nic,) = self.stage.ask("/v1/network-interfaces", instance=instance)["items"]
        stack = nic["ip_stack"]["value"]
        address: str = stack.get("v4", stack)["ip"]
        return address

    def containers(self) -> list[str]:
        """The containers of the rack, by name: those of its machines, and the one in which its networks are."""
        return self.lab.docker("ps", "-a", "--format", "{{.Names}}", "--filter", f"label=capox.rack={NAME}").split()

    def kubeconfig(self, cluster: str) -> Path | None:
        """The file by which the administrator logs in, which stays the same; None as long as there is none."""
        path = self._directory / f"{cluster}.kubeconfig"
        if path.exists():
            return path
        secret = self.stage.get("secret", f"{cluster}-kubeconfig")
        if secret is None:
            return None
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(secret["data"]["value"]))
        return path


def await_initialized(machines: Machines, cluster: str, nodes: int) -> list[dict[str, Any]]:
    """Wait until so many Nodes, and no others, are Ready and initialized by the cloud controller manager."""

    def seen() -> list[dict[str, Any]]:
        found = machines.objects(cluster, "/api/v1/nodes")
        return found if len(found) == nodes and all(is_ready(node) and is_initialized(node) for node in found) else []

    return eventually(f"{nodes} Nodes are Ready and initialized", seen, within_seconds=1800, every_seconds=5)


def is_initialized(node: dict[str, Any]) -> bool:
    """Whether a cloud controller manager has taken a Node."""
    return UNINITIALIZED not in {taint["key"] for taint in node["spec"].get("taints") or []}


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a Node says so."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", []))


def _silos(images: list[RegisteredImage]) -> list[dict[str, Any]]:
    """The silo of the other tests' racks, with these images, and with a user who may do what a cluster needs."""
    (silo,) = CONFIG["silos"]
    # The API's list of tokens does not tell which is which, but for the day on which one ends.
    tokens = [{"token": CLUSTER_TOKEN}, {"token": NEXT_CLUSTER_TOKEN, "expires": "2199-01-01T00:00:00Z"}]
    return [
        silo
        | {
            "images": [image.rack_entry() for image in images],
            # On the silo, whose images it boots; a role on the project alone does not let it see them.
            "users": [*silo["users"], {"name": "cluster", "role": "limited_collaborator", "tokens": tokens}],
        }
    ]


@contextlib.contextmanager
def open_machines(
    directory: Path, docker_host: str, images: list[RegisteredImage], **changes: Any
) -> Iterator[Machines]:
    """A management cluster, a provider, and a rack that offers these images.

    Args:
        directory: for logs.
        docker_host: the engine that has the images.
        images: node images.
        **changes: of the rack's configuration.
    """
    found = resolve(os.environ)
    plane_directory = directory / "controlplane"
    plane_directory.mkdir()
    plane = ManagementCluster(found, components.ensure(os.environ, found, None), directory=plane_directory)
    with plane, Lab(directory, docker_host, images[0].reference, silos=_silos(images), **changes) as lab:
        plane.kubectl("apply", "--server-side", "-k", str(_CRDS))
        files = [word for path in _CRDS.glob("oxide*.yaml") for word in ("-f", str(path))]
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
        plane.kubectl("create", "namespace", NAMESPACE)
        install(plane)
        lab.allow(
            {"name": "allow-internal-inbound", "filters": {"hosts": [{"type": "vpc", "value": "default"}]}},
            {"name": "allow-api", "filters": {"ports": ["6443"], "protocols": [{"type": "tcp"}]}},
        )
        # Of the very image that is booted, whatever has been made since it was looked up.
        label = f'{{{{ index .Config.Labels "{MANAGER_LABEL}" }}}}'
        manager = lab.docker("image", "inspect", "--format", label, images[0].reference)
        with ProviderProcess(plane, directory, f"--namespace={NAMESPACE}", f"--ccm-image={manager}") as provider:
            machines = Machines(Stage(plane, lab.rack, provider, NAMESPACE), lab, found.path(KUBECTL), directory)
            machines.add_credentials(CLUSTER_TOKEN)
            yield machines
