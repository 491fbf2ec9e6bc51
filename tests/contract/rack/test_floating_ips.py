"""Floating IPs: how they come by their address and give it back (semantics 1.2, 1.6, 4.4, 6)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.rack.faults import FaultRule
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

FLOATING_IPS = "/v1/floating-ips"


def body(allocator: dict[str, Any] | None = None, name: str = "entry") -> dict[str, Any]:
    """A request for a floating IP."""
    return {"name": name, "description": "The way in"} | ({} if allocator is None else {"address_allocator": allocator})


def auto(**selector: Any) -> dict[str, Any]:
    """An allocator that takes the lowest free address of the pool that a selector means."""
    return {"type": "auto", "pool_selector": selector}


def explicit(ip: str) -> dict[str, Any]:
    """An allocator that takes this address."""
    return {"type": "explicit", "ip": ip}


async def test_floating_ip_can_be_made_seen_changed_and_deleted(client: RackUnderTest) -> None:
    """6: the life of a floating IP; only name and description can be changed."""
    made = await client.must(201, "POST", FLOATING_IPS, body(auto(type="auto", ip_version="v4")), project="demo")
    changed = await client.must(200, "PUT", f"{FLOATING_IPS}/{made['id']}", {"name": "front"})
    listed = await client.must(200, "GET", FLOATING_IPS, project="demo")

    assert (made["project_id"], made["ip_pool_id"], made["instance_id"]) == (
        client.project.id,
        client.pool_v4.id,
        None,
    )
    assert (changed["name"], changed["description"], changed["ip"]) == ("front", "The way in", made["ip"])
    assert listed["items"] == [changed]
    await client.must(204, "DELETE", f"{FLOATING_IPS}/front", project="demo")
    error = await client.refused(404, "GET", f"{FLOATING_IPS}/front", project="demo")
    assert error["message"] == 'not found: floating-ip with name "front"'


async def test_lowest_free_address_is_taken_the_first_of_the_range_included(client: RackUnderTest) -> None:
    """6: pools keep no network address back; an address that comes back is the next again."""
    addresses = [(await network.add_floating_ip(client, f"ip{number}"))["ip"] for number in range(3)]
    await client.must(204, "DELETE", f"{FLOATING_IPS}/ip1", project="demo")

    again = await network.add_floating_ip(client, "again")

    assert addresses == ["198.51.100.0", "198.51.100.1", "198.51.100.2"]
    assert again["ip"] == "198.51.100.1"


async def test_address_can_be_chosen(client: RackUnderTest) -> None:
    """6: the pool is found by the address; one in use is refused, and so is one that no pool has."""
    made = await client.must(201, "POST", FLOATING_IPS, body(explicit("198.51.100.40")), project="demo")
    taken = await client.refused(400, "POST", FLOATING_IPS, body(explicit("198.51.100.40"), "b"), project="demo")
    foreign = await client.refused(400, "POST", FLOATING_IPS, body(explicit("192.0.2.1"), "b"), project="demo")

    assert (made["ip"], made["ip_pool_id"]) == ("198.51.100.40", client.pool_v4.id)
    assert taken["message"] == "Requested external IP address not available"
    assert foreign["message"] == "IP address 192.0.2.1 is not in any configured pool"


async def test_address_of_a_pool_of_another_silo_is_in_no_pool(client: RackUnderTest) -> None:
    """6: only pools linked to the silo count."""
    client.add_pool("private", "v4", "192.0.2.0", "192.0.2.9", {client.other_silo.id: False})

    explicitly = await client.refused(400, "POST", FLOATING_IPS, body(explicit("192.0.2.1")), project="demo")
    by_pool = await client.refused(
        404, "POST", FLOATING_IPS, body(auto(type="explicit", pool="private")), project="demo"
    )

    assert explicitly["message"] == "IP address 192.0.2.1 is not in any configured pool"
    assert by_pool["message"] == 'not found: ip-pool with name "private"'


async def test_version_has_to_be_named_when_both_have_a_default_pool(client: RackUnderTest) -> None:
    """4.4: without allocator, without selector and without version alike; either version will do."""
    requests = (body(), body({"type": "auto"}), body(auto(type="auto")))

    for request in requests:
        error = await client.refused(400, "POST", FLOATING_IPS, request, project="demo")
        assert error["message"] == (
            "Multiple default unicast IP pools exist with different IP versions. "
            "Please specify ip_version (v4 or v6) or provide an explicit pool."
        )
    made = await client.must(201, "POST", FLOATING_IPS, body(auto(type="auto", ip_version="v6")), project="demo")
    assert made["ip"] == "2001:db8::"


async def test_only_default_pool_is_taken_without_a_version(client: RackUnderTest) -> None:
    """4.4: the version is needed only when there is a choice."""
    client.pool_v6.links = {client.silo.id: False}

    made = await client.must(201, "POST", FLOATING_IPS, body(), project="demo")

    assert made["ip_pool_id"] == client.pool_v4.id


@pytest.mark.parametrize(("version", "text"), [(None, "IP"), ("v4", "IPv4"), ("v6", "IPv6")])
async def test_without_a_default_pool_nothing_is_found(client: RackUnderTest, version: str | None, text: str) -> None:
    """4.4: 404 in free text."""
    for pool in (client.pool_v4, client.pool_v6):
        pool.links = {client.silo.id: False}
    selector = {"type": "auto"} | ({} if version is None else {"ip_version": version})

    error = await client.refused(404, "POST", FLOATING_IPS, body(auto(**selector)), project="demo")

    assert error["error_code"] == "ObjectNotFound"
    assert error["message"] == f"not found: default unicast {text} pool for current silo"


async def test_pool_can_be_chosen_by_name_or_id(client: RackUnderTest) -> None:
    """4.4: also one that is not the default, an id in either case."""
    pool = client.add_pool("further", "v4", "192.0.2.0", "192.0.2.9", {client.silo.id: False})

    for number, reference in enumerate(("further", pool.id, pool.id.upper())):
        request = body(auto(type="explicit", pool=reference), f"ip{number}")
        made = await client.must(201, "POST", FLOATING_IPS, request, project="demo")
        assert (made["ip"], made["ip_pool_id"]) == (f"192.0.2.{number}", pool.id)


async def test_multicast_pool_holds_no_floating_ips(client: RackUnderTest) -> None:
    """4.4: neither by its name nor by its addresses."""
    pool = client.add_pool("groups", "v4", "224.1.1.0", "224.1.1.9", {client.silo.id: True})
    pool.pool_type = "multicast"

    by_pool = await client.refused(
        400, "POST", FLOATING_IPS, body(auto(type="explicit", pool="groups")), project="demo"
    )
    by_address = await client.refused(400, "POST", FLOATING_IPS, body(explicit("224.1.1.1")), project="demo")

    assert "groups" in by_pool["message"]
    assert by_address["message"] == "IP address 224.1.1.1 is not in any configured pool"
    assert (await network.add_floating_ip(client))["ip_pool_id"] == client.pool_v4.id


async def test_exhausted_pool_is_no_capacity(client: RackUnderTest) -> None:
    """6: 507; a floating IP without an instance uses up an address like any other."""
    client.add_pool("tiny", "v4", "192.0.2.0", "192.0.2.0", {client.silo.id: False})
    request = auto(type="explicit", pool="tiny")
    await client.must(201, "POST", FLOATING_IPS, body(request), project="demo")

    error = await client.refused(507, "POST", FLOATING_IPS, body(request, "b"), project="demo")

    assert error["error_code"] == "InsufficientCapacity"
    assert error["message"] == "Insufficient capacity: No external IP addresses available"


async def test_pool_can_be_declared_exhausted(client: RackUnderTest) -> None:
    """6: by a fault, for the pool that it names and as often as it says."""
    client.app.faults.add(FaultRule(kind="pool_exhausted", object="public-v4", times=1))

    await client.refused(507, "POST", FLOATING_IPS, body(auto(type="auto", ip_version="v4")), project="demo")

    assert network.addresses_in_use(client) == 0
    await network.add_floating_ip(client, "six", version="v6")
    await network.add_floating_ip(client, "four", version="v4")


async def test_taken_name_costs_no_address(client: RackUnderTest) -> None:
    """6: 400 ObjectAlreadyExists, whether the address was chosen or not."""
    await network.add_floating_ip(client)

    for allocator in (auto(type="auto", ip_version="v4"), explicit("198.51.100.9")):
        error = await client.refused(400, "POST", FLOATING_IPS, body(allocator), project="demo")
        assert (error["error_code"], error["message"]) == (
            "ObjectAlreadyExists",
            'already exists: floating-ip "entry"',
        )
    assert network.addresses_in_use(client) == 1


@pytest.mark.parametrize(
    ("old", "ip"),
    [
        ({"ip": "198.51.100.9"}, "198.51.100.9"),
        ({"pool": "public-v6"}, "2001:db8::"),
        ({"ip_version": "v6"}, "2001:db8::"),
        ({"address_selector": {"type": "explicit", "ip": "198.51.100.9"}}, "198.51.100.9"),
    ],
)
async def test_older_clients_ask_in_their_own_words(client: RackUnderTest, old: dict[str, Any], ip: str) -> None:
    """1.2: `ip`, `pool`, `ip_version` and `address_selector` of versions before 2026012200."""
    headers = {"api-version": "2026010100.0.0"}

    made = await client.must(201, "POST", FLOATING_IPS, body() | old, project="demo", headers=headers)

    assert made["ip"] == ip


async def test_floating_ip_is_named_by_its_id_alone_or_by_name_and_project(client: RackUnderTest) -> None:
    """1.6: the texts of this resource."""
    made = await network.add_floating_ip(client)

    both = await client.refused(400, "GET", f"{FLOATING_IPS}/{made['id']}", project="demo")
    alone = await client.refused(400, "GET", f"{FLOATING_IPS}/entry")

    assert both["message"] == "when providing Floating IP as an ID project should not be specified"
    assert alone["message"] == "Floating IP should either be UUID or project should be specified"


async def test_attached_floating_ip_cannot_be_deleted(client: RackUnderTest) -> None:
    """6: 400 until it is detached."""
    await life.create(client, network_interfaces=network.IPV4)
    await network.add_floating_ip(client)
    await network.attach(client)

    error = await client.refused(400, "DELETE", f"{FLOATING_IPS}/entry", project="demo")

    assert error["message"] == "Floating IP cannot be deleted while attached to an instance"
    await network.detach(client)
    await client.must(204, "DELETE", f"{FLOATING_IPS}/entry", project="demo")


async def test_floating_ips_are_for_those_who_manage_instances(client: RackUnderTest) -> None:
    """1.1: a limited collaborator may; a viewer may look; of another silo nothing is found."""
    request = body(auto(type="auto", ip_version="v4"))

    for user, status in (("viewer", 403), ("stranger", 404), ("nobody", 404), ("limited_collaborator", 201)):
        await client.must(status, "POST", FLOATING_IPS, request, project="demo", user=user)
    for user, status in (("viewer", 200), ("stranger", 404), ("nobody", 404)):
        await client.must(status, "GET", f"{FLOATING_IPS}/entry", project="demo", user=user)
    for user, status in (("viewer", 403), ("stranger", 404), ("limited_collaborator", 204)):
        await client.must(status, "DELETE", f"{FLOATING_IPS}/entry", project="demo", user=user)


async def test_description_has_a_column_of_512_characters(client: RackUnderTest) -> None:
    """2.1: a longer one is a 500, and costs no address."""
    request = body(auto(type="auto", ip_version="v4")) | {"description": "x" * 513}

    await client.refused(500, "POST", FLOATING_IPS, request, project="demo")

    assert network.addresses_in_use(client) == 0
