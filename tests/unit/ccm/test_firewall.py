"""The firewall is looked at and told of, never changed (4.3)."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import pytest

from capox.ccm.firewall_plan import Guest, closed_ports
from capox.ccm.placement import Port
from capox.oxide.models.firewall import VpcFirewallRule
from tests.sim.loop import simulated
from tests.sim.service_world import ServiceWorld

GUEST = Guest("node-1", "172.30.0.5", UUID(int=1))
PORTS = frozenset({Port("TCP", 80), Port("TCP", 443), Port("UDP", 443)})
VPC = {"type": "vpc", "value": "default"}


def rule(
    *,
    targets: list[dict[str, str]] | None = None,
    hosts: list[dict[str, str]] | None = None,
    ports: list[str] | None = None,
    protocols: list[dict[str, Any]] | None = None,
    **changes: str,
) -> VpcFirewallRule:
    """An enabled rule that lets everything in to the whole VPC, unless told otherwise."""
    now = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC).isoformat()
    document = {
        "id": str(UUID(int=2)),
        "name": "rule",
        "description": "",
        "time_created": now,
        "time_modified": now,
        "vpc_id": str(UUID(int=1)),
        "status": "enabled",
        "direction": "inbound",
        "action": "allow",
        "priority": 100,
        "targets": targets or [VPC],
        "filters": {"hosts": hosts, "ports": ports, "protocols": protocols},
        **changes,
    }
    return VpcFirewallRule.model_validate(document)


TCP, UDP = {"type": "tcp"}, {"type": "udp"}


@pytest.mark.parametrize(
    ("rules", "closed"),
    [
        ([], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule()], []),
        ([rule(status="disabled")], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(direction="outbound")], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(action="deny")], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(ports=["443"])], ["tcp/80"]),
        ([rule(ports=["400-500"], protocols=[TCP])], ["tcp/80", "udp/443"]),
        ([rule(protocols=[TCP]), rule(protocols=[UDP], ports=["443"])], []),
        ([rule(protocols=[{"type": "icmp", "value": None}])], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(hosts=[VPC])], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(hosts=[{"type": "ip_net", "value": "192.0.2.0/24"}])], []),
        ([rule(targets=[{"type": "instance", "value": "node-1"}])], []),
        ([rule(targets=[{"type": "instance", "value": "node-2"}])], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(targets=[{"type": "ip", "value": "172.30.0.5"}])], []),
        ([rule(targets=[{"type": "ip_net", "value": "172.30.0.0/22"}])], []),
        ([rule(targets=[{"type": "ip_net", "value": "10.0.0.0/8"}])], ["tcp/80", "tcp/443", "udp/443"]),
        ([rule(targets=[{"type": "planet", "value": "mars"}])], []),
    ],
)
def test_closed_ports(rules: list[VpcFirewallRule], closed: list[str]) -> None:
    """A port is closed when no enabled inbound rule lets it in from outside the VPC."""
    assert [str(port) for port in closed_ports(rules, GUEST, PORTS)] == closed


@simulated
async def test_a_missing_rule_is_told_and_not_made() -> None:
    """A VPC is born with nothing for 443: the Service works as far as we can see, and people are told what it lacks."""
    world = ServiceWorld()
    await world.add_nodes(2)
    world.start()
    world.add_service("web", "tcp:443", "tcp:80")
    await world.serve("web")
    await world.until(lambda: "FirewallRuleMissing" in world.told.reasons("web"), 10, "it is told")
    (message,) = world.told.messages("web", "FirewallRuleMissing")
    assert "tcp/80, tcp/443" in message
    assert not world.calls("vpc_firewall_rules_update")

    rules = (await world.ask(200, "GET", "/v1/vpc-firewall-rules?project=demo&vpc=default"))["rules"]
    known = ("name", "description", "status", "direction", "targets", "filters", "action", "priority")
    kept = [{key: each[key] for key in known} for each in rules]
    opened = {
        "name": "web",
        "description": "",
        "status": "enabled",
        "direction": "inbound",
        "action": "allow",
        "priority": 100,
        "targets": [VPC],
        "filters": {"ports": ["80", "443"], "protocols": [TCP]},
    }
    await world.ask(200, "PUT", "/v1/vpc-firewall-rules?project=demo&vpc=default", {"rules": [*kept, opened]})
    await world.pass_time(300)
    told = len(world.told.events)
    await world.pass_time(300)

    assert "FirewallRuleMissing" not in [reason for _, reason, _ in world.told.events[told:]]
    await world.end()


@simulated
async def test_a_firewall_that_cannot_be_read_is_no_trouble() -> None:
    """It is only looked at to warn."""
    world = ServiceWorld()
    await world.add_nodes(2)
    world.start()
    world.fault("hidden", operation="vpc_firewall_rules_view")
    world.add_service("web", "tcp:443")

    await world.serve("web")

    assert "FirewallRuleMissing" not in world.told.reasons("web")
    await world.end()
