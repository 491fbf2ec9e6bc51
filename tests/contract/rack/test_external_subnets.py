"""External subnets (semantics 3.2, 8)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from capox.rack import external_prefixes, instance_states, records
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

SUBNETS = "/v1/external-subnets"
ATTACH = f"{SUBNETS}/routed/attach?project=demo"
DETACH = f"{SUBNETS}/routed/detach?project=demo"
NODE = {"instance": "node"}


@pytest.fixture(autouse=True)
def pool(rack: RackUnderTest) -> records.SubnetPool:
    """The silo's default pool of IPv4 prefixes, of two networks."""
    return add_pool(rack, "prefixes", "203.0.113.0/24", "192.0.2.0/28", is_default=True)


def add_pool(rack: RackUnderTest, name: str, *networks: str, is_default: bool = False) -> records.SubnetPool:
    """A pool of prefixes, linked to the silo `lab`."""
    blocks = [ipaddress.ip_network(block) for block in networks]
    return rack.state.subnet_pools.insert(
        records.SubnetPool(
            **rack.state.identity(name, ""),
            version="v4" if blocks[0].version == 4 else "v6",
            networks=blocks,
            links={rack.silo.id: is_default},
        )
    )


def body(allocator: dict[str, Any], name: str = "routed") -> dict[str, Any]:
    """A request for an external subnet."""
    return {"name": name, "description": "", "allocator": allocator}


def auto(length: int, **selector: Any) -> dict[str, Any]:
    """An allocator of the lowest free prefix of a length."""
    return {"type": "auto", "prefix_length": length} | ({"pool_selector": selector} if selector else {})


def explicit(subnet: str) -> dict[str, Any]:
    """An allocator of this prefix."""
    return {"type": "explicit", "subnet": subnet}


async def create(rack: RackUnderTest, allocator: dict[str, Any], name: str = "routed") -> dict[str, Any]:
    """Make an external subnet in the project `demo`."""
    made: dict[str, Any] = await rack.must(201, "POST", SUBNETS, body(allocator, name), project="demo")
    return made


async def view(rack: RackUnderTest, name: str = "routed") -> dict[str, Any]:
    """An external subnet as it is now."""
    found: dict[str, Any] = await rack.must(200, "GET", f"{SUBNETS}/{name}", project="demo")
    return found


async def test_external_subnet_can_be_made_seen_changed_and_deleted(
    client: RackUnderTest, pool: records.SubnetPool
) -> None:
    """8: the life of an external subnet."""
    made = await create(client, auto(28))
    changed = await client.must(200, "PUT", f"{SUBNETS}/{made['id']}", {"description": "Routed"})
    listed = await client.must(200, "GET", SUBNETS, project="demo")

    assert (made["subnet"], made["subnet_pool_id"], made["instance_id"]) == ("192.0.2.0/28", pool.id, None)
    assert listed["items"] == [changed]
    await client.must(204, "DELETE", f"{SUBNETS}/routed", project="demo")
    error = await client.refused(404, "GET", f"{SUBNETS}/routed", project="demo")
    assert error["message"] == 'not found: external-subnet with name "routed"'


async def test_lowest_free_prefix_of_the_length_is_taken(client: RackUnderTest) -> None:
    """8: aligned to its length, over all networks of the pool; what comes back is the next again."""
    found = {name: (await create(client, auto(length), name))["subnet"] for name, length in (("a", 30), ("b", 29))}
    found |= {name: (await create(client, auto(length), name))["subnet"] for name, length in (("c", 25), ("d", 30))}
    await client.must(204, "DELETE", f"{SUBNETS}/a", project="demo")
    found["e"] = (await create(client, auto(30), "e"))["subnet"]

    assert found == {
        "a": "192.0.2.0/30",
        "b": "192.0.2.8/29",
        "c": "203.0.113.0/25",
        "d": "192.0.2.4/30",
        "e": "192.0.2.0/30",
    }
    members = {subnet.pool_member for subnet in client.state.external_subnets}
    assert len(members) == 2


async def test_prefix_can_be_chosen(client: RackUnderTest) -> None:
    """8: when a linked pool has it and nothing overlaps it."""
    assert (await create(client, explicit("203.0.113.64/26")))["subnet"] == "203.0.113.64/26"

    for subnet in ("203.0.113.64/26", "203.0.113.0/25", "203.0.113.80/30"):
        overlap = await client.refused(400, "POST", SUBNETS, body(explicit(subnet), "b"), project="demo")
        assert "overlaps" in overlap["message"]
    for subnet in ("198.51.100.0/24", "203.0.112.0/23", "2001:db8::/64"):
        foreign = await client.refused(400, "POST", SUBNETS, body(explicit(subnet), "b"), project="demo")
        assert subnet in foreign["message"]


async def test_pool_without_room_is_a_bad_request(client: RackUnderTest) -> None:
    """8: 400, not 507; a prefix wider than every network never fits."""
    await create(client, auto(24), "all")

    for length in (24, 20, 33):
        error = await client.refused(400, "POST", SUBNETS, body(auto(length)), project="demo")
        assert (error["error_code"], f"/{length}" in error["message"]) == ("InvalidRequest", True)


async def test_pool_has_to_be_named_when_there_is_no_default(client: RackUnderTest, pool: records.SubnetPool) -> None:
    """8: or a version, when there are two defaults; an unknown pool is not found."""
    other = add_pool(client, "prefixes-v6", "2001:db8:1::/48", is_default=True)
    two = await client.refused(400, "POST", SUBNETS, body(auto(28)), project="demo")
    assert "ip_version" in two["message"]
    by_version = await create(client, auto(64, type="auto", ip_version="v6"), "six")
    assert by_version["subnet"] == "2001:db8:1::/64"
    pool.links = other.links = {client.silo.id: False}

    none = await client.refused(400, "POST", SUBNETS, body(auto(28)), project="demo")
    unknown = await client.refused(404, "POST", SUBNETS, body(auto(28, type="explicit", pool="x")), project="demo")

    assert none["message"] == "Must specify a subnet pool, as there is no linked default pool for the current silo"
    assert unknown["message"] == 'not found: subnet-pool with name "x"'
    assert (await create(client, auto(28, type="explicit", pool="prefixes")))["subnet"] == "192.0.2.0/28"


async def test_taken_name_costs_no_prefix(client: RackUnderTest, pool: records.SubnetPool) -> None:
    """8: 400 ObjectAlreadyExists."""
    await create(client, auto(30))

    error = await client.refused(400, "POST", SUBNETS, body(auto(30)), project="demo")

    assert error["message"] == 'already exists: external-subnet "routed"'
    books = [external_prefixes.book_of(client.state, pool, member) for member in pool.networks]
    assert sum(book.taken_count for book in books) == 4


async def test_external_subnet_is_named_by_its_id_alone_or_by_name_and_project(client: RackUnderTest) -> None:
    """1.6: the texts of this resource."""
    made = await create(client, auto(28))

    both = await client.refused(400, "GET", f"{SUBNETS}/{made['id']}", project="demo")
    alone = await client.refused(400, "GET", f"{SUBNETS}/routed")

    assert both["message"] == "when providing external subnet as an ID project should not be specified"
    assert alone["message"] == "external subnet should either be a UUID or project should be specified"


async def test_external_subnet_is_attached_listed_and_detached(client: RackUnderTest) -> None:
    """8: 202 each; the list of an instance is in one piece."""
    await create(client, auto(28))
    instance = await life.create(client, network_interfaces=network.IPV4)

    attached = await client.must(202, "POST", ATTACH, NODE)
    again = await client.must(202, "POST", ATTACH, {"instance": instance["id"]})
    page = await client.must(200, "GET", life.path(act="external-subnets"))

    assert attached["instance_id"] == again["instance_id"] == instance["id"]
    assert (page["items"], page["next_page"]) == ([await view(client)], None)
    error = await client.refused(400, "DELETE", f"{SUBNETS}/routed", project="demo")
    assert error["message"] == (
        "Cannot delete external subnet while it is attached to an instance. Detach it and try again."
    )
    await client.must(202, "POST", DETACH)
    assert (await view(client))["instance_id"] is None
    assert (await client.must(200, "GET", life.path(act="external-subnets")))["items"] == []


async def test_detaching_what_is_not_attached_is_refused(client: RackUnderTest) -> None:
    """8: unlike a floating IP's."""
    await create(client, auto(28))

    error = await client.refused(400, "POST", DETACH)

    assert error["message"] == "External subnet is not attached to an instance"


async def test_attached_external_subnet_does_not_move(client: RackUnderTest) -> None:
    """8: nor does it go to another project's instance, or to one whose primary interface lacks the version."""
    await create(client, auto(28))
    await life.create(client, network_interfaces=network.IPV4)
    await life.create(client, name="other", network_interfaces=network.IPV4)
    await life.create(client, name="six", network_interfaces=network.IPV6)
    await client.must(201, "POST", "/v1/projects", {"name": "away", "description": ""})
    foreign = await client.must(201, "POST", "/v1/instances?project=away", life.MINIMAL)

    lacking = await client.refused(400, "POST", ATTACH, {"instance": "six"})
    project = await client.refused(400, "POST", ATTACH, {"instance": foreign["id"]})
    await client.must(202, "POST", ATTACH, NODE)
    move = await client.refused(400, "POST", ATTACH, {"instance": "other"})

    assert "IPv4" in lacking["message"]
    assert project["message"] == "External subnet and instance must be in the same project"
    assert move["message"] == "External subnets cannot be attached to one instance while still attached to another"


async def test_instance_has_at_most_32_external_subnets(client: RackUnderTest) -> None:
    """2.2: the 33rd is refused."""
    await life.create(client, network_interfaces=network.IPV4)
    for number in range(33):
        await create(client, auto(32), f"ip{number}")
    for number in range(32):
        await client.must(202, "POST", f"{SUBNETS}/ip{number}/attach", NODE, project="demo")

    error = await client.refused(400, "POST", f"{SUBNETS}/ip32/attach", NODE, project="demo")

    assert "32" in error["message"]


@pytest.mark.parametrize("act", ["attach", "detach"])
@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 202), ("starting", 503), ("running", 202), ("rebooting", 202), ("stopping", 503), ("failed", 400)],
)
async def test_when_an_external_subnet_can_be_attached_and_detached(
    client: RackUnderTest, act: str, state: str, status: int
) -> None:
    """8: the rules of floating IPs."""
    await create(client, auto(28))
    instance = await life.create_in(client, state, network_interfaces=network.IPV4)
    if act == "detach":
        subnet = client.state.external_subnets.by_name(client.project.id, "routed")
        assert subnet is not None
        external_prefixes.attach(client.state, subnet, instance)

    answer = await client.must(status, "POST", ATTACH if act == "attach" else DETACH, NODE)

    if status == 400:
        assert "in failed state" in answer["message"]
    attached = (await view(client))["instance_id"] is not None
    assert attached == ((act == "attach") == (status == 202))


async def test_external_subnet_outlives_its_instance(client: RackUnderTest) -> None:
    """4.6: detached."""
    await create(client, auto(28))
    await life.create(client, network_interfaces=network.IPV4)
    await client.must(202, "POST", ATTACH, NODE)

    await client.must(204, "DELETE", life.path())

    assert (await view(client))["instance_id"] is None
    await client.must(204, "DELETE", f"{SUBNETS}/routed", project="demo")


async def test_operations_under_way_and_unreachable_sleds_are_as_with_floating_ips(client: RackUnderTest) -> None:
    """8: 503 for a second operation, and for a sled that does not answer; an instance that goes is not found."""
    await create(client, auto(28))
    await life.create_running(client, network_interfaces=network.IPV4)
    instance_states.lose_sled(client.state, life.sled_of(client))
    await client.refused(503, "POST", ATTACH, NODE)
    assert (await view(client))["instance_id"] is None
    await life.create(client, name="other", network_interfaces=network.IPV4)
    under_way = await network.begin(client, "POST", ATTACH, {"instance": "other"})
    await client.refused(503, "POST", ATTACH, {"instance": "other"})
    await client.refused(503, "POST", DETACH)
    await client.must(204, "DELETE", life.path("other"))

    await life.finish(client, under_way)

    assert under_way.result().status_code == 404
    assert (await view(client))["instance_id"] is None
