"""One workload cluster of a story: what its users do to it, and what can be seen of it from all sides."""

from __future__ import annotations

import contextlib
import copy
import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.nodeimage.register import RegisteredImage
from hack.nodeimage.releases import as_tag
from tests.e2e import endpoint_watch
from tests.e2e.endpoint_watch import Answer, Move
from tests.e2e.management import NAMESPACE, Machines, await_initialized, is_ready
from tests.integration.waiting import eventually

BOOT_SECONDS = 900
"""The bound for machines that boot, with two CPUs for all of them."""

# A look is a kubectl, which takes from the machines what they need to boot.
LOOK_SECONDS = 5
ROLE_LABEL = "node-role.kubernetes.io/control-plane"

_CORE = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"
_CONTROL_PLANE = f"/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"
_INFRASTRUCTURE = f"/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}"


class Workload:
    """A cluster made from a template of ours.

    Args:
        machines: where it is.
        name: of the cluster.
    """

    def __init__(self, machines: Machines, name: str = "web") -> None:
        self._machines = machines
        self._stage = machines.stage
        self.name = name

    # -- what a user does ---------------------------------------------------------------------------------------------

    def change(self, path: str, spec: dict[str, Any]) -> None:
        """Patch the spec of one of its objects in the management cluster."""
        client = self._stage.plane.client
        client.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")

    def change_control_plane(self, spec: dict[str, Any]) -> None:
        """Patch the spec of its KubeadmControlPlane."""
        self.change(f"{_CONTROL_PLANE}/kubeadmcontrolplanes/{self.name}-control-plane", spec)

    def change_workers(self, spec: dict[str, Any]) -> None:
        """Patch the spec of its MachineDeployment."""
        self.change(f"{_CORE}/machinedeployments/{self.name}-workers", spec)

    def change_health_check(self, role: str, checks: dict[str, Any]) -> None:
        """Patch what a MachineHealthCheck looks at."""
        self.change(f"{_CORE}/machinehealthchecks/{self.name}-{role}", {"checks": checks})

    def upgrade(self, old: RegisteredImage, new: RegisteredImage) -> None:
        """Make new machine templates with the other image, then set their names and the version."""
        client = self._stage.plane.client
        path = f"{_INFRASTRUCTURE}/oxidemachinetemplates"
        for role in ("control-plane", "workers"):
            template = client.get(f"{path}/{self.name}-{role}")
            spec: dict[str, Any] = copy.deepcopy(template["spec"])
            assert spec["template"]["spec"]["imageID"] == old.id
            spec["template"]["spec"]["imageID"] = new.id
            metadata = {"name": f"{self.name}-{role}-new", "namespace": NAMESPACE}
            client.post(
                path,
                {"apiVersion": template["apiVersion"], "kind": template["kind"], "metadata": metadata, "spec": spec},
            )
        reference = {"infrastructureRef": {"name": f"{self.name}-control-plane-new"}}
        self.change_control_plane({"version": new.kubernetes, "machineTemplate": {"spec": reference}})
        reference = {"infrastructureRef": {"name": f"{self.name}-workers-new"}}
        self.change_workers({"template": {"spec": {"version": new.kubernetes, **reference}}})

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """Its Nodes; none as long as nobody answers."""
        return self._machines.objects(self.name, "/api/v1/nodes")

    def control_plane_nodes(self) -> list[dict[str, Any]]:
        """Those of its control plane."""
        return [node for node in self.nodes() if ROLE_LABEL in node["metadata"]["labels"]]

    def ready_versions(self) -> list[str]:
        """The kubelets' versions when every Node is Ready."""
        nodes = self.nodes()
        return [node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes] if all(map(is_ready, nodes)) else []

    def await_nodes(self, count: int, version: str, *, within_seconds: float = BOOT_SECONDS) -> None:
        """Wait until there are so many Nodes, all of this version and Ready, and so many machines, all running."""

        def are_there() -> bool:
            """Whether all of them are, and nothing else."""
            machines = self.machines()
            running = [each for each in machines.values() if each["status"].get("phase") == "Running"]
            return len(running) == len(machines) == count and self.ready_versions() == [version] * count

        eventually(
            f"{count} Nodes of {version} are Ready",
            are_there,
            within_seconds=within_seconds,
            every_seconds=LOOK_SECONDS,
        )

    def machines(self) -> dict[str, dict[str, Any]]:
        """Its Machines by name."""
        return {each["metadata"]["name"]: each for each in self._stage.objects("machine")}

    def machine_ids(self) -> dict[str, str]:
        """Which instance each of its Machines is; another object of the same name is another machine."""
        return {each["metadata"]["uid"]: each["spec"].get("providerID", "") for each in self.machines().values()}

    def instance_of(self, node: dict[str, Any]) -> dict[str, Any]:
        """The instance that a Node says it is."""
        (found,) = (each for each in self._stage.instances() if node["spec"]["providerID"] == f"oxide://{each['id']}")
        return dict(found)

    def endpoint(self) -> dict[str, Any]:
        """Its floating IP, as the rack shows it."""
        host = self._stage.get("cluster", self.name)["spec"]["controlPlaneEndpoint"]["host"]
        (found,) = (each for each in self._stage.on_rack("floating-ips") if each["ip"] == host)
        return dict(found)

    def expect_nodes_of_instances(self) -> None:
        """Each Node is one instance, by name, provider ID and address, and the Node of one Machine.

        Nobody installs the cloud controller manager that has initialized it.
        """
        instances = {each["hostname"]: each for each in self._stage.instances()}
        found = await_initialized(self._machines, self.name, len(instances))
        nodes = {node["metadata"]["name"]: node for node in found}
        assert nodes.keys() == instances.keys()
        for name, node in nodes.items():
            assert node["spec"]["providerID"] == f"oxide://{instances[name]['id']}"
            addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
            assert addresses["InternalIP"] == self._machines.private_address(instances[name]["name"])
        eventually(
            "each Machine knows its Node",
            lambda: (
                sorted((each["status"].get("nodeRef") or {}).get("name", "") for each in self.machines().values())
                == sorted(nodes)
            ),
            within_seconds=120,
        )

    def proxies_ready(self, image: RegisteredImage) -> int:
        """On how many Nodes the kube-proxy of an image is ready; 0 while it is another one that is wanted."""
        for each in self._machines.objects(self.name, "/apis/apps/v1/namespaces/kube-system/daemonsets"):
            name = each["spec"]["template"]["spec"]["containers"][0]["image"]
            is_settled = each["status"].get("observedGeneration") == each["metadata"]["generation"]
            if "/kube-proxy:" in name and name.endswith(f":{as_tag(image.kubernetes)}") and is_settled:
                return min(int(each["status"].get(number, 0)) for number in ("numberReady", "updatedNumberScheduled"))
        return 0

    @contextlib.contextmanager
    def watched(self, log: Path) -> Iterator[Watch]:
        """Have a client ask through its floating IP as long as the context lasts."""
        endpoint = self.endpoint()
        watch = Watch(self._machines, endpoint["id"], log)
        with endpoint_watch.asking(endpoint["ip"], 6443, log):
            # Before the story goes on, so that the log has a beginning that is well.
            eventually("the client is answered", watch.is_answered, within_seconds=120)
            yield watch


class Watch:
    """What a client has seen of an endpoint since it began, and what the rack was asked to do meanwhile.

    Args:
        machines: where it is.
        floating_ip: the endpoint's id.
        log: the client's.
    """

    def __init__(self, machines: Machines, floating_ip: str, log: Path) -> None:
        self._stage = machines.stage
        self._floating_ip = floating_ip
        self._log = log
        self._began = self._stage.last_call()

    def answers(self) -> list[Answer]:
        """What was answered so far."""
        text = self._log.read_text()
        return endpoint_watch.read_answers(text[: text.rfind("\n") + 1])

    def moves(self) -> list[Move]:
        """How often the address was moved so far."""
        return endpoint_watch.moves_of(self._stage.rack.control.calls(self._began), self._floating_ip)

    def is_answered(self) -> bool:
        """Whether the last question that was answered was answered well."""
        answers = self.answers()
        return bool(answers) and answers[-1].status == endpoint_watch.OK

    def tell(self) -> str:
        """What was seen, for people."""
        return endpoint_watch.tell(self.answers(), self.moves())


def await_as_before(machines: Machines, before: list[str]) -> None:
    """Wait until the rack's inventory and what it has in Docker are what `world` gave before; else say what differs."""

    def is_as_before() -> bool:
        """Whether nothing differs."""
        return world(machines) == before

    try:
        eventually("rack and Docker are as before", is_as_before, within_seconds=120, every_seconds=1)
    except AssertionError:
        difference = "\n".join(difflib.unified_diff(before, world(machines), "before", "now", lineterm="", n=8))
        raise AssertionError(f"rack and Docker are not as before:\n{difference}") from None


def world(machines: Machines) -> list[str]:
    """What is on the rack and in Docker, for comparison."""
    docker = sorted(f"{kind}: {name}" for kind, names in machines.lab.ours().items() for name in names)
    return docker + json.dumps(machines.stage.rack.control.inventory(), indent=1, sort_keys=True).splitlines()
