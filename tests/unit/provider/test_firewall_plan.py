"""The plan of a cluster's firewall rules."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, format_mark
from capox.oxide import models
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider import firewall_plan as plan

MOMENT = "2026-09-01T00:00:00Z"
MARK = OwnerMark(kind="OxideCluster", namespace="team", name="web", uid="uid-1", cluster_id="c1")
OPENINGS = plan.Openings(
    mark=MARK,
    api_port=6443,
    control_plane=("capi-team-web-cp-0",),
    instances=("capi-team-web-cp-0", "capi-team-web-w-0"),
    services={"tcp": (80, 443), "udp": (53,)},
)
IDENTITY = "77777777-7777-4777-8777-777777777777"


def as_read(rule: models.VpcFirewallRuleUpdate | dict[str, Any]) -> models.VpcFirewallRule:
    """Give a rule as the rack shows it."""
    document = rule if isinstance(rule, dict) else rule.model_dump(mode="json")
    times = {"id": IDENTITY, "vpc_id": IDENTITY, "time_created": MOMENT, "time_modified": MOMENT}
    return models.VpcFirewallRule.model_validate(document | times)


def pairs(subjects: Iterable[Any] | None) -> list[tuple[str, str]]:
    """Give targets or hosts as pairs of kind and value."""
    return [(each.type, each.value) for each in subjects or ()]


def by_hand(name: str = "allow-ssh", **changes: Any) -> models.VpcFirewallRule:
    """Give somebody else's rule, with a field that this client does not know."""
    document = {
        "name": name,
        "description": "made by hand",
        "status": "enabled",
        "direction": "inbound",
        "targets": [{"type": "vpc", "value": "default"}],
        "filters": {"hosts": None, "ports": ["22"], "protocols": [{"type": "tcp"}]},
        "action": "allow",
        "priority": 65534,
        "a_new_field": [1, 2],
    }
    return as_read(document | changes)


def test_rules_open_what_is_needed_and_no_more() -> None:
    """The API port on the control plane, load balancers on all instances, and targets are this cluster's alone."""
    api, tcp, udp = plan.desired_rules(OPENINGS)

    assert [rule.name for rule in (api, tcp, udp)] == [
        "capi-fw-team-web-api-0",
        "capi-fw-team-web-tcp-0",
        "capi-fw-team-web-udp-0",
    ]
    assert api.filters.ports == ("6443",)
    assert (tcp.filters.ports, udp.filters.ports) == (("80", "443"), ("53",))
    targets = [pairs(rule.targets) for rule in (api, tcp)]
    assert targets[0] == [("instance", "capi-team-web-cp-0")]
    assert targets[1] == [("instance", name) for name in OPENINGS.instances]
    assert all((rule.direction, rule.action, rule.filters.hosts) == ("inbound", "allow", None) for rule in (api, tcp))


def test_sources_bound_who_reaches_the_api_server() -> None:
    """The networks that were given, and the addresses under which the cluster's own instances come back (9.3)."""
    egress = frozenset({ipaddress.ip_address("198.51.100.4")})
    bound = dataclasses.replace(OPENINGS, sources=("192.0.2.0/24",), egress=egress)

    api, tcp, _ = plan.desired_rules(bound)

    assert pairs(api.filters.hosts) == [("ip_net", "192.0.2.0/24"), ("ip", "198.51.100.4")]
    assert tcp.filters.hosts is None
    assert plan.desired_rules(dataclasses.replace(OPENINGS, egress=egress)) == plan.desired_rules(OPENINGS)


def test_long_lists_are_split() -> None:
    """A rule takes 256 targets, hosts and ports at most (semantics 2.4)."""
    many = tuple(f"capi-team-web-{number}" for number in range(300))
    ports = tuple(range(1, 258))

    rules = plan.desired_rules(dataclasses.replace(OPENINGS, instances=many, services={"tcp": ports}))

    assert len({rule.name for rule in rules}) == len(rules) == 1 + 2 * 2
    assert all(len(rule.targets) <= 256 and len(rule.filters.ports or ()) <= 256 for rule in rules)
    opened = {
        (name, port) for rule in rules[1:] for _, name in pairs(rule.targets) for port in rule.filters.ports or ()
    }
    assert len(opened) == 300 * 257


def test_no_instances_no_rules() -> None:
    """A rule without targets would be of no use, and the rack would refuse it."""
    assert plan.desired_rules(dataclasses.replace(OPENINGS, control_plane=(), instances=())) == ()


def test_others_rules_are_written_back_as_they_were() -> None:
    """The list is replaced whole: what others put there stays, fields that we do not know included (7.2)."""
    desired = plan.desired_rules(OPENINGS)

    step = plan.plan_firewall(MARK, desired, [by_hand()])

    assert isinstance(step, plan.WriteRules)
    assert step.rules[0].model_dump(mode="json")["a_new_field"] == [1, 2]
    assert step.rules[1:] == desired
    assert plan.plan_firewall(MARK, desired, [as_read(rule) for rule in step.rules]) == plan.Steady()


def test_order_of_lists_makes_no_difference() -> None:
    """The rack may show targets and ports in another order."""
    desired = plan.desired_rules(OPENINGS)
    turned = [as_read(rule).model_copy(update={"targets": tuple(reversed(rule.targets))}) for rule in reversed(desired)]

    assert plan.plan_firewall(MARK, desired, turned) == plan.Steady()


@pytest.mark.parametrize(
    "change",
    [
        {"status": "disabled"},
        {"priority": 5},
        {"action": "deny"},
        {"targets": [{"type": "vpc", "value": "default"}]},
        {"filters": {"hosts": None, "ports": None, "protocols": None}},
    ],
)
def test_what_somebody_changed_is_repaired(change: dict[str, Any]) -> None:
    """Our rules are ours."""
    desired = plan.desired_rules(OPENINGS)
    rules = [
        as_read(rule.model_dump(mode="json") | (change if index == 0 else {})) for index, rule in enumerate(desired)
    ]

    assert plan.plan_firewall(MARK, desired, rules) == plan.WriteRules(desired)


def test_rules_that_are_not_needed_any_more_go() -> None:
    """A load balancer that is gone takes its rule along, and a cluster all of them; others' rules stay."""
    rules = [by_hand(), *(as_read(rule) for rule in plan.desired_rules(OPENINGS))]
    fewer = plan.desired_rules(dataclasses.replace(OPENINGS, services={}))

    less, none = plan.plan_firewall(MARK, fewer, rules), plan.plan_firewall(MARK, (), rules)

    assert isinstance(less, plan.WriteRules)
    assert [rule.name for rule in less.rules] == ["allow-ssh", "capi-fw-team-web-api-0"]
    assert isinstance(none, plan.WriteRules)
    assert [rule.name for rule in none.rules] == ["allow-ssh"]
    assert plan.plan_firewall(MARK, (), [by_hand()]) == plan.Steady()


@pytest.mark.parametrize(
    "description", ["made by hand", format_mark(dataclasses.replace(MARK, uid="uid-2", cluster_id="c2"))]
)
def test_a_namesake_is_never_changed(description: str) -> None:
    """A rule of our name that is not ours is somebody's: nothing is written, and nothing taken away (B52)."""
    theirs = by_hand("capi-fw-team-web-api-0", description=description)

    step = plan.plan_firewall(MARK, plan.desired_rules(OPENINGS), [theirs])

    assert isinstance(step, plan.Blocked)
    assert step.reason == Reason.NAME_CONFLICT
    assert plan.plan_firewall(MARK, (), [theirs]) == plan.Steady()


def test_our_mark_under_another_name_is_not_ours() -> None:
    """Somebody has copied a rule of ours: only name and mark together make it ours."""
    copied = by_hand("copied", description=plan.desired_rules(OPENINGS)[0].description)

    assert plan.plan_firewall(MARK, (), [copied]) == plan.Steady()


def test_moved_cluster_keeps_its_rules() -> None:
    """The clusterID decides (B43): the rules are taken for ours after a move."""
    rules = [as_read(rule) for rule in plan.desired_rules(OPENINGS)]

    assert plan.plan_firewall(dataclasses.replace(MARK, uid="moved"), (), rules) == plan.WriteRules(())


def floating_ip(number: int, **further: str) -> ObservedFloatingIp:
    """Give a floating IP of a Service."""
    mark = OwnerMark(
        kind="Service", namespace="default", name="web", uid=f"s{number}", cluster_id="c1", further=further
    )
    return ObservedFloatingIp(
        id=UUID(int=number),
        name=f"fip-{number}",
        description=format_mark(mark),
        ip=ipaddress.ip_address(number),
        ip_pool_id=UUID(int=1),
        instance_id=None,
    )


def test_ports_are_read_from_marks() -> None:
    """Those of this cluster's Services; a list that was cut counts as far as it goes, and nonsense does not."""
    found = [
        floating_ip(1, ports="tcp:80,tcp:443,udp:53"),
        floating_ip(2, ports="tcp:8080,tcp:80,sctp:9,tcp:0,tcp:70000,tcp:8..."),
        floating_ip(3),
    ]

    assert plan.service_ports(found, "c1") == {"tcp": (80, 443, 8080), "udp": (53,)}
    assert plan.service_ports(found, "c2") == {}
    assert plan.service_ports(found, "") == {}


@pytest.mark.parametrize(
    ("change", "is_open"),
    [
        ({}, True),
        ({"filters": {"hosts": None, "ports": ["6000-7000"], "protocols": None}}, True),
        ({"filters": {"hosts": None, "ports": None, "protocols": None}}, True),
        ({"filters": {"hosts": [{"type": "ip_net", "value": "192.0.2.0/24"}], "ports": None, "protocols": None}}, True),
        ({"filters": {"hosts": [{"type": "vpc", "value": "default"}], "ports": None, "protocols": None}}, False),
        ({"filters": {"hosts": None, "ports": ["6442"], "protocols": None}}, False),
        ({"filters": {"hosts": None, "ports": None, "protocols": [{"type": "udp"}]}}, False),
        ({"status": "disabled"}, False),
        ({"direction": "outbound"}, False),
        ({"action": "deny"}, False),
        ({"targets": [{"type": "vpc", "value": "other"}]}, False),
        ({"targets": [{"type": "subnet", "value": "nodes"}]}, True),
        ({"targets": [{"type": "instance", "value": "capi-team-web-cp-0"}]}, True),
        ({"targets": [{"type": "instance", "value": "capi-team-web-w-0"}]}, False),
    ],
)
def test_a_rule_that_is_missing_is_named(change: dict[str, Any], *, is_open: bool) -> None:
    """Where others keep the rules, the condition says which one is missing."""
    openings = dataclasses.replace(OPENINGS, services={})
    opened = by_hand(filters={"hosts": None, "ports": ["6443"], "protocols": [{"type": "tcp"}]})
    rules = [by_hand(), as_read(opened.as_update().model_dump(mode="json") | change)]

    told = plan.missing(openings, rules, vpc="default", subnets=("nodes",))

    assert (told == "") is is_open
    assert is_open or ("TCP port 6443" in told and "VPC default" in told)


def test_ports_of_load_balancers_are_named_too() -> None:
    """Each of them, one at a time."""
    told = plan.missing(
        OPENINGS, [by_hand(filters={"hosts": None, "ports": ["80", "443", "6443"]})], vpc="default", subnets=()
    )

    assert "UDP port 53" in told
