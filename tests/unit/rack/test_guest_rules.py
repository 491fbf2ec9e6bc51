"""What a VPC becomes in nftables: firewall rules, translations, and who may send as what."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from capox.rack.guests import firewall, netfilter
from capox.rack.guests.wiring import Address, Egress, Network, Port, VpcWiring

FIRST, SECOND = ipaddress.IPv4Address("172.30.0.5"), ipaddress.IPv4Address("172.30.0.6")
BLOCK = ipaddress.IPv4Network("172.30.0.0/22")
ANY: dict[str, Any] = {"hosts": None, "ports": None, "protocols": None}
VPC = {"type": "vpc", "value": "default"}
TCP = {"type": "tcp"}


def rule(**fields: Any) -> dict[str, Any]:
    """A rule that lets everything in to everybody, but for these fields; those of `filters` one by one."""
    filters = ANY | fields.pop("filters", {})
    whole = {"status": "enabled", "direction": "inbound", "action": "allow", "priority": 100, "targets": [VPC]}
    return whole | fields | {"filters": filters}


def vpc(*rules: dict[str, Any], **fields: Any) -> VpcWiring:
    """A VPC with two instances, `first` and `second`, in the subnet `default`."""
    members: dict[tuple[str, str], tuple[Address | Network, ...]] = {
        ("instance", "first"): (FIRST,),
        ("instance", "second"): (SECOND,),
        ("subnet", "default"): (BLOCK,),
    }
    whole: dict[str, Any] = {
        "gateways": (BLOCK[1],),
        "blocks": (BLOCK,),
        "ports": (port("gfirst", FIRST), port("gsecond", SECOND)),
        "inbound": (),
        "egress": (),
        "mute": (),
        "members": members,
    }
    return VpcWiring(**(whole | {"rules": rules} | fields))


def port(device: str, address: Address, *senders: str) -> Port:
    """A NIC."""
    return Port(
        vpc="vpc",
        device=device,
        slot=0,
        is_primary=True,
        mac="A8:40:25:F0:00:01",
        address=address,
        gateway=BLOCK[1],
        senders=tuple(map(ipaddress.IPv4Network, senders)),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["accept"]),
        ({"action": "deny"}, ["drop"]),
        ({"filters": {"protocols": [TCP, {"type": "udp"}]}}, ["meta l4proto { tcp, udp } accept"]),
        (
            {"filters": {"protocols": [TCP], "ports": ["22", "6000-7000"]}},
            ["meta l4proto { tcp } th dport { 22, 6000-7000 } accept"],
        ),
        ({"filters": {"ports": ["22"]}}, ["meta l4proto { tcp, udp } th dport { 22 } accept"]),
        ({"filters": {"protocols": [{"type": "icmp", "value": None}], "ports": ["22"]}}, []),
        ({"filters": {"protocols": [{"type": "icmp", "value": None}]}}, ["meta l4proto icmp accept"]),
        (
            {"filters": {"protocols": [{"type": "icmp", "value": {"icmp_type": 3, "code": "0-4"}}]}},
            ["icmp type 3 icmp code 0-4 accept"],
        ),
        ({"filters": {"protocols": [{"type": "icmp6", "value": None}]}}, []),
        ({"filters": {"protocols": []}}, []),
        ({"filters": {"hosts": [VPC]}}, ['iifname "g*" accept']),
        ({"filters": {"hosts": []}}, []),
        ({"filters": {"hosts": [{"type": "instance", "value": "first"}]}}, ["ip saddr { 172.30.0.5/32 } accept"]),
        ({"filters": {"hosts": [{"type": "instance", "value": "nobody"}]}}, []),
        (
            {"filters": {"hosts": [{"type": "ip_net", "value": "192.0.2.0/24"}, VPC]}},
            ['iifname "g*" accept', "ip saddr { 192.0.2.0/24 } accept"],
        ),
        ({"filters": {"hosts": [{"type": "ip", "value": "2001:db8::1"}]}}, []),
        ({"targets": [{"type": "instance", "value": "second"}]}, ["ip daddr { 172.30.0.6/32 } accept"]),
        ({"targets": [{"type": "subnet", "value": "default"}]}, ["ip daddr { 172.30.0.0/22 } accept"]),
        ({"targets": [{"type": "subnet", "value": "nowhere"}]}, []),
        ({"targets": [{"type": "subnet", "value": "nowhere"}, VPC]}, ["accept"]),
        ({"targets": []}, []),
        ({"status": "disabled"}, []),
        ({"direction": "outbound"}, []),
    ],
)
def test_inbound_rules(fields: dict[str, Any], expected: list[str]) -> None:
    """An inbound rule matches by target, host, protocol and port of the destination (semantics 7.2)."""
    assert firewall.inbound(vpc(rule(**fields))) == expected


def test_outbound_rules() -> None:
    """Outbound, targets are who sends; what is allowed still has to be let in elsewhere."""
    hosts = {"hosts": [{"type": "instance", "value": "first"}]}
    targets = [{"type": "instance", "value": "second"}]
    allowed = rule(direction="outbound", targets=targets, filters=hosts)

    assert firewall.outbound(vpc(allowed)) == ["ip saddr { 172.30.0.6/32 } ip daddr { 172.30.0.5/32 } return"]
    assert firewall.outbound(vpc(rule(direction="outbound", filters={"hosts": [VPC]}))) == ['oifname "g*" return']
    assert firewall.outbound(vpc(rule(direction="outbound", action="deny"))) == ["drop"]


def test_priorities() -> None:
    """Lower numbers come first, and of equal ones what denies (semantics 2.4)."""
    ports = [("22", 65534, "allow"), ("23", 5, "allow"), ("24", 5, "deny"), ("25", 0, "allow")]
    rules = [rule(priority=priority, action=action, filters={"ports": [number]}) for number, priority, action in ports]

    found = firewall.inbound(vpc(*rules))

    assert [line.split("{ ")[-1].split()[0] for line in found] == ["25", "24", "23", "22"]


def test_inbound_is_denied_in_the_end() -> None:
    """What no rule allows in is dropped, and what leads out needs an address to be seen as (semantics 7.1, 7.4)."""
    table = netfilter.vpc_table(vpc())
    assert "  chain ingress {\n    drop\n  }\n" in table
    assert 'oifname "outside"' not in table

    table = netfilter.vpc_table(vpc(egress=((FIRST, Egress(ipaddress.IPv4Address("198.51.100.7"))),)))
    assert 'iifname "g*" oifname "outside" ip saddr { 172.30.0.5 } accept' in table


def test_translations() -> None:
    """Own addresses are translated one to one, shared ones with their share of the ports (semantics 4.4, 6)."""
    own, shared = ipaddress.IPv4Address("198.51.100.7"), ipaddress.IPv4Address("198.51.100.0")
    table = netfilter.vpc_table(
        vpc(inbound=((own, FIRST),), egress=((FIRST, Egress(own)), (SECOND, Egress(shared, (16384, 32767)))))
    )
    assert 'iifname "outside" dnat to ip daddr map { 198.51.100.7 : 172.30.0.5 }' in table
    assert 'oifname "outside" snat to ip saddr map { 172.30.0.5 : 198.51.100.7 }' in table
    seen = 'oifname "outside" ip saddr 172.30.0.6'
    assert f"{seen} meta l4proto {{ tcp, udp }} snat to 198.51.100.0:16384-32767" in table
    assert f"{seen} snat to 198.51.100.0\n" in table


def test_replies_of_a_mute_address_are_dropped_first() -> None:
    """An address whose pool no gateway has receives, and its replies do not leave (semantics 7.4)."""
    table = netfilter.vpc_table(vpc(mute=(ipaddress.IPv4Address("198.51.100.7"),)))
    dropped = table.index("ct direction reply ct original ip daddr { 198.51.100.7 } drop")
    assert dropped < table.index("ct state established,related accept")


def test_a_nic_sends_from_its_own_addresses() -> None:
    """Frames come from the NIC's address or one of its transit networks, in few protocols (semantics 9.3)."""
    table = netfilter.vpc_table(vpc(ports=(port("gfirst", FIRST, "10.244.1.0/24"),)))
    assert 'iifname "gfirst" ip saddr != { 10.244.1.0/24, 172.30.0.5/32 } drop' in table
    assert 'iifname "g*" meta l4proto != { tcp, udp, icmp } drop' in table


def test_a_table_is_replaced_as_a_whole() -> None:
    """A table is named, deleted and written in one text, which is one transaction."""
    for table in (netfilter.vpc_table(vpc()), netfilter.edge_table([1, 2])):
        assert table.startswith("table ip capox\ndelete table ip capox\ntable ip capox {\n")
        assert table.count("{") == table.count("}")
    assert 'iifname "v2" ct direction original ct mark set 2' in netfilter.edge_table([1, 2])
