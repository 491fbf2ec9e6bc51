"""What a real kube-proxy makes of the status that the cloud controller manager writes (rules V1, V2, V7; 4.1 to 4.3).

Each node listens on the port of the Services by itself. So whatever kube-proxy has not taken is answered by the node,
and "nobody has made a rule for this" is an answer and not a silence.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hack.controlplane.binaries import Binaries, resolve
from hack.controlplane.errors import BinaryError
from hack.controlplane.plane import ControlPlane
from hack.controlplane.programs import ETCD, KUBE_APISERVER, KUBE_PROXY, KUBECTL
from tests.e2e.namespaces import REFUSED, SILENCE, NamespaceError, Namespaces
from tests.e2e.proxied_cluster import HAND_CLASS, PORT, ProxiedCluster, kind, open_cluster
from tests.e2e.proxied_network import OUTSIDE, OUTSIDE_ADDRESS, STRANGER_ADDRESS
from tests.rack_process import RackProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.parametrize("mode", ["iptables", "nftables"])]

PODS: Final = ("pod-1", "pod-2", "pod-3")
BY_HAND: Final = "198.51.100.60"
ALSO_BY_HAND: Final = "198.51.100.61"
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

_PROGRAMS: Final = ("ip", "nft", "iptables", "nsenter", "curl")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Where traffic for a floating IP goes.

    Attributes:
        outside: who answers those outside: `pods`, or the `node` itself.
        inside: who answers nodes and Pods.
        goes_out: whether what comes from inside leaves for the rack's edge first.
    """

    outside: frozenset[str]
    inside: frozenset[str]
    goes_out: bool


AS_DESIGNED: Final = Verdict(frozenset({"pods"}), frozenset({"pods"}), goes_out=True)


@pytest.fixture(scope="module")
def programs() -> Binaries:
    """The control plane's programs and kube-proxy, where namespaces can be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root only; run `make e2e` as root")
    missing = [each for each in _PROGRAMS if shutil.which(each) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: iproute2, nftables, iptables, util-linux, curl)")
    try:
        found = resolve(os.environ, programs=(ETCD, KUBE_APISERVER, KUBECTL, KUBE_PROXY))
    except BinaryError as error:
        if os.environ.get(KUBE_PROXY.environment_variable):
            raise
        pytest.skip(f"{error} kube-proxy is built by `make node-image`, or given by {KUBE_PROXY.environment_variable}.")
    try:
        with Namespaces() as namespaces:
            namespaces.make("trial")
    except NamespaceError as error:
        pytest.skip(f"this computer does not let us make network namespaces: {error}")
    return found


@pytest.fixture(scope="module")
def plane(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An apiserver. No controllers: the tests say which Nodes are well and which endpoints there are."""
    directory = tmp_path_factory.mktemp("proxied")
    with ControlPlane(programs, directory=directory, with_controllers=False) as plane:
        yield plane


@pytest.fixture
def cluster(plane: ControlPlane, mode: str, tmp_path: Path) -> Iterator[ProxiedCluster]:
    """Three nodes, their kube-proxies, a rack and the cloud controller manager."""
    with RackProcess(tmp_path) as rack, open_cluster(plane, rack, tmp_path, mode) as cluster:
        yield cluster


def test_a_service_from_its_first_packet_to_its_last(cluster: ProxiedCluster) -> None:
    """The two entries carry traffic from everywhere; they follow the address; ranges hold; nothing stays behind."""
    assert who_answers_nodes_addresses(cluster) == {name: {name} for name in cluster.nodes}
    cluster.add_service("web", PODS, ports=("TCP", "UDP"))
    address, holder = cluster.await_holder("web")
    cluster.await_proxies()

    assert judge(cluster, address) == AS_DESIGNED
    assert cluster.ingress("web") == [(address, "Proxy"), (cluster.nodes[holder], "VIP")]
    replies = [cluster.fetch(OUTSIDE, address) for _ in range(60)]
    assert {reply.name for reply in replies} == set(PODS), "also those on other nodes"
    # The holder stands between, so that replies go back the way the questions came (3.6: the source is lost there).
    from_afar = {reply.seen for reply in replies if reply.name != holder.replace("node", "pod")}
    assert from_afar == {cluster.nodes[holder]}
    assert cluster.network.namespaces.exchange(OUTSIDE, address, PORT).name in PODS
    # Every node takes what is for the holder's address, and no other address (4.2).
    assert who_answers_nodes_addresses(cluster) == {name: {name} for name in cluster.nodes} | {holder: {"pods"}}

    cluster.label(holder, f"{EXCLUDED}=true")
    answers, (address_then, successor) = ask_during_a_move(cluster, "web", address, holder)
    cluster.await_proxies()

    assert address_then == address
    # The nodes have their rules before the first packet comes (V7): nobody is ever answered by a node itself.
    assert answers <= {*PODS, REFUSED, SILENCE}
    assert judge(cluster, address) == AS_DESIGNED
    assert who_answers_nodes_addresses(cluster) == {name: {name} for name in cluster.nodes} | {successor: {"pods"}}

    cluster.change_service("web", {"loadBalancerSourceRanges": [f"{OUTSIDE_ADDRESS}/32"]})
    cluster.await_proxies()
    assert cluster.fetch(OUTSIDE, address).name in PODS
    assert cluster.fetch(OUTSIDE, address, source=STRANGER_ADDRESS).name == SILENCE
    assert cluster.fetch("pod-1", address).name == SILENCE, "it comes from outside, too, and under another address"
    cluster.change_service("web", {"loadBalancerSourceRanges": None})
    cluster.await_proxies()
    assert cluster.fetch(OUTSIDE, address, source=STRANGER_ADDRESS).name in PODS

    cluster.delete_service("web")
    cluster.eventually("the Service is gone", lambda: not cluster.has_service("web"))
    cluster.await_proxies()
    assert cluster.floating_ips() == []
    assert cluster.fetch(OUTSIDE, address).name == REFUSED
    assert who_answers_nodes_addresses(cluster) == {name: {name} for name in cluster.nodes}
    assert "Traceback" not in cluster.ccm.log_file.read_text()


def test_a_holder_that_dies(cluster: ProxiedCluster) -> None:
    """Another node takes over, and no node takes what is for the dead one's address any more."""
    cluster.add_service("web", PODS)
    address, dead = cluster.await_holder("web")
    cluster.await_proxies()
    assert judge(cluster, address) == AS_DESIGNED

    cluster.stop_instance(dead)
    cluster.set_endpoints("web", [pod for pod in PODS if pod.removeprefix("pod") != dead.removeprefix("node")])
    # Nobody waits for the nodes where nobody answers meanwhile (V7), so the successor itself may answer for a moment.
    _, (address_then, successor) = ask_during_a_move(cluster, "web", address, dead)
    living = [node for node in cluster.nodes if node != dead]
    cluster.await_proxies(living)

    assert address_then == address
    assert cluster.ingress("web") == [(address, "Proxy"), (cluster.nodes[successor], "VIP")]
    assert {kind(cluster.fetch(who, address).name) for who in (OUTSIDE, *living)} == {"pods"}
    assert {cluster.fetch(who, cluster.nodes[dead]).name for who in living} <= {SILENCE, REFUSED}


def test_two_services_on_one_port(cluster: ProxiedCluster) -> None:
    """The CCM puts them on different nodes, so that each address leads to its own Pods (4.3)."""
    cluster.add_service("one", ["pod-1"])
    cluster.add_service("two", ["pod-2"])
    (address_one, holder_one), (address_two, holder_two) = cluster.await_holder("one"), cluster.await_holder("two")
    cluster.await_proxies()

    assert holder_one != holder_two
    for who in (OUTSIDE, *cluster.network.everybody):
        assert cluster.answering(who, address_one, times=2) == {"pod-1"}
        assert cluster.answering(who, address_two, times=2) == {"pod-2"}


def test_what_each_entry_is_for(cluster: ProxiedCluster) -> None:
    """Why there are two entries, and each with its mode: under any other status traffic goes elsewhere (4.1)."""
    private = cluster.nodes["node-1"]
    pods, node = frozenset({"pods"}), frozenset({"node"})
    table = {
        "as the CCM writes it": ([(BY_HAND, "Proxy"), (private, "VIP")], AS_DESIGNED),
        "exchanged": ([(BY_HAND, "VIP"), (private, "Proxy")], Verdict(node, pods, goes_out=False)),
        "both VIP": ([(BY_HAND, "VIP"), (private, "VIP")], Verdict(pods, pods, goes_out=False)),
        "both Proxy": ([(BY_HAND, "Proxy"), (private, "Proxy")], Verdict(node, node, goes_out=True)),
        "the floating IP alone": ([(BY_HAND, "Proxy")], Verdict(node, node, goes_out=True)),
        "as most clouds do": ([(BY_HAND, "VIP")], Verdict(node, pods, goes_out=False)),
    }
    cluster.add_service("web", PODS, loadBalancerClass=HAND_CLASS)
    cluster.lead(BY_HAND, "node-1")
    seen = {}
    for name, (entries, _) in table.items():
        cluster.write_ingress("web", entries)
        cluster.await_proxies()
        seen[name] = judge(cluster, BY_HAND)

    assert seen == {name: verdict for name, (_, verdict) in table.items()}


def test_two_services_with_one_address_and_port(cluster: ProxiedCluster) -> None:
    """What the CCM never writes, because of this: a node gives one Service the traffic of both, and nobody is told.

    Other Services do not suffer from it (4.2): the one by which the kube-proxies are waited for comes after these two.
    """
    for name, pod, address in (("one", "pod-1", BY_HAND), ("two", "pod-2", ALSO_BY_HAND)):
        cluster.add_service(name, [pod], loadBalancerClass=HAND_CLASS)
        cluster.write_ingress(name, [(address, "Proxy"), (cluster.nodes["node-1"], "VIP")])
        cluster.lead(address, "node-1")
    cluster.await_proxies()

    winner = cluster.answering(OUTSIDE, BY_HAND)
    assert winner in ({"pod-1"}, {"pod-2"})
    assert cluster.answering(OUTSIDE, ALSO_BY_HAND) == winner

    cluster.delete_service("one" if winner == {"pod-1"} else "two")
    cluster.await_proxies()
    assert cluster.answering(OUTSIDE, BY_HAND) == {"pod-1", "pod-2"} - winner


def judge(cluster: ProxiedCluster, address: str) -> Verdict:
    """Ask at a floating IP from everywhere, and look where the questions come by."""
    outside = frozenset(map(kind, cluster.answering(OUTSIDE, address)))
    before = cluster.network.arrivals(address)
    asked = [cluster.fetch(who, address).name for who in cluster.network.everybody for _ in range(2)]
    came_by = cluster.network.arrivals(address) - before
    # One that is sent again comes by twice, so there may be more; some of them and not others would be a muddle.
    assert came_by == 0 or came_by >= len(asked), f"{came_by} of {len(asked)} connections went out"
    return Verdict(outside, frozenset(map(kind, asked)), goes_out=came_by > 0)


def who_answers_nodes_addresses(cluster: ProxiedCluster) -> dict[str, set[str]]:
    """Who answers whom inside at each node's private address: the node by its name, or `pods`."""
    found = {}
    for node, address in cluster.nodes.items():
        names = {cluster.fetch(who, address).name for who in cluster.network.everybody}
        found[node] = {"pods" if name in PODS else name for name in names}
    return found


def ask_during_a_move(
    cluster: ProxiedCluster, service: str, address: str, holder: str
) -> tuple[set[str], tuple[str, str]]:
    """Ask from outside until another node has the address; returns who answered, and who has it now.

    A kube-proxy with nothing to do would work in each change at once, and an order that is wrong would hardly show. So
    these have something to do all the time, as in a large cluster, and get to each change within about a second.
    """
    answers: set[str] = set()
    last_well = began = time.monotonic()
    longest = 0.0

    def has_moved() -> tuple[str, str] | None:
        nonlocal last_well, longest
        cluster.disturb_proxies()
        answer = cluster.fetch(OUTSIDE, address).name
        answers.add(answer)
        now = time.monotonic()
        longest = max(longest, now - last_well)
        if answer in PODS:
            last_well = now
        served = cluster.served(service)
        return served if served is not None and served[1] != holder and answer in PODS else None

    found = cluster.eventually(f"{address} has left {holder}", has_moved)
    assert found is not None, "what is waited for is there"
    # Seen with -s, and when something fails; not judged, because this computer's speed is in it.
    sys.stdout.write(f"moved after {time.monotonic() - began:.1f} s, unanswered for at most {longest:.1f} s\n")
    return answers, found
