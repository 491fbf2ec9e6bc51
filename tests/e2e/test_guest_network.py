"""Guests are reached and reach others by the addresses, and within the rules, that the API says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.lab import NAME, POOL, UPLINK_HOST, Lab, fetch
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ANYWHERE = {"filters": {"ports": ["6443"], "protocols": [{"type": "tcp"}]}}
INTERNAL = {"filters": {"hosts": [{"type": "vpc", "value": "default"}]}}


def test_a_missing_rule_hurts(lab: Lab) -> None:
    """Inbound is denied unless a rule allows it, also for the endpoint of a cluster (semantics 7.1)."""
    lab.create("first")
    lab.await_console("first", "ready")
    address = lab.floating_ip("endpoint", "first")
    assert fetch(address, 22) == f"first {UPLINK_HOST}", "the default rules allow port 22"
    assert fetch(address) is None

    lab.allow({"name": "api"} | ANYWHERE)
    assert fetch(address) == f"first {UPLINK_HOST}"
    assert fetch(address, 22) is None, "a new set of rules replaces the old one"

    lab.allow({"name": "api"} | ANYWHERE, {"name": "no", "action": "deny", "priority": 10})
    assert fetch(address) is None


def test_rules_within_a_vpc(lab: Lab) -> None:
    """Guests meet only as the rules say, and outbound rules hold where traffic begins (semantics 7.1)."""
    lab.create("first")
    lab.create("second")
    first = lab.private_address("first")
    lab.await_console("first", "ready")
    assert lab.fetch_within("second", first) == f"first {lab.private_address('second')}"

    lab.allow({"name": "api"} | {"filters": {"hosts": [{"type": "instance", "value": "first"}]}})
    assert lab.fetch_within("second", first) is None
    lab.allow({"name": "api"} | {"filters": {"hosts": [{"type": "instance", "value": "second"}]}})
    assert lab.fetch_within("second", first) == f"first {lab.private_address('second')}"
    out = {"name": "out", "direction": "outbound", "action": "deny", "filters": {"ports": ["6000-7000"]}}
    lab.allow({"name": "in"} | INTERNAL, out)
    assert lab.fetch_within("second", first) is None
    assert lab.fetch_within("second", first, 8080) is not None


def test_a_floating_ip_moves(lab: Lab) -> None:
    """Detach and attach move an address from guest to guest when they are answered (semantics 6)."""
    lab.allow({"name": "api"} | ANYWHERE)
    lab.create("first")
    lab.create("second")
    lab.await_console("first", "ready")
    lab.await_console("second", "ready")
    address = lab.floating_ip("endpoint", "first")
    assert fetch(address) == f"first {UPLINK_HOST}"

    lab.detach("endpoint")
    assert fetch(address) is None
    lab.attach("endpoint", "second")
    assert fetch(address) == f"second {UPLINK_HOST}"

    lab.power("second", "stop")
    lab.await_state("second", "stopped")
    assert fetch(address) is None
    lab.power("second", "start")
    lab.await_state("second", "running")
    eventually("it stays attached over a stop", lambda: fetch(address) == f"second {UPLINK_HOST}")


def test_an_open_connection_ends_when_its_address_moves(lab: Lab) -> None:
    """A connection that stays open does not go on with an instance that has lost the address."""
    lab.allow({"name": "api"} | ANYWHERE)
    lab.create("first")
    lab.create("second")
    lab.await_console("first", "ready")
    address = lab.floating_ip("endpoint", "first")
    assert fetch(address) is not None
    counted = "conntrack", "-L", "--orig-dst", address
    edge = f"capox-{NAME}-edge"
    assert address in lab.docker("exec", edge, *counted)

    lab.detach("endpoint")
    assert address not in lab.docker("exec", edge, *counted)


def test_the_way_out(lab: Lab) -> None:
    """A guest is seen as its floating IP, else its ephemeral address, else the address it shares (semantics 7.4)."""
    lab.allow({"name": "api"} | ANYWHERE)
    lab.create("server")
    lab.await_console("server", "ready")
    server = lab.floating_ip("server", "server")
    ephemeral = [{"type": "ephemeral", "pool_selector": {"type": "auto", "ip_version": "v4"}}]
    for name, external in (("shared", []), ("ephemeral", ephemeral), ("floating", ephemeral)):
        lab.create(name, external=external)
    floating = lab.floating_ip("own", "floating")

    held = {name: external_ips(lab, name) for name in ("shared", "ephemeral", "floating")}

    assert lab.fetch_within("shared", server) == f"server {held['shared']['snat']}"
    assert lab.fetch_within("ephemeral", server) == f"server {held['ephemeral']['ephemeral']}"
    assert lab.fetch_within("floating", server) == f"server {floating}"
    lab.detach("own")
    assert lab.fetch_within("floating", server) == f"server {held['floating']['ephemeral']}"


def test_hairpin(lab: Lab) -> None:
    """A guest reaches its own floating IP, from outside: the rule for what is internal does not cover it (9.3)."""
    lab.create("first")
    lab.await_console("first", "ready")
    address = lab.floating_ip("endpoint", "first")
    assert lab.fetch_within("first", address) is None

    lab.allow({"name": "api"} | ANYWHERE)
    assert lab.fetch_within("first", address) == f"first {address}"


def test_two_vpcs_with_the_same_addresses(lab: Lab) -> None:
    """VPCs may have the same private addresses, and guests of one shared address in both get their own replies."""
    lab.must(201, "POST", "/v1/vpcs?project=demo", {"name": "other", "description": "", "dns_name": "other"})
    lab.create("first")
    nic: dict[str, Any] = {"name": "net0", "description": "", "vpc_name": "other", "subnet_name": "default"}
    nic |= {"ip_config": {"type": "v4", "value": {"ip": {"type": "auto"}}}}
    lab.create("second", network_interfaces={"type": "create", "params": [nic]})
    lab.create("server")
    lab.allow({"name": "api"} | ANYWHERE)
    lab.await_console("server", "ready")
    server = lab.floating_ip("server", "server")

    assert lab.private_address("first") == lab.private_address("second")
    shared = external_ips(lab, "first")["snat"]
    assert external_ips(lab, "second")["snat"] == shared
    assert lab.fetch_within("first", server) == f"server {shared}"
    assert lab.fetch_within("second", server) == f"server {shared}"
    assert lab.fetch_within("second", lab.private_address("server")) is None


def test_one_address_of_the_api(lab: Lab) -> None:
    """Programs of this computer and guests reach the API under one address."""
    lab.create("first")
    url = lab.rack.announcement["api_shared"]
    host, port = url.removeprefix("http://").split(":")
    assert host == UPLINK_HOST
    # The rack hangs up on who hangs up, so the request's end is not the end of what is sent.
    script = f"(printf 'GET /v1/ping HTTP/1.0\\r\\n\\r\\n'; sleep 3) | nc {host} {port}"
    eventually("the API answers a guest", lambda: '"ok"' in lab.within("first", "sh", "-c", script))


def test_a_guest_cannot_pretend(lab: Lab) -> None:
    """What does not come from a NIC's own address goes nowhere (semantics 9.3)."""
    lab.create("first")
    lab.create("second")
    lab.await_console("second", "ready")
    lab.within("first", "ip", "address", "add", "172.30.0.77/32", "dev", "eth0")
    lab.within("first", "ip", "route", "replace", "default", "via", "172.30.0.1", "src", "172.30.0.77")
    assert lab.fetch_within("first", lab.private_address("second")) is None


def external_ips(lab: Lab, name: str) -> dict[str, Any]:
    """An instance's external addresses by kind."""
    items = lab.must(200, "GET", f"/v1/instances/{name}/external-ips?project=demo")["items"]
    assert all(item["ip"].startswith(POOL) for item in items)
    return {item["kind"]: item["ip"] for item in items}
