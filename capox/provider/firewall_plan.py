"""The rules of a VPC's firewall that a cluster needs: pure, what they are, what to write, and what is missing.

The rack knows no single rule: whoever changes one writes all of them (semantics 7.2). Everybody else's rules are
written back as they were read, and ours are told by name and mark together.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, format_mark, is_made_for, parse_mark
from capox.oxide import models
from capox.oxide.models.wire import IpAddress
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider import names
from capox.provider.steps import Blocked, Steady

__all__ = [
    "PRIORITY",
    "Blocked",
    "FirewallStep",
    "Openings",
    "Steady",
    "WriteRules",
    "desired_rules",
    "missing",
    "plan_firewall",
    "service_ports",
]

PRIORITY: Final = 1000
"""Of our rules: before those that a VPC is born with (65534), and with room for others before and behind."""

_FILTER_MAX: Final = 256
_RULES_MAX: Final = 1024
_PORTS_WORD: Final = "ports"
_RULE_WORD: Final = "rule"
_PORT: Final = re.compile(r"(tcp|udp):([0-9]{1,5})")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """What has to be let in.

    Attributes:
        mark: The cluster's owner mark.
        api_port: The port of the API server.
        control_plane: Names of the control plane's instances.
        instances: Names of all instances of the cluster.
        sources: Networks from which the API server is reached; empty for everywhere.
        egress: Under which addresses the cluster's own instances appear outside; counts only where sources are given.
        services: Ports of load balancers by protocol, `tcp` and `udp`.
    """

    mark: OwnerMark
    api_port: int
    control_plane: tuple[str, ...]
    instances: tuple[str, ...]
    sources: tuple[str, ...] = ()
    egress: frozenset[IpAddress] = frozenset()
    services: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class WriteRules:
    """Replace the list by this one, which has everybody else's rules unchanged."""

    rules: tuple[models.VpcFirewallRuleUpdate, ...]


FirewallStep: TypeAlias = WriteRules | Steady | Blocked


def service_ports(floating_ips: Iterable[ObservedFloatingIp], cluster_id: str) -> dict[str, tuple[int, ...]]:
    """The ports of a cluster's load balancers by protocol, as the marks of their floating IPs tell them.

    A list that was too long for a mark is cut and ends in dots; what it has is opened (the controller that wrote it
    warns).
    """
    found: dict[str, set[int]] = {}
    for floating_ip in floating_ips:
        mark = parse_mark(floating_ip.description)
        if mark is None or mark.kind != "Service" or not cluster_id or mark.cluster_id != cluster_id:
            continue
        for word in mark.further.get(_PORTS_WORD, "").split(","):
            match = _PORT.fullmatch(word)
            if match is not None and 0 < int(match[2]) <= 65535:
                found.setdefault(match[1], set()).add(int(match[2]))
    return {protocol: tuple(sorted(ports)) for protocol, ports in sorted(found.items())}


def desired_rules(openings: Openings) -> tuple[models.VpcFirewallRuleUpdate, ...]:
    """The rules that a cluster needs, split where one has too many targets, hosts or ports (semantics 2.4)."""
    hosts: list[models.FirewallSubject] = []
    if openings.sources:
        hosts += [_subject("ip_net", str(ipaddress.ip_network(each))) for each in sorted(openings.sources)]
        hosts += [_subject("ip", text) for text in sorted(str(each) for each in openings.egress)]
    rules = _rules(openings, "api", openings.control_plane, hosts=hosts, protocol="tcp", ports=(openings.api_port,))
    for protocol, ports in openings.services.items():
        rules += _rules(openings, protocol, openings.instances, hosts=(), protocol=protocol, ports=ports)
    return tuple(rules)


def plan_firewall(
    mark: OwnerMark, desired: Sequence[models.VpcFirewallRuleUpdate], rules: Sequence[models.VpcFirewallRule]
) -> FirewallStep:
    """The next step towards exactly these rules of ours beside everybody else's.

    Args:
        mark: The cluster's owner mark.
        desired: The rules that are to be there; none takes away all of ours.
        rules: The rules as they were just read.
    """
    wanted = {rule.name: rule for rule in desired}
    own = {rule.name: rule for rule in rules if _is_own(rule, mark)}
    others = [rule for rule in rules if rule.name not in own]
    for rule in others:
        if rule.name in wanted:
            return Blocked(
                Reason.NAME_CONFLICT,
                f"firewall rule {rule.name} exists and is not this cluster's; rename or delete it",
            )
    if wanted.keys() == own.keys() and all(_meaning(own[name]) == _meaning(rule) for name, rule in wanted.items()):
        return Steady()
    if len(others) + len(wanted) > _RULES_MAX:
        return Blocked(
            Reason.INVALID_SPEC,
            f"the VPC has {len(others)} firewall rules, and the cluster needs {len(wanted)} more; "
            f"at most {_RULES_MAX} are possible: delete some, or use another VPC",
        )
    return WriteRules((*(rule.as_update() for rule in others), *desired))


def missing(openings: Openings, rules: Sequence[models.VpcFirewallRule], *, vpc: str, subnets: Sequence[str]) -> str:
    """What no rule lets in from outside, in words; empty when nothing is missing.

    Rules for addresses are believed to be for the right ones: private addresses are not looked at here.
    """
    needs = [("tcp", openings.api_port, openings.control_plane, "the control plane's instances")]
    for protocol, ports in openings.services.items():
        needs += [(protocol, port, openings.instances, "the cluster's instances") for port in ports]
    for protocol, port, targets, whom in needs:
        open_rules = [rule for rule in rules if _lets_in(rule, protocol, port)]
        if not _covers(open_rules, targets, vpc, subnets):
            return (
                f"no rule of VPC {vpc} lets {protocol.upper()} port {port} in from outside to {whom}; make an "
                "inbound rule that allows it, or set spec.firewall.mode to Managed"
            )
    return ""


def _rules(
    openings: Openings,
    purpose: str,
    targets: Sequence[str],
    *,
    hosts: Sequence[models.FirewallSubject],
    protocol: str,
    ports: Sequence[int],
) -> list[models.VpcFirewallRuleUpdate]:
    made: list[models.VpcFirewallRuleUpdate] = []
    description = format_mark(dataclasses.replace(openings.mark, further={_RULE_WORD: purpose}))
    for some_targets in _chunks(targets):
        for some_hosts in _chunks(hosts) or [()]:
            for some_ports in _chunks(ports):
                name = names.firewall_rule_name(openings.mark.namespace, openings.mark.name, purpose, len(made))
                made.append(
                    models.VpcFirewallRuleUpdate(
                        name=name,
                        description=description,
                        status=models.FirewallStatus.ENABLED,
                        direction=models.FirewallDirection.INBOUND,
                        targets=tuple(_subject("instance", target) for target in some_targets),
                        filters=models.FirewallFilters(
                            hosts=tuple(some_hosts) or None,
                            ports=tuple(str(port) for port in some_ports),
                            protocols=(models.TcpOrUdp.model_validate({"type": protocol}),),
                        ),
                        action=models.FirewallAction.ALLOW,
                        priority=PRIORITY,
                    )
                )
    return made


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _FILTER_MAX] for start in range(0, len(items), _FILTER_MAX)]


def _subject(kind: str, value: str) -> models.FirewallSubject:
    return models.FirewallSubject.model_validate({"type": kind, "value": value})


def _is_own(rule: models.VpcFirewallRule, cluster_mark: OwnerMark) -> bool:
    """Whether a rule is ours to change: its mark is the cluster's, and its name the one that goes with it."""
    mark = parse_mark(rule.description)
    if mark is None or not is_made_for(mark, cluster_mark):
        return False
    purpose = mark.further.get(_RULE_WORD, "")
    # Counted as far as there can be rules at all.
    return any(
        rule.name == names.firewall_rule_name(cluster_mark.namespace, cluster_mark.name, purpose, index)
        for index in range(_RULES_MAX)
    )


def _meaning(rule: models.VpcFirewallRule | models.VpcFirewallRuleUpdate) -> object:
    """What a rule says, whatever the order of its lists."""
    filters = rule.filters
    return (
        parse_mark(rule.description),
        str(rule.status),
        str(rule.direction),
        str(rule.action),
        rule.priority,
        _as_set(rule.targets),
        _as_set(filters.hosts),
        frozenset(filters.ports) if filters.ports is not None else None,
        _as_set(filters.protocols),
    )


def _as_set(parts: Iterable[object] | None) -> frozenset[tuple[str, str]] | None:
    """Targets, hosts or protocols as pairs of kind and value; None is no restriction."""
    if parts is None:
        return None
    return frozenset((str(getattr(part, "type", "")), str(getattr(part, "value", ""))) for part in parts)


def _lets_in(rule: models.VpcFirewallRule, protocol: str, port: int) -> bool:
    """Whether a rule lets a port in from somewhere outside the VPC."""
    if (rule.status, rule.direction, rule.action) != ("enabled", "inbound", "allow"):
        return False
    filters = rule.filters
    hosts = _as_set(filters.hosts)
    if hosts is not None and not any(kind in {"ip", "ip_net"} for kind, _ in hosts):
        return False
    protocols = _as_set(filters.protocols)
    if protocols is not None and protocol not in {kind for kind, _ in protocols}:
        return False
    return filters.ports is None or any(_has_port(text, port) for text in filters.ports)


def _has_port(text: str, port: int) -> bool:
    first, _, last = text.partition("-")
    return int(first) <= port <= int(last or first)


def _covers(
    rules: Sequence[models.VpcFirewallRule], instances: Sequence[str], vpc: str, subnets: Sequence[str]
) -> bool:
    targets = {pair for rule in rules for pair in _as_set(rule.targets) or ()}
    if ("vpc", vpc) in targets or any(kind in {"ip", "ip_net"} for kind, _ in targets):
        return True
    if subnets and all(("subnet", subnet) in targets for subnet in subnets):
        return True
    return bool(instances) and all(("instance", instance) in targets for instance in instances)
