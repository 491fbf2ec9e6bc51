"""Firewall rules of VPCs (semantics 2.4, 7.1, 7.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rack import RackUnderTest

RULES = "/v1/vpc-firewall-rules"
IN_DEFAULT = {"vpc": "default", "project": "demo"}


def rule(name: str, **changes: Any) -> dict[str, Any]:
    """A rule that lets everything in."""
    return {
        "name": name,
        "description": "",
        "status": "enabled",
        "direction": "inbound",
        "action": "allow",
        "priority": 100,
        "targets": [{"type": "vpc", "value": "default"}],
        "filters": {},
    } | changes


async def put(client: RackUnderTest, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Replace the rules of the default VPC, and return what the answer shows."""
    found: list[dict[str, Any]] = (await client.must(200, "PUT", RULES, {"rules": list(rules)}, **IN_DEFAULT))["rules"]
    return found


async def view(client: RackUnderTest) -> list[dict[str, Any]]:
    """The rules of the default VPC."""
    found: list[dict[str, Any]] = (await client.must(200, "GET", RULES, **IN_DEFAULT))["rules"]
    return found


async def test_new_vpc_lets_in_icmp_ssh_and_its_own_traffic(client: RackUnderTest) -> None:
    """7.1: the three default rules; nothing else comes in, so port 6443 needs a rule of its own."""
    rules = {found["name"]: found for found in await view(client)}

    assert set(rules) == {"allow-icmp", "allow-internal-inbound", "allow-ssh"}
    for found in rules.values():
        assert (found["status"], found["direction"], found["action"]) == ("enabled", "inbound", "allow")
        assert found["priority"] == 65534
        assert found["targets"] == [{"type": "vpc", "value": "default"}]
    assert rules["allow-internal-inbound"]["filters"]["hosts"] == [{"type": "vpc", "value": "default"}]
    assert rules["allow-ssh"]["filters"] == {"hosts": None, "ports": ["22"], "protocols": [{"type": "tcp"}]}
    assert rules["allow-icmp"]["filters"]["protocols"] == [{"type": "icmp", "value": None}]


async def test_put_replaces_all_rules(client: RackUnderTest) -> None:
    """7.2: rules that are not listed vanish, also the defaults; the answer is sorted by name."""
    answer = await put(client, rule("zebra"), rule("ant"), rule("mouse"))

    assert [found["name"] for found in answer] == ["ant", "mouse", "zebra"]
    assert await view(client) == answer


async def test_every_write_gives_all_rules_new_ids(client: RackUnderTest) -> None:
    """7.2: also those that have not changed."""
    first = await put(client, rule("same"))
    second = await put(client, rule("same"))

    assert first[0]["id"] != second[0]["id"]
    assert {key for key in first[0] if first[0][key] != second[0][key]} == {"id"}


@pytest.mark.parametrize("body", [{"rules": []}, {}])
async def test_empty_set_deletes_all_rules(client: RackUnderTest, body: dict[str, Any]) -> None:
    """7.2: `rules` defaults to nothing, so a body of `{}` does it, too."""
    await client.must(200, "PUT", RULES, body, **IN_DEFAULT)

    assert await view(client) == []


async def test_rule_is_shown_as_it_was_given(client: RackUnderTest) -> None:
    """7.2: every kind of target, filter and protocol; fields that the API does not know are forgotten."""
    targets = [
        {"type": "vpc", "value": "default"},
        {"type": "subnet", "value": "default"},
        {"type": "instance", "value": "node"},
        {"type": "ip", "value": "172.30.0.9"},
        {"type": "ip_net", "value": "172.30.0.0/24"},
    ]
    filters = {
        "hosts": [{"type": "ip_net", "value": "fd00::/8"}, {"type": "ip", "value": "2001:db8::1"}],
        "ports": ["22", "6667-7000"],
        "protocols": [
            {"type": "tcp"},
            {"type": "udp"},
            {"type": "icmp", "value": {"icmp_type": 8, "code": "0-3"}},
            {"type": "icmp6", "value": None},
        ],
    }
    wanted = rule("all", targets=targets, filters=filters, priority=0, action="deny", direction="outbound")

    (found,) = await put(client, wanted | {"colour": "green"})

    assert {key: found[key] for key in wanted} == wanted
    assert "colour" not in found


async def test_names_of_rules_are_unique(client: RackUnderTest) -> None:
    """7.2: 400 InvalidValue that names the duplicates, and nothing is written."""
    before = await view(client)
    rules = [rule("x"), rule("y"), rule("x")]

    error = await client.refused(400, "PUT", RULES, {"rules": rules}, **IN_DEFAULT)

    assert error["error_code"] == "InvalidValue"
    assert error["message"] == 'unsupported value for "rules": Rule names must be unique. Duplicates: ["x"]'
    assert await view(client) == before


async def test_vpc_has_at_most_1024_rules(client: RackUnderTest) -> None:
    """2.4: the limit itself is in order."""
    rules = [rule(f"rule{number}") for number in range(1025)]

    error = await client.refused(400, "PUT", RULES, {"rules": rules}, **IN_DEFAULT)

    assert error["message"] == 'unsupported value for "rules": max length 1024'
    assert len(await put(client, *rules[:1024])) == 1024


@pytest.mark.parametrize(
    ("label", "item"),
    [
        ("targets", {"type": "vpc", "value": "default"}),
        ("filters.hosts", {"type": "vpc", "value": "default"}),
        ("filters.ports", "22"),
        ("filters.protocols", {"type": "tcp"}),
    ],
)
async def test_rule_has_at_most_256_of_each(client: RackUnderTest, label: str, item: Any) -> None:
    """2.4: targets and each kind of filter; the refusal says of which there are too many."""

    def filled(count: int) -> dict[str, Any]:
        """A rule with so many of them."""
        items = [item] * count
        return rule("full", targets=items) if label == "targets" else rule("full", filters={label[8:]: items})

    error = await client.refused(400, "PUT", RULES, {"rules": [filled(257)]}, **IN_DEFAULT)

    assert (error["error_code"], error["message"]) == (
        "InvalidValue",
        f'unsupported value for "{label}": max length 256',
    )
    await put(client, filled(256))


async def test_rules_do_not_reach_into_other_vpcs(client: RackUnderTest) -> None:
    """7.2: neither as a target nor as a host filter, and nothing is written."""
    other = [{"type": "vpc", "value": "other"}]
    before = await view(client)

    target = await client.refused(400, "PUT", RULES, {"rules": [rule("x", targets=other)]}, **IN_DEFAULT)
    hosts = rule("x", filters={"hosts": other})
    host = await client.refused(400, "PUT", RULES, {"rules": [hosts]}, **IN_DEFAULT)

    assert target["message"] == "cross-VPC firewall target unsupported"
    assert host["message"] == "cross-VPC firewall host filter unsupported"
    assert await view(client) == before


async def test_rule_for_what_does_not_exist_is_accepted(client: RackUnderTest) -> None:
    """7.2: an instance or a subnet that is not there makes a rule ineffective, not wrong."""
    await put(client, rule("x", targets=[{"type": "instance", "value": "ghost"}, {"type": "subnet", "value": "gone"}]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"filters": {"ports": ["0"]}},
        {"filters": {"ports": ["70000"]}},
        {"filters": {"ports": ["30-20"]}},
        {"priority": 65536},
        {"priority": -1},
        {"status": "on"},
        {"targets": [{"type": "vpc", "value": "Default"}]},
        {"filters": {"protocols": ["tcp"]}},
    ],
)
async def test_unreadable_rule_is_a_parse_error(client: RackUnderTest, wrong: dict[str, Any]) -> None:
    """2.4: port 0, a priority beyond 65535 and the like are refused by the parser, without an error code."""
    error = await client.refused(400, "PUT", RULES, {"rules": [rule("x", **wrong)]}, **IN_DEFAULT)

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse JSON body: rules")
