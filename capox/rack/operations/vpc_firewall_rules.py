"""Firewall rules of VPCs: one set, which is always written as a whole (semantics 2.4, 7.2)."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from capox.rack import errors, networks, records, vpc_scope
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON

RULES_MAXIMUM = 1024
"""How many rules a VPC may have."""

PARTS_MAXIMUM = 256
"""How many targets, and how many of each kind of filter, a rule may have."""

_RULE_FIELDS = ("name", "description", "status", "direction", "action", "priority")


@operation
def vpc_firewall_rules_view(call: Call) -> JSON:
    """`GET /v1/vpc-firewall-rules`: by name."""
    return {"rules": vpc_scope.vpc_of_query(call).firewall_rules}


@operation
def vpc_firewall_rules_update(call: Call) -> JSON:
    """`PUT /v1/vpc-firewall-rules`: these rules and no others, each with a new id."""
    vpc = vpc_scope.vpc_of_query(call, "network")
    rules = call.body["rules"]
    _check(vpc, rules)
    vpc.firewall_rules = [
        networks.stored_rule(call.rack, vpc, _known_fields(rule)) for rule in sorted(rules, key=_name_of)
    ]
    return {"rules": vpc.firewall_rules}


def _check(vpc: records.Vpc, rules: list[JSON]) -> None:
    """Check a set of rules. A rule for an instance or a subnet that does not exist is in order.

    Raises:
        Refusal: a name occurs twice, there is too much of something, or another VPC is named.
    """
    counts = collections.Counter(map(_name_of, rules))
    repeated = ", ".join(f'"{name}"' for name, count in counts.items() if count > 1)
    if repeated:
        raise errors.invalid_value("rules", f"Rule names must be unique. Duplicates: [{repeated}]")
    _check_length("rules", rules, RULES_MAXIMUM)
    for rule in rules:
        _check_length("targets", rule["targets"], PARTS_MAXIMUM)
        for kind in ("hosts", "ports", "protocols"):
            _check_length(f"filters.{kind}", rule["filters"][kind] or [], PARTS_MAXIMUM)
        check_description(rule["description"])
    for rule in rules:
        _check_vpc("target", vpc, rule["targets"])
        _check_vpc("host filter", vpc, rule["filters"]["hosts"] or ())


def _check_length(label: str, parts: list[JSON], maximum: int) -> None:
    if len(parts) > maximum:
        raise errors.invalid_value(label, f"max length {maximum}")


def _check_vpc(label: str, vpc: records.Vpc, hosts: Iterable[JSON]) -> None:
    if any(host["type"] == "vpc" and host["value"] != vpc.name for host in hosts):
        raise errors.invalid_request(f"cross-VPC firewall {label} unsupported")


def _known_fields(rule: JSON) -> JSON:
    """The rule without fields that the API does not know and therefore forgets."""
    filters = rule["filters"]
    return {field: rule[field] for field in _RULE_FIELDS} | {
        "targets": [_tagged(target) for target in rule["targets"]],
        "filters": {
            "hosts": _each(filters["hosts"]),
            "ports": filters["ports"],
            "protocols": _each(filters["protocols"]),
        },
    }


def _each(parts: list[JSON] | None) -> list[JSON] | None:
    return None if parts is None else [_tagged(part) for part in parts]


def _tagged(part: JSON) -> JSON:
    return {field: part[field] for field in ("type", "value") if field in part}


def _name_of(rule: JSON) -> str:
    name: str = rule["name"]
    return name
