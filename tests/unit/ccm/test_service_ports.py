"""Ports: who gets which node, who waits, and what is refused (CCM rules 4.3, 4.4, S20, V3, V5, V6; group 11)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.ccm.kinds import PODS
from capox.ccm.proxy_mode import CONFIG_MAPS
from tests.sim.loop import simulated
from tests.sim.service_world import NAMESPACE, ServiceWorld


def add_pod(world: ServiceWorld, node: str, port: int, *, is_host_network: bool = False) -> None:
    """A pod that occupies a port of a node."""
    port_document = {"containerPort": port} if is_host_network else {"containerPort": 8443, "hostPort": port}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{node}-{port}", "namespace": NAMESPACE},
        "spec": {"nodeName": node, "hostNetwork": is_host_network, "containers": [{"ports": [port_document]}]},
    }
    world.store.create(PODS, NAMESPACE, document)


async def world_of(nodes: int) -> ServiceWorld:
    """A world with some nodes and a running controller."""
    world = ServiceWorld()
    await world.add_nodes(nodes)
    world.start()
    return world


@simulated
async def test_two_services_share_a_port_and_a_third_waits() -> None:
    """4.4: different nodes; the third has an address, no node and an empty status; it gets the first place freed."""
    world = await world_of(2)
    for name in ("first", "second", "third"):
        world.add_service(name, "tcp:443")
        await world.pass_time(2)
    await world.serve("first", "second")
    await world.until(lambda: "PortConflict" in world.told.reasons("third"), 30, "it is told")
    assert world.holder("first") != world.holder("second")
    assert world.holder("third") is None
    assert world.ingress("third") == []
    address = world.floating_ip("third").ip
    (message,) = world.told.messages("third", "PortConflict")
    assert "tcp/443 (default/first, default/second)" in message

    world.delete_service("first")

    await world.serve("third", seconds=30)
    assert world.floating_ip("third").ip == address
    assert world.is_served("second")
    await world.end()


@simulated
async def test_tcp_and_udp_share() -> None:
    """4.4: one number, two protocols, one node."""
    world = await world_of(1)
    world.add_service("web", "tcp:443")
    world.add_service("quic", "udp:443")

    await world.serve("web", "quic")

    await world.end()


@simulated
async def test_one_service_with_both_protocols() -> None:
    """3.6: one floating IP carries all."""
    world = await world_of(1)
    world.add_service("dns", "tcp:53", "udp:53")

    await world.serve("dns")

    assert world.floating_ip("dns").description.endswith("ports=tcp:53,udp:53")
    await world.end()


@simulated
async def test_many_services_are_spread() -> None:
    """4.4: fewest addresses first; no hot spot."""
    world = await world_of(3)
    names = [f"web-{number}" for number in range(9)]
    for number, name in enumerate(names):
        world.add_service(name, f"tcp:{8000 + number}")

    await world.serve(*names)

    holders = [world.holder(name) for name in names]
    assert sorted(holders.count(f"node-{number}") for number in (1, 2, 3)) == [3, 3, 3]
    await world.end()


@simulated
async def test_a_port_list_that_grows_into_a_conflict_moves_the_one_that_grew() -> None:
    """4.4: the neighbour stays, though it is the younger one."""
    world = await world_of(1)
    world.add_service("old", "tcp:80")
    await world.serve("old")
    world.add_service("young", "tcp:443")
    await world.serve("young")
    await world.add_node("node-2")

    world.change_service("old", spec={"ports": [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 443}]})

    await world.until(lambda: world.holder("old") == "node-2" and world.is_served("old"), 30, "it has moved")
    assert world.holder("young") == "node-1"
    assert world.floating_ip("old").description.endswith("ports=tcp:80,tcp:443")
    await world.end()


@simulated
async def test_a_port_list_that_grows_into_a_conflict_with_no_other_node() -> None:
    """4.4: never co-located: the one that grew is taken off, its address kept; taking the port back puts it on."""
    world = await world_of(1)
    world.add_service("old", "tcp:80")
    await world.serve("old")
    world.add_service("young", "tcp:443")
    await world.serve("young")
    address = world.floating_ip("old").ip
    grown = [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 443}]

    world.change_service("old", spec={"ports": grown})
    await world.until(lambda: world.holder("old") is None and world.ingress("old") == [], 30, "it is taken off")
    assert world.is_served("young")

    world.change_service("old", spec={"ports": grown[:1]})
    await world.serve("old", seconds=30)
    assert world.floating_ip("old").ip == address
    await world.end()


@pytest.mark.parametrize("is_host_network", [False, True])
def test_host_ports_are_avoided(is_host_network: bool) -> None:
    """V6: a node where a pod has the port is taken."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(2)
        add_pod(world, "node-1", 443, is_host_network=is_host_network)
        world.add_service("web", "tcp:443")
        await world.serve("web")
        assert world.holder("web") == "node-2"
        await world.end()

    story()


@simulated
async def test_without_a_reserve_people_are_told() -> None:
    """4.4: a port used by as many Services as nodes does not survive the loss of one."""
    world = await world_of(2)
    world.add_service("first", "tcp:443")
    world.add_service("second", "tcp:443")

    await world.serve("first", "second")
    await world.until(lambda: "NoFailoverNode" in world.told.reasons("second"), 120, "it is told")

    await world.end()


@simulated
async def test_control_planes_are_avoided() -> None:
    """4.4: a control plane node carries an address only where no worker can."""
    world = ServiceWorld()
    await world.add_node("cp-1", is_control_plane=True)
    await world.add_node("worker-1")
    world.start()
    world.add_service("web")

    await world.serve("web")

    assert world.holder("web") == "worker-1"
    await world.end()


REFUSALS: list[tuple[str, list[str], dict[str, Any], dict[str, str]]] = [
    ("UnsupportedTrafficPolicy", ["tcp:80"], {"externalTrafficPolicy": "Local"}, {}),
    ("UnsupportedProtocol", ["sctp:80"], {}, {}),
    ("UnsupportedProtocol", ["tcp:80", "sctp:81"], {}, {}),
    ("ReservedPort", ["tcp:6443"], {}, {}),
    ("ReservedPort", ["tcp:22"], {}, {}),
    ("ReservedPort", ["tcp:10250"], {}, {}),
    ("ReservedPort", ["udp:8472"], {}, {}),
    ("InvalidAnnotation", ["tcp:80"], {}, {"oxide.computer/floating-ip-version": "v5"}),
    ("InvalidAnnotation", ["tcp:80"], {}, {"oxide.computer/floating-ip-version": "v6"}),
    ("InvalidAnnotation", ["tcp:80"], {}, {"oxide.computer/floating-ip-reclaim": "keep"}),
    ("InvalidAnnotation", ["tcp:80"], {}, {"oxide.computer/floating-ip": "fd00::1"}),
    ("InvalidAnnotation", ["tcp:80"], {}, {"oxide.computer/floating-ip": "198.51.100.1, 198.51.100.2"}),
    (
        "InvalidAnnotation",
        ["tcp:80"],
        {},
        {"oxide.computer/floating-ip": "198.51.100.1", "oxide.computer/floating-ip-pool": "public-v4"},
    ),
]


@pytest.mark.parametrize(("reason", "ports", "spec", "annotations"), REFUSALS)
def test_what_cannot_work_is_refused(
    reason: str, ports: list[str], spec: dict[str, Any], annotations: dict[str, str]
) -> None:
    """S18 to S21, V5: one stable reason, nothing made, no finalizer; taking it back serves at once."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(1)
        world.add_service("web", *ports, annotations=annotations, **spec)
        await world.pass_time(30)
        assert world.told.reasons("web") == [reason]
        assert len(world.told.messages("web", reason)) == 1
        assert not list(world.rack.state.floating_ips)
        assert not world.has_finalizer("web")

        world.change_service(
            "web",
            metadata={"annotations": dict.fromkeys(annotations)},
            spec={"externalTrafficPolicy": "Cluster", "ports": [{"protocol": "TCP", "port": 80}]},
        )
        await world.serve("web", seconds=20)
        await world.end()

    story()


@simulated
async def test_a_reserved_port_that_comes_later_is_taken_back() -> None:
    """V5: as soon as it is in the spec, every node would send the holder's port into the Service."""
    world = await world_of(1)
    world.add_service("web", "tcp:80")
    await world.serve("web")

    world.change_service("web", spec={"ports": [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 6443}]})

    await world.until(lambda: world.ingress("web") == [], 10, "the status is empty")
    assert world.floating_ips_of("web")
    await world.end()


@simulated
async def test_a_node_port_of_another_service_is_refused() -> None:
    """4.3: the rule for the holder's address would take that node's NodePort traffic."""
    world = await world_of(1)
    world.add_service("owner", "tcp:80")
    world.change_service("owner", spec={"ports": [{"protocol": "TCP", "port": 80, "nodePort": 30080}]})
    world.add_service("thief", "tcp:30080")
    await world.pass_time(20)

    assert world.told.reasons("thief") == ["NodePortConflict"]
    await world.end()


@simulated
async def test_ipvs_is_refused() -> None:
    """V3: with kube-proxy in mode ipvs other nodes would lose touch with the holder."""
    world = ServiceWorld()
    await world.add_nodes(1)
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
        "data": {"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: ipvs\n"},
    }
    world.store.create(CONFIG_MAPS, "kube-system", document)
    world.start()
    world.add_service("web")
    await world.pass_time(20)

    assert world.told.reasons("web") == ["UnsupportedProxyMode"]
    await world.end()


@simulated
async def test_services_of_others_are_left_alone() -> None:
    """3.1: a class that is not ours; ours by name is served."""
    world = await world_of(1)
    world.add_service("theirs", "tcp:80", loadBalancerClass="io.cilium/node")
    world.add_service("ours", "tcp:81", loadBalancerClass="oxide.computer/floating-ip")
    world.add_service("internal", "tcp:82", type="ClusterIP")

    await world.serve("ours")
    await world.pass_time(30)

    assert [each.name for each in world.rack.state.floating_ips] == [world.floating_ip("ours").name]
    assert not world.has_finalizer("theirs")
    await world.end()


@simulated
async def test_a_port_list_too_long_for_the_mark_is_cut() -> None:
    """Marks have 512 characters; the rest is said in an Event."""
    world = await world_of(1)
    world.add_service("web", *(f"tcp:{20000 + number}" for number in range(60)))

    await world.serve("web")

    assert world.floating_ip("web").description.endswith(",...")
    assert len(world.floating_ip("web").description) <= 512
    assert "PortListCut" in world.told.reasons("web")
    await world.end()
