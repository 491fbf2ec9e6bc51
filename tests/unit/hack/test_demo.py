"""The demo's decisions: which cluster, which rack, whether there can be machines, and what counts as there."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.plane import KUBECTL_SECONDS, CommandError
from hack.controlplane.progress import PlainReporter
from hack.controlplane.state import NamedControlPlane
from hack.demo import cluster, departure, machines, memory, rack, workload
from hack.demo.machines import Machines, NoMachinesError
from hack.demo.management import chosen_kubeconfig
from hack.demo.watch import until, watch
from hack.nodeimage.register import RegisteredImage

IMAGE = RegisteredImage(
    id="0b5f0f3a-6c0f-5d4f-8e26-2a8f8fb1e3d1",
    name="node-v1-36-3",
    description="a node image",
    os="debian",
    version="12",
    size_bytes=1 << 30,
    kubernetes="v1.36.3",
    reference="capox/node:v1.36.3",
)
OTHER = replace(IMAGE, id="9d4f1c60-93f5-5b0e-8f0e-6a3f0e7c2b11", name="node-v1-36-4")
MACHINES = Machines("unix:///run/docker.sock", (IMAGE, OTHER), "manager:dev-1")


def named(directory: Path) -> NamedControlPlane:
    """The demo with a state directory of the test's own."""
    return NamedControlPlane("demo", {"XDG_STATE_HOME": str(directory)})


def test_kubeconfig_names_the_management_cluster(tmp_path: Path) -> None:
    """KUBECONFIG chooses a cluster, however many files it lists; without it the demo has one of its own."""
    demo = named(tmp_path)

    assert chosen_kubeconfig({"KUBECONFIG": "/home/me/kind"}, demo) == "/home/me/kind"
    assert chosen_kubeconfig({"KUBECONFIG": "/home/me/one:/home/me/two"}, demo) == "/home/me/one:/home/me/two"
    assert chosen_kubeconfig({}, demo) is None
    assert chosen_kubeconfig({"KUBECONFIG": ""}, demo) is None


def test_the_kubeconfig_of_an_earlier_demo_chooses_nothing(tmp_path: Path) -> None:
    """Who has looked at a demo gets the next one as the one before, although KUBECONFIG still names it."""
    demo = named(tmp_path)

    assert chosen_kubeconfig({"KUBECONFIG": str(demo.directory / "pki" / "admin.kubeconfig")}, demo) is None


def test_the_rack_without_machines() -> None:
    """Nothing runs in the instances, and there is an image for them to name."""
    chosen = rack.configuration(None)

    assert "guests" not in chosen
    assert [image["id"] for image in chosen["silos"][0]["images"]] == [cluster.IMAGE_ID]


def test_the_rack_with_machines() -> None:
    """The node images are there under their ids, and Docker tells what is the demo's."""
    chosen = rack.configuration(MACHINES)

    assert chosen["guests"] == {"backend": "docker", "name": rack.RACK_NAME, "uplink": rack.UPLINK}
    assert [image["guest"] for image in chosen["silos"][0]["images"]] == ["capox/node:v1.36.3"] * 2
    assert chosen["silos"][0]["images"][0]["id"] == IMAGE.id


def test_the_rack_says_what_it_would_change(tmp_path: Path) -> None:
    """What a person is asked to allow are the rack's own words, and no file stays."""
    said = rack.changes_of_this_computer(MACHINES, tmp_path, {"HOME": str(tmp_path)})

    assert "puts everything back" in said
    assert "capox-demo" in said
    assert "198.51.100." in said
    assert "--allow-host-changes" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_rack_that_cannot_be(tmp_path: Path) -> None:
    """A configuration that the rack refuses is a reason to go without machines, in the rack's words."""
    twice = replace(MACHINES, images=(IMAGE, IMAGE))

    with pytest.raises(NoMachinesError, match="names differ"):
        rack.changes_of_this_computer(twice, tmp_path, {"HOME": str(tmp_path)})


def test_no_docker_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no engine answers and none may be started, the reason has a remedy."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}

    with pytest.raises(NoMachinesError, match=r"No Docker engine answers.*Start Docker") as caught:
        machines.start_engine(environ, PlainReporter(StringIO()))

    assert "\n" not in str(caught.value)


def test_another_architecture_has_no_node_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker is not even looked for where machines could not boot."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    with pytest.raises(NoMachinesError, match="x86_64, and this computer is aarch64"):
        machines.start_engine({"HOME": str(tmp_path)}, PlainReporter(StringIO()))


def test_nobody_is_asked_without_a_terminal() -> None:
    """A log gets what is going to be changed and how to avoid it; nothing waits for an answer."""
    log = StringIO()

    machines.ask("guests change this computer", PlainReporter(log))

    assert log.getvalue().splitlines()[0] == "guests change this computer"
    assert "GUESTS=none" in log.getvalue()


def test_what_is_remembered(tmp_path: Path) -> None:
    """`down` knows what `up` has begun, and nothing where there was no `up`."""
    demo = named(tmp_path)
    assert memory.recall(demo) == memory.Memory()

    begun = memory.Memory(is_installed=True, docker_host="unix:///run/docker.sock", is_engine_ours=True)
    memory.remember(demo, begun)

    assert memory.recall(demo) == begun


def node(name: str, *, ready: bool = True, initialized: bool = True) -> dict[str, Any]:
    """A Node."""
    taints = [] if initialized else [{"key": workload.UNINITIALIZED, "effect": "NoSchedule"}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"conditions": conditions}}


def test_nodes_are_there_when_all_are_ready() -> None:
    """Every Node counts, and one that waits for its cloud controller manager is said to."""
    ready = [node(f"node-{number}", initialized=False) for number in range(cluster.NODES)]

    rows = workload.node_rows(ready)

    assert workload.nodes_are_ready(rows)
    assert rows[0] == ("Node", "node-0", "Ready, waits for the cloud controller manager")
    assert not workload.nodes_are_ready(rows[1:])
    assert not workload.nodes_are_ready(workload.node_rows([*ready[1:], node("node-0", ready=False)]))
    assert not workload.is_initialized(ready[0])
    assert workload.is_initialized(node("node-0"))


def test_the_address_of_a_service() -> None:
    """The floating IP is the one behind which packets are translated; the Node's own address comes with it."""
    entries = [{"ip": "172.30.0.6", "ipMode": "VIP"}, {"ip": "198.51.100.12", "ipMode": "Proxy"}]

    assert workload.address_of({"status": {"loadBalancer": {"ingress": entries}}}) == "198.51.100.12"
    assert workload.address_of({"status": {"loadBalancer": {}}}) is None
    assert workload.address_of({}) is None


def test_the_infrastructure_stands() -> None:
    """An instance runs, carries the endpoint, and the provider says so; less is not enough."""
    rows = [
        ("OxideMachine", "demo-control-plane-1", "Ready: Ready"),
        ("instance", "demo-control-plane-1", "running"),
        ("floating IP", "demo-endpoint", "198.51.100.10, on demo-control-plane-1"),
    ]

    assert cluster.infrastructure_stands(rows)
    for missing in rows:
        assert not cluster.infrastructure_stands([row for row in rows if row != missing])


class FakeCluster:
    """kubectl in a cluster that is a dict: names by kind. Deleting takes away what no finalizer keeps."""

    def __init__(self, **objects: list[str]) -> None:
        self.objects = {"crd": [], "namespace": ["default"], "clusters.cluster.x-k8s.io": []} | objects
        self.guarded: dict[str, dict[str, Any]] = {}
        self.is_away = False

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = KUBECTL_SECONDS) -> str:
        """Run kubectl."""
        del stdin, timeout_seconds
        if self.is_away:
            raise CommandError("connection refused")
        match arguments:
            case ("get", departure._GUARDED, *_):
                return json.dumps({"items": list(self.guarded.values())})
            case ("get", kind, "-o", "name"):
                return "".join(f"{kind}/{name}\n" for name in self.objects[kind])
            case ("get", kind, name, *_):
                is_kept = name in self.objects[kind] or self.guarded
                return f"{kind}/{name}\n" if is_kept else ""
            case ("patch", name, *_):
                del self.guarded[name]
            case ("delete", "-k", path, *_):
                self.objects["crd"] = [] if path.endswith("crd") else self.objects["crd"]
            case ("delete", "-f", *_):
                self.objects["namespace"].remove("capox-system")
            case ("delete", kind, name, *_) if name in self.objects[kind]:
                self.objects[kind].remove(name)
        return ""


KINDS = ["oxideclusters.infrastructure.cluster.x-k8s.io", "oxidemachines.infrastructure.cluster.x-k8s.io"]


def demo_cluster() -> FakeCluster:
    """A cluster with a demo in it."""
    made = FakeCluster(namespace=["default", "demo", "capox-system"], crd=list(KINDS))
    made.objects["clusters.cluster.x-k8s.io"] = ["demo"]
    return made


def test_a_cluster_with_room() -> None:
    """Nothing of the demo's names is taken."""
    departure.require_room(FakeCluster(crd=["clusters.cluster.x-k8s.io"]), "https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        ({"crd": KINDS}, "the provider's kinds"),
        ({"namespace": ["demo"]}, "a namespace demo"),
        ({"namespace": ["capox-system"]}, "a namespace capox-system"),
    ],
)
def test_a_cluster_without_room(taken: dict[str, list[str]], reason: str) -> None:
    """What somebody else has put there is never taken over, because it would be taken away in the end."""
    with pytest.raises(ControlPlaneError, match=f"https://127.0.0.1:1 has {reason} already"):
        departure.require_room(FakeCluster(**taken), "https://127.0.0.1:1")


def test_leaving_takes_everything_away() -> None:
    """Cluster, kinds and both namespaces go, and nothing else does."""
    left = demo_cluster()

    departure.leave(left, has_provider=True)

    assert left.objects == {"crd": [], "namespace": ["default"], "clusters.cluster.x-k8s.io": []}


def test_leaving_without_a_provider() -> None:
    """When the demo's processes have died, its finalizers are taken off; those of others are not."""
    left = demo_cluster()
    finalizers = {"oxidemachine/demo-1": ["oxidemachine.infrastructure.cluster.x-k8s.io"]}
    for name, own in finalizers.items():
        kind, _, short = name.partition("/")
        left.guarded[name] = {"kind": kind, "metadata": {"name": short, "finalizers": own}}

    departure.leave(left, has_provider=False)

    assert left.guarded == {}
    assert left.objects["namespace"] == ["default"]


def test_leaving_a_cluster_that_is_gone() -> None:
    """A management cluster that does not answer is said to, with what to do then and what if it never answers."""
    left = demo_cluster()
    left.is_away = True

    with pytest.raises(
        departure.DepartureError, match=r"does not answer \(connection refused\).*run it again.*--abandon"
    ):
        departure.leave(left, has_provider=True)


def test_a_deletion_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's end did not come: nothing that it needs is taken away, and a second try finds it all."""
    monkeypatch.setattr(departure, "DELETE_SECONDS", 0.0)
    left = demo_cluster()
    left.guarded["oxidemachine/demo-1"] = {"kind": "OxideMachine", "metadata": {"name": "demo-1"}}

    with pytest.raises(departure.DepartureError, match="was not gone within 0 s"):
        departure.leave(left, has_provider=True)

    assert left.objects["crd"] == KINDS
    assert "demo" in left.objects["namespace"]


def test_the_cluster_of_kind() -> None:
    """The page is about the cluster that the configuration names, whose networks are apart from the template's."""
    configuration = yaml.safe_load((REPOSITORY / "config" / "kind" / "kind.yaml").read_text())
    page = (REPOSITORY / "docs" / "how-to" / "use-another-management-cluster.md").read_text()
    template = cluster.TEMPLATE.read_text()

    assert configuration["kind"] == "Cluster"
    assert f"kind delete cluster --name {configuration['name']}\n" in page
    assert f"kind get kubeconfig --name {configuration['name']} " in page
    networks = {configuration["networking"][name] for name in ("podSubnet", "serviceSubnet")}
    assert len(networks) == 2
    assert not any(network in template for network in networks)


def test_a_look_that_fails_is_repeated() -> None:
    """Who does not answer once has not ended the demo; what never comes ends the wait."""
    failures = [CommandError("no answer"), OSError("timed out")]

    def look() -> list[cluster.Row]:
        """Look once."""
        if failures:
            raise failures.pop()
        return [("Node", "node-0", "Ready")]

    assert watch(look, bool, within_seconds=60)
    assert not watch(list, bool, within_seconds=0)
    assert not until(lambda: False, within_seconds=0)


def test_the_server_of_the_demo_says_where_it_is() -> None:
    """What runs in the Pods is a whole Python program that tells Pod and Node."""
    (container,) = workload.deployment("manager:dev-1")["spec"]["template"]["spec"]["containers"]
    program, option, source = container["command"]

    assert (program, option) == ("python3", "-c")
    assert "Hello from Pod" in source
    compile(source, "server", "exec")
