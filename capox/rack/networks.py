"""What comes with a VPC when it is made: prefix, system router, default subnet, firewall rules (semantics 7.1)."""

from __future__ import annotations

import ipaddress

from capox.rack import records, views
from capox.rack.json import JSON
from capox.rack.state import Rack

DEFAULT_SUBNET_BLOCK = ipaddress.IPv4Network("172.30.0.0/22")
_DEFAULT_RULE_PRIORITY = 65534


def add_vpc(
    rack: Rack,
    project: records.Project,
    *,
    name: str,
    description: str,
    dns_name: str,
    ipv6_prefix: ipaddress.IPv6Network | None = None,
) -> records.Vpc:
    """Make a VPC with everything that a new one contains.

    Args:
        rack: the rack.
        project: where it belongs.
        name: its name.
        description: its description.
        dns_name: its name in DNS, which nothing serves yet.
        ipv6_prefix: a /48; absent, a random unique local one.

    Raises:
        Refusal: the name is taken.
    """
    vpc = records.Vpc(
        **rack.identity(name, description),
        project=project.id,
        dns_name=dns_name,
        ipv6_prefix=ipv6_prefix or _random_prefix(rack),
        system_router=rack.new_id(),
    )
    rack.vpcs.insert(vpc)
    vpc.firewall_rules = [stored_rule(rack, vpc, rule) for rule in _default_rules(name)]
    rack.add_subnet(
        records.VpcSubnet(
            **rack.identity("default", f"The default subnet for {name}"),
            vpc=vpc.id,
            ipv4_block=DEFAULT_SUBNET_BLOCK,
            ipv6_block=next(vpc.ipv6_prefix.subnets(new_prefix=64)),
        )
    )
    return vpc


def stored_rule(rack: Rack, vpc: records.Vpc, rule: JSON) -> JSON:
    """A firewall rule as the API shows it, from the form in which it takes it: every write gives it a new id."""
    moment = views.timestamp(rack.now())
    return {
        **rule,
        "id": rack.new_id(),
        "vpc_id": vpc.id,
        "time_created": moment,
        "time_modified": moment,
    }


def _random_prefix(rack: Rack) -> ipaddress.IPv6Network:
    prefix = (0xFD << 120) | (rack.randomness.getrandbits(40) << 80)
    return ipaddress.IPv6Network((prefix, 48))


def _default_rules(vpc_name: str) -> list[JSON]:
    def rule(name: str, description: str, filters: JSON) -> JSON:
        return {
            "name": name,
            "description": description,
            "status": "enabled",
            "direction": "inbound",
            "action": "allow",
            "priority": _DEFAULT_RULE_PRIORITY,
            "targets": [{"type": "vpc", "value": vpc_name}],
            "filters": {"hosts": None, "ports": None, "protocols": None} | filters,
        }

    return [
        rule(
            "allow-icmp", "allow inbound ICMP traffic from anywhere", {"protocols": [{"type": "icmp", "value": None}]}
        ),
        rule(
            "allow-internal-inbound",
            "allow inbound traffic to all instances within the VPC if originated within the VPC",
            {"hosts": [{"type": "vpc", "value": vpc_name}]},
        ),
        rule(
            "allow-ssh",
            "allow inbound TCP connections on port 22 from anywhere",
            {"ports": ["22"], "protocols": [{"type": "tcp"}]},
        ),
    ]
