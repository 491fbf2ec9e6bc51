"""Updates of network interfaces: transit IPs and the primary one (semantics 2.4, 3.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

INTERFACES = "/v1/network-interfaces"
OF_NODE = {"instance": "node", "project": "demo"}


async def update(rack: RackUnderTest, status: int, interface: str, **body: Any) -> dict[str, Any]:
    """Update an interface of the instance `node`."""
    answer: dict[str, Any] = await rack.must(status, "PUT", f"{INTERFACES}/{interface}", body, **OF_NODE)
    return answer


async def create_with_two(rack: RackUnderTest, second: dict[str, Any] | None = None, **changes: Any) -> None:
    """Make an instance with interfaces `net0` and `net1`; the second with this `ip_config`, or dual stack."""
    await network.add_subnet(rack, "net1", "10.0.1.0/24")
    params = [network.interface("net0"), network.interface("net1", "net1")]
    if second is not None:
        params[1]["ip_config"] = second
    await life.create(rack, network_interfaces={"type": "create", "params": params}, **changes)


async def test_name_and_description_can_be_changed(client: RackUnderTest) -> None:
    """3.2: what is not given stays."""
    await life.create(client, network_interfaces=network.DUAL_STACK)

    await update(client, 200, "net0", name="first")
    changed = await update(client, 200, "first", description="The first")

    assert (changed["name"], changed["description"]) == ("first", "The first")


async def test_transit_ips_are_always_overwritten(client: RackUnderTest) -> None:
    """3.2: also an update about something else clears them."""
    await life.create(client, network_interfaces=network.DUAL_STACK)

    given = await update(client, 200, "net0", transit_ips=["10.244.0.0/24", "fd00:10:244::/64"])
    kept = await client.must(200, "GET", f"{INTERFACES}/net0", **OF_NODE)
    cleared = await update(client, 200, "net0", description="No transit any more")

    assert given["ip_stack"]["value"]["v4"]["transit_ips"] == ["10.244.0.0/24"]
    assert given["ip_stack"]["value"]["v6"]["transit_ips"] == ["fd00:10:244::/64"]
    assert kept["ip_stack"] == given["ip_stack"]
    assert [stack["transit_ips"] for stack in cleared["ip_stack"]["value"].values()] == [[], []]


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        (["10.0.0.1/24"], "host bits"),
        (["fd00::1/64"], "host bits"),
        (["224.0.0.0/4"], "multicast"),
        (["ff02::1/128"], "multicast"),
        (["127.0.0.0/8"], "loopback"),
        (["::1/128"], "loopback"),
        (["0.0.0.0/32"], "unspecified"),
        (["10.0.0.0/8", "10.1.0.0/16"], "overlaps"),
        (["10.1.0.0/16", "10.1.0.0/16"], "overlaps"),
    ],
)
async def test_transit_ips_that_cannot_be(client: RackUnderTest, blocks: list[str], complaint: str) -> None:
    """2.4: at an update and at creation alike; the refusal names the block, and nothing is changed."""
    await life.create(client, name="node", network_interfaces=network.DUAL_STACK)
    version = "v6" if ":" in blocks[0] else "v4"
    wanted = network.interface("net0", ip_config=network.stack(version, transit_ips=tuple(blocks)))

    at_update = await update(client, 400, "net0", name="changed", transit_ips=blocks)
    creation = {"type": "create", "params": [wanted]}
    at_creation = await life.refuse_create(client, 400, name="other", network_interfaces=creation)

    for error in (at_update, at_creation):
        assert error["error_code"] == "InvalidRequest"
        assert blocks[-1] in error["message"]
        assert complaint in error["message"]
    (interface,) = await network.interfaces_of(client)
    assert interface["name"] == "net0"


async def test_blocks_of_different_families_do_not_overlap(client: RackUnderTest) -> None:
    """2.4: `0.0.0.0/0` and `::/0` together let an interface send and receive for everything."""
    await life.create(client, network_interfaces=network.DUAL_STACK)

    changed = await update(client, 200, "net0", transit_ips=["0.0.0.0/0", "::/0"])

    assert [stack["transit_ips"] for stack in changed["ip_stack"]["value"].values()] == [["0.0.0.0/0"], ["::/0"]]


async def test_transit_ips_need_an_address_of_their_family(client: RackUnderTest) -> None:
    """3.2: an interface without IPv6 has no place for IPv6 blocks."""
    await life.create(client, network_interfaces=network.IPV4)

    error = await update(client, 400, "net0", transit_ips=["fd00::/64"])

    assert "IPv6" in error["message"]
    assert (await update(client, 200, "net0", transit_ips=["10.1.0.0/16"]))["ip_stack"]["type"] == "v4"


async def test_secondary_interface_can_become_the_primary_one(client: RackUnderTest) -> None:
    """3.2: then the other is secondary, and can be deleted; `primary: false` changes nothing."""
    await create_with_two(client)

    await update(client, 200, "net0", primary=False)
    assert [interface["primary"] for interface in await network.interfaces_of(client)] == [True, False]
    changed = await update(client, 200, "net1", primary=True)
    assert changed["primary"] is True
    assert [interface["primary"] for interface in await network.interfaces_of(client)] == [False, True]
    await client.must(204, "DELETE", f"{INTERFACES}/net0", **OF_NODE)


async def test_primary_interface_can_be_made_primary_again(client: RackUnderTest) -> None:
    """3.2: without effect."""
    await create_with_two(client)

    assert (await update(client, 200, "net0", primary=True))["primary"] is True


async def test_new_primary_interface_can_carry_all_external_addresses(client: RackUnderTest) -> None:
    """3.2: it needs the private stack of each external address's version; the source NAT address is one, too."""
    await create_with_two(client, network.stack("v6"))

    error = await update(client, 400, "net1", primary=True, name="changed")

    assert "IPv4" in error["message"]
    found = [(interface["name"], interface["primary"]) for interface in await network.interfaces_of(client)]
    assert found == [("net0", True), ("net1", False)]


async def test_new_primary_interface_needs_no_more_than_that(client: RackUnderTest) -> None:
    """3.2: with IPv4 addresses outside, an interface without IPv6 will do; with an IPv6 one as well it will not."""
    await create_with_two(client, network.stack("v4"))
    await network.add_floating_ip(client, "six", version="v6")
    await network.attach(client, "six")
    refused = await update(client, 400, "net1", primary=True)
    await network.detach(client, "six")

    assert "IPv6" in refused["message"]
    assert (await update(client, 200, "net1", primary=True))["primary"] is True
