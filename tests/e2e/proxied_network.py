"""The network of a cluster, in namespaces: its nodes, a Pod on each, the rack's edge, and who is outside.

    outside, stranger --- edge --- node-1, node-2, ... --- a Pod on each

The edge does what a rack does with floating IPs: one address to one address, ports and source as they are, and whatever
leaves a node leaves under the address that belongs to it, also when it comes back in right away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.e2e.namespaces import Namespaces

OUTSIDE: Final = "outside"
OUTSIDE_ADDRESS: Final = "203.0.113.2"
STRANGER_ADDRESS: Final = "203.0.113.3"
POD_RANGE: Final = "10.244.0.0/16"
POD_PORT: Final = 8080
NODE_PORT: Final = 80
"""Where each node answers by itself; so it shows when nobody has taken what came to the node's own address."""

_EDGE: Final = "edge"
_POOL: Final = "198.51.100.0/26"
_SHARED_ADDRESS: Final = "198.51.100.200"
"""As which nodes without an address of their own are seen, as behind a rack's SNAT."""
_SUBNET: Final = "172.30.0.0/22"
_GATEWAY: Final = "172.30.0.1"


class ProxiedNetwork:
    """Nodes that Kubernetes' own proxy can work on, and an edge that obeys.

    Args:
        namespaces: where they are made.
        nodes: the private address of each node.
    """

    def __init__(self, namespaces: Namespaces, nodes: Mapping[str, str]) -> None:
        self.namespaces = namespaces
        self.nodes = dict(nodes)
        self._known: dict[str, str] | None = None
        namespaces.make(_EDGE, OUTSIDE)
        self._furnish_edge()
        for number, name in enumerate(nodes, start=1):
            self._add_node(number, name)
        for name in nodes:
            self._connect_pods(name)
        self.translate({})

    @property
    def pods(self) -> dict[str, str]:
        """The address of each Pod."""
        return {f"pod-{number}": _pod_address(number) for number, _ in enumerate(self.nodes, start=1)}

    @property
    def everybody(self) -> tuple[str, ...]:
        """All who are inside: nodes and Pods."""
        return (*self.nodes, *self.pods)

    def translate(self, addresses: Mapping[str, str]) -> None:
        """Have each of these addresses lead to this private address, and every other one nowhere."""
        if addresses == self._known:
            return
        inward = ", ".join(f"{outer} : {inner}" for outer, inner in addresses.items())
        # Several addresses may lead to one node; it leaves under the first.
        first = {inner: outer for outer, inner in reversed(list(addresses.items()))}
        outward = ", ".join(f"{inner} : {outer}" for inner, outer in first.items())
        rules = [
            "table ip translation",
            "delete table ip translation",
            "table ip translation {",
            "chain inward {",
            "type nat hook prerouting priority dstnat;",
            *([f"dnat to ip daddr map {{ {inward} }}"] if addresses else []),
            "}",
            "chain outward {",
            "type nat hook postrouting priority srcnat;",
            f"ip saddr != {_SUBNET} return",
            *([f"snat to ip saddr map {{ {outward} }}"] if addresses else []),
            f"snat to {_SHARED_ADDRESS}",
            "}",
            "}",
        ]
        self.namespaces.run(_EDGE, "nft", "-f", "-", stdin="\n".join(rules))
        self._known = dict(addresses)

    def arrivals(self, address: str) -> int:
        """How many connections have come to the edge for an address."""
        listed = json.loads(self.namespaces.run(_EDGE, "nft", "-j", "list", "set", "ip", "count", "arrivals"))
        (found,) = [entry["set"] for entry in listed["nftables"] if "set" in entry]
        elements = [each["elem"] for each in found.get("elem", [])]
        return sum(each["counter"]["packets"] for each in elements if each["val"] == address)

    def unplug(self, name: str) -> None:
        """Have a node die, as seen from all others."""
        self.namespaces.ip(_EDGE, f"link set {name} down")

    def _furnish_edge(self) -> None:
        outside = self.namespaces.path(OUTSIDE)
        self.namespaces.setting(_EDGE, "net.ipv4.ip_forward", "1")
        # What leads nowhere is refused each time, and at once, so that nobody waits for it.
        self.namespaces.setting(_EDGE, "net.ipv4.icmp_ratelimit", "0")
        # What nodes say to each other is not the edge's business, though it crosses the edge's bridge.
        if Path("/proc/sys/net/bridge").exists():
            self.namespaces.setting(_EDGE, "net.bridge.bridge-nf-call-iptables", "0")
        self.namespaces.ip(
            _EDGE,
            f"link add wan type veth peer name eth0 netns {outside}",
            "address add 203.0.113.1/24 dev wan",
            "link set wan up",
            "link add lan type bridge",
            f"address add {_GATEWAY}/22 dev lan",
            "link set lan up",
            f"route add unreachable {_POOL}",
        )
        self.namespaces.ip(
            OUTSIDE,
            f"address add {OUTSIDE_ADDRESS}/24 dev eth0",
            f"address add {STRANGER_ADDRESS}/24 dev eth0",
            "link set eth0 up",
            "route add default via 203.0.113.1",
        )
        count = [
            "table ip count {",
            "set arrivals { type ipv4_addr; size 64; flags dynamic; counter; }",
            "chain arriving {",
            "type filter hook prerouting priority mangle;",
            f"ip daddr {_POOL} ct state new update @arrivals {{ ip daddr }}",
            "}",
            "}",
        ]
        self.namespaces.run(_EDGE, "nft", "-f", "-", stdin="\n".join(count))

    def _add_node(self, number: int, name: str) -> None:
        pod = f"pod-{number}"
        self.namespaces.make(name, pod)
        self.namespaces.ip(
            _EDGE,
            f"link add {name} type veth peer name eth0 netns {self.namespaces.path(name)}",
            f"link set {name} master lan up",
        )
        self.namespaces.ip(
            name,
            f"address add {self.nodes[name]}/22 dev eth0",
            "link set eth0 up",
            f"route add default via {_GATEWAY}",
            f"link add pods type veth peer name eth0 netns {self.namespaces.path(pod)}",
            f"address add {_pod_gateway(number)}/24 dev pods",
            "link set pods up",
        )
        self.namespaces.ip(
            pod,
            f"address add {_pod_address(number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {_pod_gateway(number)}",
        )
        self.namespaces.setting(name, "net.ipv4.ip_forward", "1")
        # What a network plugin does: Pods leave the cluster under their node's address.
        masquerade = f"ip saddr {POD_RANGE} ip daddr != {POD_RANGE} masquerade"
        rules = f"table ip plugin {{ chain leaving {{ type nat hook postrouting priority srcnat; {masquerade}; }}\n}}\n"
        self.namespaces.run(name, "nft", "-f", "-", stdin=rules)
        self.namespaces.answer(name, NODE_PORT)
        self.namespaces.answer(pod, POD_PORT)

    def _connect_pods(self, name: str) -> None:
        others = [(number, each) for number, each in enumerate(self.nodes, start=1) if each != name]
        routes = [f"route add 10.244.{number}.0/24 via {self.nodes[each]}" for number, each in others]
        self.namespaces.ip(name, *routes)


def _pod_address(number: int) -> str:
    return f"10.244.{number}.2"


def _pod_gateway(number: int) -> str:
    return f"10.244.{number}.1"
