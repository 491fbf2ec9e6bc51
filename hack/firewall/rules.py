"""The list of a VPC's firewall rules with the ports of clusters opened in it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from capox.oxide.models.firewall import (
    FirewallAction,
    FirewallDirection,
    FirewallFilters,
    FirewallStatus,
    FirewallSubject,
    TcpOrUdp,
    VpcFirewallRuleUpdate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROTOCOLS: Final = ("tcp", "udp")
PRIORITY: Final = 1000
PORT_MAX: Final = 65535

_PORT: Final = re.compile(r"(tcp|udp)/([0-9]{1,5})(?:-([0-9]{1,5}))?")


def parse_port(text: str) -> tuple[str, str]:
    """A protocol and a port or range of ports, of a word such as `tcp/6443` or `udp/5000-5010`.

    Raises:
        ValueError: it is none.
    """
    found = _PORT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text}: write tcp/PORT, udp/PORT, tcp/FIRST-LAST or udp/FIRST-LAST, such as tcp/6443")
    protocol, first, last = found.group(1), int(found.group(2)), int(found.group(3) or found.group(2))
    if not 0 < first <= last <= PORT_MAX:
        raise ValueError(f"{text}: a port is a number from 1 to {PORT_MAX}, and the first of a range is not the larger")
    return protocol, str(first) if first == last else f"{first}-{last}"


def rule_name(protocol: str) -> str:
    """The name of the rule of ours for a protocol."""
    return f"clusters-{protocol}"


def with_ports(
    rules: Sequence[VpcFirewallRuleUpdate], ports: Sequence[tuple[str, str]], vpc: str, sources: Sequence[str]
) -> list[VpcFirewallRuleUpdate]:
    """The whole new list: other rules as they came, and one of ours for each protocol.

    Args:
        rules: the list as it is.
        ports: what is to be open (`parse_port`); what an earlier run has opened and is not among it is closed.
        vpc: name of the VPC, whose instances are the rules' targets.
        sources: networks that are let in; empty for everybody.
    """
    by_protocol = {
        protocol: list(dict.fromkeys(port for kind, port in ports if kind == protocol)) for protocol in PROTOCOLS
    }
    ours = {rule_name(protocol) for protocol in PROTOCOLS}
    kept = [rule for rule in rules if rule.name not in ours]
    return kept + [_rule(protocol, opened, vpc, sources) for protocol, opened in by_protocol.items() if opened]


def _rule(protocol: str, ports: Sequence[str], vpc: str, sources: Sequence[str]) -> VpcFirewallRuleUpdate:
    hosts = tuple(FirewallSubject(type="ip_net", value=source) for source in sources)
    types: Mapping[str, TcpOrUdp] = {"tcp": TcpOrUdp(type="tcp"), "udp": TcpOrUdp(type="udp")}
    return VpcFirewallRuleUpdate(
        name=rule_name(protocol),
        description="API servers and Services of Kubernetes clusters",
        status=FirewallStatus.ENABLED,
        direction=FirewallDirection.INBOUND,
        targets=(FirewallSubject(type="vpc", value=vpc),),
        filters=FirewallFilters(hosts=hosts or None, ports=tuple(ports), protocols=(types[protocol],)),
        action=FirewallAction.ALLOW,
        priority=PRIORITY,
    )
