"""A VPC's firewall rules as rules of nftables. It computes and changes nothing (semantics 7.1, 7.2).

A rule becomes as many as it takes to name its protocols and hosts one by one. Lower priorities come first, and of equal
ones those that deny. Hosts and protocols of IPv6 match nothing; a rule that has no others is left out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from capox.rack.guests.wiring import Address, Network, VpcWiring
from capox.rack.json import JSON

# The names of all ports of a VPC begin so, and no other's do.
ANY_PORT = '"g*"'

_WITH_PORTS = ("tcp", "udp")


def inbound(vpc: VpcWiring) -> list[str]:
    """What becomes of a new connection to a guest; without a match it falls through."""
    return list(_rules(vpc, "inbound", target="ip daddr", host="ip saddr", inside="iifname", allow="accept"))


def outbound(vpc: VpcWiring) -> list[str]:
    """What becomes of a new connection of a guest; what is allowed goes on to the inbound rules."""
    return list(_rules(vpc, "outbound", target="ip saddr", host="ip daddr", inside="oifname", allow="return"))


def _rules(vpc: VpcWiring, direction: str, *, target: str, host: str, inside: str, allow: str) -> Iterator[str]:
    chosen = [rule for rule in vpc.rules if rule["direction"] == direction and rule["status"] == "enabled"]
    for rule in sorted(chosen, key=lambda rule: (rule["priority"], rule["action"] != "deny")):
        filters = rule["filters"]
        targets = [_in(target, found) for found in (_addresses(vpc, rule["targets"]),) if found]
        if any(entry["type"] == "vpc" for entry in rule["targets"]):
            targets = [""]
        hosts = _hosts(vpc, filters["hosts"], host, inside)
        verdict = allow if rule["action"] == "allow" else "drop"
        for conditions in (
            (to, peer, traffic)
            for to in targets
            for peer in hosts
            for traffic in _traffic(filters["protocols"], filters["ports"])
        ):
            yield " ".join([*filter(None, conditions), verdict])


def _hosts(vpc: VpcWiring, hosts: list[JSON] | None, address: str, inside: str) -> list[str]:
    """The conditions of which one has to hold for the other side."""
    if hosts is None:
        return [""]
    found = [f"{inside} {ANY_PORT}"] if any(entry["type"] == "vpc" for entry in hosts) else []
    addresses = _addresses(vpc, hosts)
    return [*found, _in(address, addresses)] if addresses else found


def _addresses(vpc: VpcWiring, entries: Iterable[JSON]) -> list[Address | Network]:
    """The addresses and networks that targets or hosts name; a name that nobody has stands for none."""
    found: dict[Address | Network, None] = {}
    for entry in entries:
        kind, value = entry["type"], entry["value"]
        if kind in {"ip", "ip_net"}:
            network = ipaddress.ip_network(value, strict=False)
            if isinstance(network, ipaddress.IPv4Network):
                found[network] = None
        else:
            found |= dict.fromkeys(vpc.members.get((kind, value), ()))
    return list(ipaddress.collapse_addresses(ipaddress.IPv4Network(each) for each in found))


def _traffic(protocols: list[JSON] | None, ports: list[str] | None) -> list[str]:
    """The conditions of which one has to hold for what is sent. What has no ports matches no filter by ports."""
    if ports is not None:
        wanted = _WITH_PORTS if protocols is None else tuple(entry["type"] for entry in protocols)
        kinds = [kind for kind in _WITH_PORTS if kind in wanted]
        return [f"meta l4proto {_set(kinds)} th dport {_set(ports)}"] if kinds and ports else []
    if protocols is None:
        return [""]
    found = []
    kinds = list(dict.fromkeys(entry["type"] for entry in protocols if entry["type"] in _WITH_PORTS))
    if kinds:
        found.append(f"meta l4proto {_set(kinds)}")
    found += [_icmp(entry.get("value")) for entry in protocols if entry["type"] == "icmp"]
    return found


def _icmp(value: JSON) -> str:
    if value is None:
        return "meta l4proto icmp"
    code = value.get("code")
    return f"icmp type {value['icmp_type']}" + (f" icmp code {code}" if code is not None else "")


def _in(field: str, addresses: Iterable[Address | Network]) -> str:
    return f"{field} {_set(addresses)}"


def _set(members: Iterable[object]) -> str:
    return f"{{ {', '.join(map(str, members))} }}"
