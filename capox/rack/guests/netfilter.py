"""The tables of nftables for a VPC's router and for the way between the VPCs. It computes and changes nothing.

Each text replaces a table as a whole, in one transaction, so that there is no moment without rules. A VPC's router
knows its guests' NICs by `firewall.ANY_PORT` and the way out by `UPLINK`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from capox.rack.guests import firewall
from capox.rack.guests.wiring import Address, Egress, Port, VpcWiring

TABLE = "capox"
UPLINK = "outside"
LINK_PREFIX = "v"


def vpc_table(vpc: VpcWiring) -> str:
    """A VPC: who may send as what (semantics 9.3), translations, and the firewall.

    An address that instances share is translated with its ports where there are ports. A connection from a guest to an
    external address goes out and comes back in, also to the guest itself, as on a real rack (semantics 9.3).
    """
    own = ", ".join(f"{external} : {private}" for external, private in vpc.inbound)
    whole = ", ".join(f"{private} : {seen.address}" for private, seen in vpc.egress if seen.ports is None)
    chains = [
        _chain(
            "spoofing",
            "filter hook prerouting priority raw; policy accept;",
            [*map(_only_own, vpc.ports), f"iifname {firewall.ANY_PORT} meta l4proto != {{ tcp, udp, icmp }} drop"],
        ),
        _chain(
            "inward",
            "nat hook prerouting priority dstnat; policy accept;",
            [f'iifname "{UPLINK}" dnat to ip daddr map {{ {own} }}'] if own else [],
        ),
        _chain(
            "outward",
            "nat hook postrouting priority srcnat; policy accept;",
            [
                *([f'oifname "{UPLINK}" snat to ip saddr map {{ {whole} }}'] if whole else []),
                *(line for private, seen in vpc.egress if seen.ports is not None for line in _shared(private, seen)),
            ],
        ),
        _chain("egress", "", [*firewall.outbound(vpc)]),
        _chain("ingress", "", [*firewall.inbound(vpc), "drop"]),
        _chain("through", "filter hook forward priority filter; policy drop;", _through(vpc)),
    ]
    return _table(chains)


def edge_table(marks: Iterable[int]) -> str:
    """The way between the VPCs and the host: a reply goes to the VPC from which its connection was opened.

    That is how replies find their way to an address that instances of several VPCs share.

    Args:
        marks: the numbers of the VPCs, which are also those of their routing tables.
    """
    opened = [f'iifname "{LINK_PREFIX}{mark}" ct direction original ct mark set {mark}' for mark in marks]
    replies = "ct direction reply ct mark != 0 meta mark set ct mark"
    return _table(
        [_chain("remember", "filter hook prerouting priority mangle; policy accept;", [*opened, replies])],
    )


def _only_own(port: Port) -> str:
    senders = ipaddress.collapse_addresses([ipaddress.IPv4Network(port.address), *port.senders])
    return f'iifname "{port.device}" ip saddr != {{ {", ".join(map(str, senders))} }} drop'


def _shared(private: Address, seen: Egress) -> list[str]:
    assert seen.ports is not None, "a whole address has no ports"
    first, last = seen.ports
    to = f'oifname "{UPLINK}" ip saddr {private}'
    return [
        f"{to} meta l4proto {{ tcp, udp }} snat to {seen.address}:{first}-{last}",
        f"{to} snat to {seen.address}",
    ]


def _through(vpc: VpcWiring) -> list[str]:
    rules = []
    if vpc.mute:
        mute = ", ".join(map(str, vpc.mute))
        rules.append(f"ct direction reply ct original ip daddr {{ {mute} }} drop")
    rules += ["ct state established,related accept", "ct state invalid drop"]
    rules += [f"iifname {firewall.ANY_PORT} jump egress", f"oifname {firewall.ANY_PORT} jump ingress"]
    if vpc.egress:
        seen = ", ".join(str(private) for private, _ in vpc.egress)
        rules.append(f'iifname {firewall.ANY_PORT} oifname "{UPLINK}" ip saddr {{ {seen} }} accept')
    return rules


def _chain(name: str, kind: str, rules: Iterable[str]) -> str:
    lines = [*([f"type {kind}"] if kind else []), *rules]
    return f"  chain {name} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _table(chains: Iterable[str]) -> str:
    # Named before it is deleted, because deleting what is not there is an error.
    return f"table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{''.join(chains)}}}\n"
