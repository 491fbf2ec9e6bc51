"""A cluster of which nothing is real but what decides where packets go: apiserver, kube-proxies, and `capox ccm`."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from hack.controlplane.pki import kubeconfig, write_private
from hack.controlplane.plane import ControlPlane
from hack.controlplane.programs import KUBE_PROXY
from tests.e2e.namespaces import Namespaces, Reply
from tests.e2e.proxied_network import NODE_PORT, POD_PORT, POD_RANGE, ProxiedNetwork
from tests.integration.ccm_process import UNINITIALIZED, CCMProcess, Kubelets, install_rights
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

PORT: Final = NODE_PORT
"""The port of all Services: where the nodes answer by themselves, so that a missing rule has a face."""

HAND_CLASS: Final = "tests.capox/by-hand"
"""The class of Services whose status the tests write; the CCM keeps off them."""

State = TypeVar("State")

_TOKEN: Final = "oxide-token-admin"
_MARKER: Final = "marker"
_SERVICES: Final = "/api/v1/namespaces/default/services"
_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_PROXY_SECONDS: Final = 60.0
_STATE_SECONDS: Final = 90.0


class ProxiedCluster:
    """Three nodes with a Pod each, and all that a Service needs.

    Args:
        plane: the control plane.
        rack: the rack, without guests.
        namespaces: where the network is.
        directory: for files.

    Attributes:
        network: nodes, Pods and the edge.
        kubelets: what renews the nodes' Leases.
        ccm: the cloud controller manager.
    """

    def __init__(self, plane: ControlPlane, rack: RackProcess, namespaces: Namespaces, directory: Path) -> None:
        self.plane = plane
        self.rack = rack.client()
        self.kubelets = Kubelets(plane)
        self._instances = {name: self._add_instance(name) for name in ("node-1", "node-2", "node-3")}
        self.network = ProxiedNetwork(namespaces, {name: self._private_address(name) for name in self._instances})
        self.ccm = CCMProcess(plane, directory, rack.url, _TOKEN)
        self._led: dict[str, str] = {}
        self._rounds = 0

    @property
    def nodes(self) -> dict[str, str]:
        """The private address of each node."""
        return self.network.nodes

    # The world goes on.

    def tick(self) -> None:
        """Have the kubelets breathe, and have the edge do what the rack says."""
        self.kubelets.beat()
        private = {self._instances[name]: address for name, address in self.nodes.items()}
        attached = {each["ip"]: private.get(each["instance_id"]) for each in self.floating_ips()}
        self.network.translate({outer: inner for outer, inner in attached.items() if inner is not None} | self._led)

    def lead(self, address: str, node: str) -> None:
        """Have the edge lead an address to a node, though the rack knows nothing of it."""
        self._led[address] = self.nodes[node]
        self.tick()

    def await_proxies(self, nodes: Collection[str] | None = None) -> None:
        """Wait until every kube-proxy has worked in all that the apiserver has now.

        Services come to a kube-proxy in their order. So when one that is changed now has got there, those before have.

        Args:
            nodes: those that live; absent, all.
        """
        address = self.disturb_proxies()
        for node in self.nodes if nodes is None else nodes:
            self.eventually(
                f"the kube-proxy of {node} is up to date",
                functools.partial(self._is_answered, node, address),
            )

    def eventually(self, what: str, observe: Callable[[], State]) -> State:
        """Wait for a state, while the world goes on."""

        def look() -> State:
            self.tick()
            return observe()

        return eventually(what, look, within_seconds=_STATE_SECONDS, every_seconds=0.02)

    def disturb_proxies(self) -> str:
        """Give all kube-proxies something to do: the address that a Service has from now on, which is returned."""
        self._rounds += 1
        if self._rounds == 1:
            self.add_service(_MARKER, list(self.network.pods), loadBalancerClass=HAND_CLASS)
        address = f"192.0.{2 + self._rounds // 256}.{self._rounds % 256}"
        self.write_ingress(_MARKER, [(address, "VIP")])
        return address

    def _is_answered(self, who: str, address: str) -> bool:
        return kind(self.fetch(who, address).name) == "pods"

    # Services.

    def add_service(self, name: str, pods: Sequence[str], *, ports: Sequence[str] = ("TCP",), **spec: Any) -> None:
        """Make a Service of type LoadBalancer without a selector, and say which Pods it has."""
        listed = [{"name": each.lower(), "protocol": each, "port": PORT, "targetPort": POD_PORT} for each in ports]
        full = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": listed} | spec
        document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": full}
        self.plane.client.post(_SERVICES, document)
        self.set_endpoints(name, pods, ports=ports)

    def label(self, node: str, label: str) -> None:
        """Put a label on a Node (`key=value`), or take it off (`key-`)."""
        self.plane.kubectl("label", "node", node, label)

    def set_endpoints(self, name: str, pods: Sequence[str], *, ports: Sequence[str] = ("TCP",)) -> None:
        """Say which Pods a Service has, as the EndpointSlice controller does."""
        addresses = self.network.pods
        document = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": each.lower(), "protocol": each, "port": POD_PORT} for each in ports],
            "endpoints": [
                {"addresses": [addresses[pod]], "conditions": {"ready": True}, "nodeName": pod.replace("pod", "node")}
                for pod in pods
            ],
        }
        self.plane.client.apply(f"{_SLICES}/{name}", document)

    def change_service(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change a Service's spec."""
        self.plane.kubectl("patch", "service", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete_service(self, name: str) -> None:
        """Begin to delete a Service, and take its endpoints away."""
        for path in (f"{_SERVICES}/{name}", f"{_SLICES}/{name}"):
            if self.plane.client.exists(path):
                self.plane.client.request("DELETE", path)

    def delete_all_services(self) -> None:
        """Leave no Service of a test's behind, whatever became of the one who would clean up after it."""
        for service in self.plane.client.get(_SERVICES)["items"]:
            name = service["metadata"]["name"]
            if name != "kubernetes":
                self.plane.kubectl("patch", "service", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
                self.delete_service(name)

    def has_service(self, name: str) -> bool:
        """Whether there is one."""
        return self.plane.client.exists(f"{_SERVICES}/{name}")

    def ingress(self, name: str) -> list[tuple[str, str]]:
        """What a Service's status says: addresses and how each is meant."""
        status = self.plane.client.get(f"{_SERVICES}/{name}")["status"]
        return [(each["ip"], each.get("ipMode", "absent")) for each in status["loadBalancer"].get("ingress") or []]

    def write_ingress(self, name: str, entries: Sequence[tuple[str, str]]) -> None:
        """Say in a Service's status what a test wants."""
        ingress = [{"ip": ip, "ipMode": mode} for ip, mode in entries]
        self.plane.client.patch_status(f"{_SERVICES}/{name}", {"status": {"loadBalancer": {"ingress": ingress}}})

    def served(self, name: str) -> tuple[str, str] | None:
        """A Service's address and the node that has it, once its status speaks of no other node; None until then.

        What else the status says is for the traffic to judge.
        """
        shown = {ip for ip, _ in self.ingress(name)}
        names = {self._instances[node]: node for node in self.nodes}
        for each in self.floating_ips():
            holder = names.get(each["instance_id"])
            if each["ip"] in shown and holder is not None and shown <= {each["ip"], self.nodes[holder]}:
                return each["ip"], holder
        return None

    def await_holder(self, name: str) -> tuple[str, str]:
        """Wait until a Service is served; returns its address and the node that has it."""
        found = self.eventually(f"{name} is served", lambda: self.served(name))
        assert found is not None, "what is waited for is there"
        return found

    # Requests.

    def fetch(self, who: str, address: str, **further: Any) -> Reply:
        """Who answers at an address and the port of all Services."""
        return self.network.namespaces.fetch(who, address, PORT, **further)

    def answering(self, who: str, address: str, times: int = 12) -> set[str]:
        """Who answers at an address, in several requests."""
        return {self.fetch(who, address).name for _ in range(times)}

    # The rack.

    def floating_ips(self) -> list[dict[str, Any]]:
        """The project's floating IPs."""
        return self._items("/v1/floating-ips")

    def stop_instance(self, node: str) -> None:
        """Stop a node's instance; its kubelet falls silent, which is noticed, and nobody reaches the node any more."""
        identity = self._instances[node]
        self.rack.post(f"/v1/instances/{identity}/stop").raise_for_status()
        self.network.unplug(node)
        eventually(f"{node} is stopped", lambda: self._run_state(identity) == "stopped")
        self.kubelets.silence(node)

    def _add_instance(self, name: str) -> str:
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 2,
            "memory": 4 * 2**30,
            "network_interfaces": {"type": "default_ipv4"},
        }
        made = self.rack.post("/v1/instances", params={"project": "demo"}, json=body)
        made.raise_for_status()
        identity: str = made.json()["id"]
        eventually(f"{name} runs", lambda: self._run_state(identity) == "running")
        return identity

    def _run_state(self, identity: str) -> str:
        state: str = self.rack.get(f"/v1/instances/{identity}").json()["run_state"]
        return state

    def _private_address(self, name: str) -> str:
        (nic,) = self._items("/v1/network-interfaces", instance=name)
        address: str = nic["ip_stack"]["value"]["ip"]
        return address

    def _items(self, path: str, **query: str) -> list[dict[str, Any]]:
        answer: httpx.Response = self.rack.get(path, params={"project": "demo", **query})
        answer.raise_for_status()
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


@contextlib.contextmanager
def open_cluster(plane: ControlPlane, rack: RackProcess, directory: Path, mode: str) -> Iterator[ProxiedCluster]:
    """A cluster whose kube-proxies work in a mode.

    Args:
        plane: a control plane without Nodes.
        rack: a rack without guests.
        directory: for files.
        mode: `iptables` or `nftables`.
    """
    install_rights(plane)
    with Namespaces() as namespaces:
        cluster = ProxiedCluster(plane, rack, namespaces, directory)
        try:
            with contextlib.closing(cluster.rack), cluster.ccm:
                for name in cluster.nodes:
                    cluster.kubelets.register(name)
                for name in cluster.nodes:
                    cluster.eventually(f"{name} is initialised", functools.partial(_is_initialised, cluster, name))
                with _kube_proxies(cluster, mode):
                    yield cluster
        finally:
            cluster.delete_all_services()
            cluster.kubelets.clean()


def kind(answered: str) -> str:
    """What kind of thing answered: `pods`, a `node` by itself, or whatever else came back."""
    return {"pod": "pods", "node": "node"}.get(answered.partition("-")[0], answered)


def _is_initialised(cluster: ProxiedCluster, name: str) -> bool:
    taints = cluster.kubelets.node(name)["spec"].get("taints") or []
    return not any(taint["key"] == UNINITIALIZED for taint in taints)


@contextlib.contextmanager
def _kube_proxies(cluster: ProxiedCluster, mode: str) -> Iterator[None]:
    """A kube-proxy on each node."""
    plane, namespaces = cluster.plane, cluster.network.namespaces
    user = plane.pki.authority.client("system:kube-proxy")
    access = plane.directory / "kube-proxy.kubeconfig"
    write_private(access, kubeconfig(plane.server, plane.pki.authority.key_pair.certificate, user=user))
    path = plane.directory / f"kube-proxy-{mode}.json"
    path.write_text(json.dumps(_configuration(mode, access)))
    started: list[str] = []
    try:
        for node in cluster.nodes:
            namespaces.relay(node, plane.port)
            name = f"kube-proxy-{mode}-{node}"
            environment = {"PATH": plane.environ["PATH"], "XTABLES_LOCKFILE": str(plane.directory / f"{node}.lock")}
            program = [str(plane.binaries.path(KUBE_PROXY)), f"--config={path}", f"--hostname-override={node}", "--v=2"]
            plane.processes.start(name, [*namespaces.entry(node), *program], environment)
            started.append(name)
        for node, name in zip(cluster.nodes, started, strict=True):
            is_healthy = functools.partial(_is_healthy, cluster, node)
            plane.processes.wait_until(name, is_healthy, within_seconds=_PROXY_SECONDS)
        yield
    finally:
        plane.processes.stop(*started)


def _is_healthy(cluster: ProxiedCluster, node: str) -> bool:
    cluster.tick()
    return cluster.network.namespaces.is_healthy(node, 10256)


def _configuration(mode: str, access: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(access)},
        "mode": mode,
        "clusterCIDR": POD_RANGE,
        "oomScoreAdj": 0,
        # The computer's own limits stay as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
