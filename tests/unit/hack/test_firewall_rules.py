"""The ports of clusters in a list of firewall rules: what is ours is replaced, and nobody else's is touched."""

from __future__ import annotations

import pytest

from capox.oxide.models.firewall import VpcFirewallRuleUpdate
from hack.firewall.rules import parse_port, with_ports

OTHER = VpcFirewallRuleUpdate.model_validate(
    {
        "name": "allow-ssh",
        "description": "somebody else's",
        "status": "enabled",
        "direction": "inbound",
        "targets": [{"type": "vpc", "value": "default"}],
        "filters": {"ports": ["22"], "protocols": [{"type": "tcp"}]},
        "action": "allow",
        "priority": 65534,
        "something_new": True,
    }
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("tcp/6443", ("tcp", "6443")), ("udp/5000-5010", ("udp", "5000-5010")), ("tcp/080", ("tcp", "80"))],
)
def test_ports(word: str, expected: tuple[str, str]) -> None:
    """A port is a protocol with a number or a range."""
    assert parse_port(word) == expected


@pytest.mark.parametrize("word", ["6443", "tcp/", "sctp/1", "tcp/0", "tcp/65536", "tcp/9-8", "tcp/1,2", "tcp/-1"])
def test_what_is_no_port(word: str) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(ValueError, match=word):
        parse_port(word)


def test_rules_of_others_stay() -> None:
    """One rule for each protocol is added for the whole VPC; everybody else's stay as they came."""
    ports = [("tcp", "6443"), ("udp", "53"), ("tcp", "80"), ("tcp", "80")]

    first, *ours = with_ports([OTHER], ports, "default", [])

    assert first is OTHER
    assert [(rule.name, rule.filters.ports, rule.filters.hosts) for rule in ours] == [
        ("clusters-tcp", ("6443", "80"), None),
        ("clusters-udp", ("53",), None),
    ]
    assert {(target.type, target.value) for rule in ours for target in rule.targets} == {("vpc", "default")}  # type: ignore[union-attr]


def test_the_last_run_counts() -> None:
    """A second run says what is open from then on, and for whom; what it does not name is closed."""
    before = with_ports([OTHER], [("tcp", "6443"), ("udp", "53")], "default", [])

    (first, again) = with_ports(before, [("tcp", "443")], "default", ["192.0.2.0/24"])

    assert first is OTHER
    assert again.filters.ports == ("443",)
    assert [(host.type, host.value) for host in again.filters.hosts or ()] == [("ip_net", "192.0.2.0/24")]  # type: ignore[union-attr]
