"""Whether a VPC's firewall lets a Service's packets in: pure, and only to tell people (4.3).

The firewall is never changed from here: its rules are one list without an etag, and the provider keeps them where that
is wanted. What cannot be judged counts as open, because a warning that is wrong is worse than none.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable
from uuid import UUID

from capox.ccm.placement import Port
from capox.oxide.models.firewall import (
    FirewallAction,
    FirewallDirection,
    FirewallStatus,
    FirewallSubject,
    TcpOrUdp,
    VpcFirewallRule,
)

__all__ = ["Guest", "closed_ports"]


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """Whom the packets are for.

    Attributes:
        instance_name: The instance.
        address: The address of its primary interface.
        vpc_id: The VPC.
    """

    instance_name: str
    address: str
    vpc_id: UUID


def closed_ports(rules: Iterable[VpcFirewallRule], guest: Guest, ports: Iterable[Port]) -> tuple[Port, ...]:
    """The ports that no rule lets in from anywhere."""
    letting_in = [
        rule
        for rule in rules
        if rule.status == FirewallStatus.ENABLED
        and rule.direction == FirewallDirection.INBOUND
        and rule.action == FirewallAction.ALLOW
        and any(_is_target(target, guest) for target in rule.targets)
        and not _is_internal(rule)
    ]
    return tuple(port for port in sorted(ports) if not any(_lets_in(rule, port) for rule in letting_in))


def _is_target(target: object, guest: Guest) -> bool:
    if not isinstance(target, FirewallSubject):
        return True
    match target.type:
        case "instance":
            return target.value == guest.instance_name
        case "ip":
            return target.value == guest.address
        case "ip_net":
            return _contains(target.value, guest.address)
        case _:
            # The VPC itself, or a subnet of it: which one is not looked up for a warning.
            return True


def _is_internal(rule: VpcFirewallRule) -> bool:
    """Whether a rule is about packets from within the VPC only, as one of those that every VPC is born with is."""
    hosts = rule.filters.hosts
    return hosts is not None and all(isinstance(host, FirewallSubject) and host.type == "vpc" for host in hosts)


def _lets_in(rule: VpcFirewallRule, port: Port) -> bool:
    protocols, ranges = rule.filters.protocols, rule.filters.ports
    is_of_protocol = protocols is None or any(
        not isinstance(each, TcpOrUdp) or each.type == port.protocol.lower()
        for each in protocols
        if getattr(each, "type", "") not in {"icmp", "icmp6"}
    )
    return is_of_protocol and (ranges is None or any(_covers(each, port.number) for each in ranges))


def _covers(text: str, number: int) -> bool:
    first, _, last = text.partition("-")
    return int(first) <= number <= int(last or first)


def _contains(network: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return True
