"""Addresses for source NAT and ephemeral IPs of instances (semantics 2.2, 3.2, 4.4, 4.6, 6)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.rack import instance_states
from capox.rack.faults import FaultRule
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

EPHEMERAL = life.path(act="external-ips/ephemeral")


def ephemeral(selector: dict[str, Any]) -> dict[str, Any]:
    """An ephemeral IP as instance creation takes it."""
    return {"type": "ephemeral", "pool_selector": selector}


def by_pool(pool: str) -> dict[str, Any]:
    """The selector of this pool."""
    return {"type": "explicit", "pool": pool}


async def ephemeral_ips(rack: RackUnderTest) -> list[str]:
    """The ephemeral addresses of the instance `node`."""
    return [item["ip"] for item in await network.external_ips_of(rack) if item["kind"] == "ephemeral"]


async def test_four_instances_share_an_address_for_source_nat(client: RackUnderTest) -> None:
    """4.4: 16384 ports each, out of the default IPv4 pool; the fifth begins the next address."""
    shares = []
    for number in range(5):
        await life.create(client, name=f"node{number}", network_interfaces=network.IPV4)
        (item,) = await network.external_ips_of(client, f"node{number}")
        assert (item["kind"], item["ip_pool_id"]) == ("snat", client.pool_v4.id)
        shares.append((item["ip"], item["first_port"], item["last_port"]))

    assert shares == [
        ("198.51.100.0", 0, 16383),
        ("198.51.100.0", 16384, 32767),
        ("198.51.100.0", 32768, 49151),
        ("198.51.100.0", 49152, 65535),
        ("198.51.100.1", 0, 16383),
    ]
    assert network.addresses_in_use(client) == 2


async def test_share_of_a_deleted_instance_is_used_again(client: RackUnderTest) -> None:
    """4.6: and the address goes back with its last share."""
    for number in range(4):
        await life.create(client, name=f"node{number}", network_interfaces=network.IPV4)
    await client.must(204, "DELETE", life.path("node1"))
    await life.create(client, name="again", network_interfaces=network.IPV4)
    (item,) = await network.external_ips_of(client, "again")
    assert (item["ip"], item["first_port"]) == ("198.51.100.0", 16384)

    for name in ("node0", "node2", "node3", "again"):
        await client.must(204, "DELETE", life.path(name))
    assert network.addresses_in_use(client) == 0


async def test_floating_ip_does_not_take_a_shared_address(client: RackUnderTest) -> None:
    """4.4: what has one share given away is no whole address any more."""
    await life.create(client, network_interfaces=network.IPV4)

    assert (await network.add_floating_ip(client))["ip"] == "198.51.100.1"


@pytest.mark.parametrize("attachment", [network.IPV6, {"type": "none"}])
async def test_without_ipv4_there_is_no_source_nat(client: RackUnderTest, attachment: dict[str, Any]) -> None:
    """4.4: it is for IPv4 only, and only for a primary interface that has it."""
    await life.create(client, network_interfaces=attachment)

    assert await network.external_ips_of(client) == []
    assert network.addresses_in_use(client) == 0


async def test_source_nat_needs_a_default_pool(client: RackUnderTest) -> None:
    """4.4: without a default IPv4 pool the creation fails by 404 and unwinds; without IPv4 it does not."""
    client.pool_v4.links = {client.silo.id: False}

    error = await life.refuse_create(client, 404, network_interfaces=network.DUAL_STACK)

    assert error["message"] == "not found: default unicast IPv4 pool for current silo"
    assert len(client.state.network_interfaces) == 0
    await life.create(client, network_interfaces=network.IPV6)


async def test_source_nat_needs_room_in_the_pool(client: RackUnderTest) -> None:
    """4.4: 507 when no share and no address is left, and when a fault says so."""
    client.app.faults.add(FaultRule(kind="pool_exhausted", operation="instance_create", object="public-v4", times=1))
    declared = await life.refuse_create(client, 507, network_interfaces=network.IPV4)
    book = client.state.pool_addresses[client.pool_v4.id]
    while book.take() is not None:
        pass
    real = await life.refuse_create(client, 507, network_interfaces=network.IPV4)

    for error in (declared, real):
        assert error["message"] == "Insufficient capacity: No external IP addresses available"


async def test_instance_can_be_created_with_one_ephemeral_ip_of_each_version(client: RackUnderTest) -> None:
    """2.2: by version or by pool; they are allocated at once and listed."""
    wanted = [ephemeral(network.AUTO_V4), ephemeral(by_pool("public-v6"))]

    await life.create(client, network_interfaces=network.DUAL_STACK, external_ips=wanted)

    assert await ephemeral_ips(client) == ["198.51.100.1", "2001:db8::"]


@pytest.mark.parametrize(
    ("selectors", "message"),
    [
        (
            [{"type": "auto"}, network.AUTO_V4],
            "when requesting two ephemeral IPs, IP version or explicit pool name must be specified on each",
        ),
        ([network.AUTO_V4, network.AUTO_V4], "cannot request two ephemeral IPs of the same version (v4)"),
        ([network.AUTO_V6, by_pool("public-v6")], "cannot request two ephemeral IPs of the same version (v6)"),
        ([by_pool("public-v4"), by_pool("public-v4")], "cannot request two ephemeral IPs from the same pool"),
        (
            [network.AUTO_V4, network.AUTO_V6, by_pool("public-v4")],
            "An instance may not have more than 2 ephemeral IP addresses",
        ),
    ],
)
async def test_ephemeral_ips_that_cannot_be_together(
    client: RackUnderTest, selectors: list[dict[str, Any]], message: str
) -> None:
    """2.2: refused before anything is written."""
    wanted = [ephemeral(selector) for selector in selectors]

    error = await life.refuse_create(client, 400, network_interfaces=network.DUAL_STACK, external_ips=wanted)

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)


async def test_instance_may_not_be_created_with_more_than_32_external_ips(client: RackUnderTest) -> None:
    """2.2: refused before anything is looked up."""
    wanted = [{"type": "floating", "floating_ip": f"ip{number}"} for number in range(33)]

    error = await life.refuse_create(client, 400, network_interfaces=network.IPV4, external_ips=wanted)

    assert error["message"] == "An instance may not have more than 32 external IP addresses"


async def test_external_ip_of_a_version_that_the_interface_lacks_unwinds_the_creation(client: RackUnderTest) -> None:
    """4.4: also without any interface; the address goes back."""
    for attachment, selector, version in (
        (network.IPV4, network.AUTO_V6, "IPv6"),
        (network.IPV6, network.AUTO_V4, "IPv4"),
        ({"type": "none"}, network.AUTO_V4, "IPv4"),
    ):
        wanted = [ephemeral(selector)]
        error = await life.refuse_create(client, 400, network_interfaces=attachment, external_ips=wanted)
        assert error["message"].startswith(
            f"The ephemeral external IP is an {version} address, but the instance with ID "
        )
    assert [client.state.pool_addresses[pool.id].taken_count for pool in (client.pool_v4, client.pool_v6)] == [0, 0]


async def test_older_clients_name_the_pool_of_an_ephemeral_ip(client: RackUnderTest) -> None:
    """1.2: at creation and at attaching; a version beside a pool has to be the pool's."""
    headers = {"api-version": "2026010400.0.0"}
    body = life.MINIMAL | {
        "network_interfaces": network.DUAL_STACK,
        "external_ips": [{"type": "ephemeral", "pool": "public-v4"}],
    }
    await client.must(201, "POST", life.INSTANCES, body, headers=headers)

    mismatch = {"pool": "public-v6", "ip_version": "v4"}
    error = await client.refused(400, "POST", EPHEMERAL, mismatch, headers=headers)
    answer = await client.must(202, "POST", EPHEMERAL, {"pool": "public-v6", "ip_version": "v6"}, headers=headers)

    assert error["message"] == "requested IP version (v4) does not match pool 'public-v6' version (v6)"
    assert answer["ip"] == "2001:db8::"
    assert await ephemeral_ips(client) == ["198.51.100.1", "2001:db8::"]


async def test_ephemeral_ip_can_be_attached_and_detached(client: RackUnderTest) -> None:
    """6: its address is released by the detach."""
    await life.create(client, network_interfaces=network.IPV4)

    answer = await client.must(202, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})

    assert answer == {"kind": "ephemeral", "ip": "198.51.100.1", "ip_pool_id": client.pool_v4.id}
    assert await ephemeral_ips(client) == ["198.51.100.1"]
    await client.must(204, "DELETE", EPHEMERAL)
    assert await ephemeral_ips(client) == []
    assert network.addresses_in_use(client) == 1


async def test_second_attach_returns_the_first_address(client: RackUnderTest) -> None:
    """6: of the same version, also from another pool and from an exhausted one."""
    client.add_pool("further", "v4", "192.0.2.0", "192.0.2.0", {client.silo.id: False})
    await life.create(client, network_interfaces=network.IPV4)
    first = await client.must(202, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})
    again = await client.must(202, "POST", EPHEMERAL, {"pool_selector": by_pool("further")})
    client.app.faults.add(FaultRule(kind="pool_exhausted"))
    exhausted = await client.must(202, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})

    assert again == exhausted == first
    await client.must(204, "DELETE", EPHEMERAL)
    error = await client.refused(507, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})
    assert error["message"] == "Insufficient capacity: No external IP addresses available"


async def test_version_of_an_ephemeral_ip_has_to_be_named(client: RackUnderTest) -> None:
    """4.4: a body of `{}` will do when only one version has a default pool."""
    await life.create(client, network_interfaces=network.DUAL_STACK)

    error = await client.refused(400, "POST", EPHEMERAL, {})
    client.pool_v4.links = {client.silo.id: False}

    assert error["message"].startswith("Multiple default unicast IP pools exist with different IP versions.")
    assert (await client.must(202, "POST", EPHEMERAL, {}))["ip"] == "2001:db8::"


async def test_detach_without_an_ephemeral_ip_is_refused(client: RackUnderTest) -> None:
    """6: unlike a floating IP's; also when only the other version is there."""
    await life.create(client, network_interfaces=network.DUAL_STACK)
    none = await client.refused(400, "DELETE", EPHEMERAL)
    await client.must(202, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})
    other = await client.refused(400, "DELETE", EPHEMERAL, ip_version="v6")

    for error in (none, other):
        assert error["message"] == "instance does not have an ephemeral IP attached"


async def test_one_of_two_ephemeral_ips_is_detached_by_version(client: RackUnderTest) -> None:
    """6: without a version it is refused."""
    wanted = [ephemeral(network.AUTO_V4), ephemeral(network.AUTO_V6)]
    await life.create(client, network_interfaces=network.DUAL_STACK, external_ips=wanted)

    error = await client.refused(400, "DELETE", EPHEMERAL)

    assert error["message"] == "instance has two ephemeral IPs; specify ip_version to select which to detach"
    await client.must(204, "DELETE", EPHEMERAL, ip_version="v4")
    assert await ephemeral_ips(client) == ["2001:db8::"]
    await client.must(204, "DELETE", EPHEMERAL)


@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 202), ("starting", 503), ("running", 202), ("rebooting", 202), ("stopping", 503), ("failed", 400)],
)
async def test_when_an_ephemeral_ip_can_be_attached(client: RackUnderTest, state: str, status: int) -> None:
    """3.2: row ephemeral IP attach; a refused one costs no address."""
    await life.create_in(client, state, network_interfaces=network.IPV4)

    answer = await client.must(status, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})

    if status == 400:
        assert answer["message"] == "cannot attach ephemeral IP to instance in failed state"
    assert network.addresses_in_use(client) == (2 if status == 202 else 1)


@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 204), ("starting", 503), ("running", 204), ("rebooting", 204), ("stopping", 503), ("failed", 400)],
)
async def test_when_an_ephemeral_ip_can_be_detached(client: RackUnderTest, state: str, status: int) -> None:
    """3.2: row ephemeral IP detach."""
    wanted = [ephemeral(network.AUTO_V4)]
    await life.create_in(client, state, network_interfaces=network.IPV4, external_ips=wanted)

    error = await client.must(status, "DELETE", EPHEMERAL)

    if status == 400:
        assert error["message"] == "cannot detach ephemeral IP from instance in failed state"
    assert network.addresses_in_use(client) == (1 if status == 204 else 2)


async def test_ephemeral_ip_stays_through_stop_and_start_and_goes_with_the_instance(client: RackUnderTest) -> None:
    """6: only a detach or the deletion of the instance releases it."""
    wanted = [ephemeral(network.AUTO_V4)]
    await life.create_running(client, network_interfaces=network.IPV4, external_ips=wanted)
    await client.must(202, "POST", life.path(act="stop"))
    client.pass_time(1)
    assert await ephemeral_ips(client) == ["198.51.100.1"]

    await client.must(204, "DELETE", life.path())
    assert network.addresses_in_use(client) == 0


@pytest.mark.parametrize("act", ["attach", "detach"])
async def test_second_operation_on_an_ephemeral_ip_is_unavailable(client: RackUnderTest, act: str) -> None:
    """6: 503 while one is under way; meanwhile the address is not listed."""
    wanted = [ephemeral(network.AUTO_V4)] if act == "detach" else []
    await life.create(client, network_interfaces=network.IPV4, external_ips=wanted)
    body = {"pool_selector": network.AUTO_V4}
    method = "POST" if act == "attach" else "DELETE"
    under_way = await network.begin(client, method, EPHEMERAL, body if act == "attach" else None)

    await client.refused(503, "POST", EPHEMERAL, body)
    await client.refused(503, "DELETE", EPHEMERAL)
    assert await ephemeral_ips(client) == []
    await life.finish(client, under_way)

    assert await ephemeral_ips(client) == (["198.51.100.1"] if act == "attach" else [])


@pytest.mark.parametrize("act", ["attach", "detach"])
async def test_unreachable_sled_leaves_ephemeral_ips_as_they_were(client: RackUnderTest, act: str) -> None:
    """3.2: 503 after the sled's time-out; an address that was taken for it is free again."""
    wanted = [ephemeral(network.AUTO_V4)] if act == "detach" else []
    await life.create_running(client, network_interfaces=network.IPV4, external_ips=wanted)
    instance_states.lose_sled(client.state, life.sled_of(client))
    before = await ephemeral_ips(client), network.addresses_in_use(client)

    if act == "attach":
        await client.refused(503, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})
    else:
        await client.refused(503, "DELETE", EPHEMERAL)

    assert (await ephemeral_ips(client), network.addresses_in_use(client)) == before


async def test_instance_deleted_during_an_ephemeral_attach_is_not_found(client: RackUnderTest) -> None:
    """4.6: its address has gone back."""
    await life.create(client, network_interfaces=network.IPV4)
    under_way = await network.begin(client, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4})
    await client.must(204, "DELETE", life.path())

    await life.finish(client, under_way)

    assert under_way.result().status_code == 404
    assert network.addresses_in_use(client) == 0


async def test_list_of_external_ips_tells_their_kinds(client: RackUnderTest) -> None:
    """4.4: in one piece; an address filter has to skip the source NAT entry."""
    await network.add_floating_ip(client)
    wanted = [ephemeral(network.AUTO_V4), {"type": "floating", "floating_ip": "entry"}]
    await life.create(client, network_interfaces=network.IPV4, external_ips=wanted)

    found = {item["kind"]: item for item in await network.external_ips_of(client)}

    assert set(found) == {"snat", "ephemeral", "floating"}
    floating = found["floating"]
    assert {key: floating[key] for key in floating if key != "kind"} == await network.view_floating_ip(client)


async def test_external_ips_of_another_silo_are_not_found(client: RackUnderTest) -> None:
    """1.1: nor may a viewer change them."""
    instance = await life.create(client, network_interfaces=network.IPV4)
    path = f"/v1/instances/{instance['id']}/external-ips"

    await client.must(200, "GET", path, user="viewer")
    await client.refused(404, "GET", path, user="stranger")
    await client.refused(403, "POST", EPHEMERAL, {"pool_selector": network.AUTO_V4}, user="viewer")
    await client.refused(403, "DELETE", EPHEMERAL, user="viewer")
