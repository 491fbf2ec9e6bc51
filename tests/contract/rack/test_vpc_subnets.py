"""Subnets of VPCs, and the listing of the NICs in them (semantics 1.5, 1.6, 7.3)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

SUBNETS = "/v1/vpc-subnets"
IN_DEFAULT = {"vpc": "default", "project": "demo"}


def body(block: str, **changes: Any) -> dict[str, Any]:
    """A request for a subnet."""
    return {"name": "more", "description": "", "ipv4_block": block} | changes


async def test_subnet_can_be_made_seen_changed_and_deleted(client: RackUnderTest) -> None:
    """7.3: the life of a subnet; its blocks never change."""
    made = await client.must(201, "POST", SUBNETS, body("10.0.0.0/24"), **IN_DEFAULT)
    changed = await client.must(200, "PUT", f"{SUBNETS}/{made['id']}", {"name": "less", "description": "Now less"})
    listed = await client.must(200, "GET", SUBNETS, **IN_DEFAULT)

    assert (changed["name"], changed["description"]) == ("less", "Now less")
    assert (changed["ipv4_block"], changed["ipv6_block"]) == (made["ipv4_block"], made["ipv6_block"])
    assert [subnet["name"] for subnet in listed["items"]] == ["default", "less"]
    await client.must(204, "DELETE", f"{SUBNETS}/less", **IN_DEFAULT)
    gone = await client.refused(404, "GET", f"{SUBNETS}/less", **IN_DEFAULT)
    assert gone["message"] == 'not found: vpc-subnet with name "less"'


async def test_subnet_gets_a_random_64_of_the_vpcs_prefix(client: RackUnderTest) -> None:
    """7.3: without a block of its own."""
    vpc = await client.must(200, "GET", "/v1/vpcs/default", project="demo")

    made = await client.must(201, "POST", SUBNETS, body("10.0.0.0/24"), **IN_DEFAULT)

    block = ipaddress.IPv6Network(made["ipv6_block"])
    assert block.prefixlen == 64
    assert block.subnet_of(ipaddress.IPv6Network(vpc["ipv6_prefix"]))


@pytest.mark.parametrize("block", ["11.0.0.0/24", "172.32.0.0/24", "100.64.0.0/24", "127.0.0.0/24"])
async def test_ipv4_block_is_private(client: RackUnderTest, block: str) -> None:
    """7.3: out of the ranges of RFC 1918."""
    error = await client.refused(400, "POST", SUBNETS, body(block), **IN_DEFAULT)

    assert error["error_code"] == "InvalidRequest"
    assert error["message"] == "VPC Subnet IPv4 address ranges must be from a private range"


@pytest.mark.parametrize(("block", "status"), [("10.0.0.0/8", 201), ("10.0.0.0/26", 201), ("10.0.0.0/27", 400)])
async def test_prefix_of_an_ipv4_block_is_8_to_26(client: RackUnderTest, block: str, status: int) -> None:
    """7.3: limits included; the refusal names block and limits."""
    answer = await client.must(status, "POST", SUBNETS, body(block), **IN_DEFAULT)

    assert status == 201 or all(part in answer["message"] for part in (block, "8", "26"))


@pytest.mark.parametrize("block", ["172.30.0.0/24", "172.30.2.0/23", "172.16.0.0/12"])
async def test_blocks_of_a_vpc_do_not_overlap(client: RackUnderTest, block: str) -> None:
    """7.3: 400 for a block within, equal to or around another subnet's; other VPCs do not matter."""
    error = await client.refused(400, "POST", SUBNETS, body(block), **IN_DEFAULT)

    assert error["message"] == f"IP address range '{block}' conflicts with an existing subnet"
    await client.must(201, "POST", "/v1/vpcs", {"name": "inner", "description": "", "dns_name": "i"}, project="demo")


async def test_ipv6_block_is_a_64_of_the_vpc_that_no_subnet_has(client: RackUnderTest) -> None:
    """7.3: others are refused; a free one is taken as it is."""
    vpc = await client.must(200, "GET", "/v1/vpcs/default", project="demo")
    start = int(ipaddress.IPv6Network(vpc["ipv6_prefix"]).network_address)
    first, second = (str(ipaddress.IPv6Network((start + number * 2**64, 64))) for number in (0, 1))

    taken = await client.refused(400, "POST", SUBNETS, body("10.0.0.0/24", ipv6_block=first), **IN_DEFAULT)
    foreign = await client.refused(400, "POST", SUBNETS, body("10.0.0.0/24", ipv6_block="fd00::/64"), **IN_DEFAULT)
    made = await client.must(201, "POST", SUBNETS, body("10.0.0.0/24", ipv6_block=second), **IN_DEFAULT)

    assert taken["message"] == f"IP address range '{first}' conflicts with an existing subnet"
    assert "fd00::/64" in foreign["message"]
    assert made["ipv6_block"] == second


async def test_names_of_subnets_are_unique_in_a_vpc(client: RackUnderTest) -> None:
    """2.1: and free in another VPC."""
    error = await client.refused(400, "POST", SUBNETS, body("10.0.0.0/24", name="default"), **IN_DEFAULT)

    assert error["error_code"] == "ObjectAlreadyExists"
    assert error["message"] == 'already exists: vpc-subnet "default"'


async def test_subnet_is_named_by_its_id_alone_or_by_name_and_vpc(client: RackUnderTest) -> None:
    """1.6: the texts of this resource; the VPC in the query follows the rules of VPCs."""
    subnet = await client.must(200, "GET", f"{SUBNETS}/default", **IN_DEFAULT)

    both = await client.refused(400, "GET", f"{SUBNETS}/{subnet['id']}", vpc="default", project="demo")
    alone = await client.refused(400, "GET", f"{SUBNETS}/default")
    without_project = await client.refused(400, "GET", f"{SUBNETS}/default", vpc="default")

    assert both["message"] == "when providing subnet as an ID, vpc and project should not be specified"
    assert alone["message"] == "subnet should either be an ID or vpc should be specified"
    assert without_project["message"] == "vpc should either be an ID or project should be specified"
    assert await client.must(200, "GET", f"{SUBNETS}/default", vpc=subnet["vpc_id"]) == subnet
    await client.refused(404, "GET", f"{SUBNETS}/{subnet['id']}", user="stranger")


async def test_subnet_with_interfaces_cannot_be_deleted(client: RackUnderTest) -> None:
    """7.3: 400 as long as there is a NIC in it."""
    await life.create(client, network_interfaces=network.DUAL_STACK)

    error = await client.refused(400, "DELETE", f"{SUBNETS}/default", **IN_DEFAULT)

    assert error["message"] == "VPC Subnet cannot be deleted while network interfaces in the subnet exist"
    await client.must(204, "DELETE", life.path())
    await client.must(204, "DELETE", f"{SUBNETS}/default", **IN_DEFAULT)


async def test_only_a_custom_router_could_be_attached(client: RackUnderTest) -> None:
    """7.1: the system router holds for all subnets and cannot be attached to one; others are not found."""
    vpc = client.state.vpcs.of(client.project.id)[0]
    wanted = body("10.0.0.0/24", custom_router=vpc.system_router)

    refused = await client.refused(400, "POST", SUBNETS, wanted, **IN_DEFAULT)
    missing = await client.refused(404, "PUT", f"{SUBNETS}/default", {"custom_router": "mine"}, **IN_DEFAULT)

    assert "custom_router" in refused["message"]
    assert missing["message"] == 'not found: vpc-router with name "mine"'


async def _names(client: RackUnderTest, **query: Any) -> list[list[str]]:
    """The names on each page of the NICs of the default subnet."""
    pages: list[list[str]] = []
    token: dict[str, Any] = {}
    while True:
        page = await client.must(200, "GET", f"{SUBNETS}/default/network-interfaces", **IN_DEFAULT, **query, **token)
        if not page["items"]:
            assert page["next_page"] is None
            return pages
        pages.append([interface["name"] for interface in page["items"]])
        token = {"page_token": page["next_page"]}


async def _add_instance(client: RackUnderTest, name: str, interface: str) -> None:
    attachment = {"type": "create", "params": [network.interface(interface)]}
    await life.create(client, name=name, network_interfaces=attachment)


async def test_interfaces_of_a_subnet_are_listed_by_id_without_gaps(client: RackUnderTest) -> None:
    """1.5: whatever the size of the pages, in the order of ids every NIC comes once."""
    for number in range(7):
        await life.create(client, name=f"node{number}", network_interfaces=network.DUAL_STACK)
    every = {interface.id for interface in client.state.network_interfaces}

    for limit in (1, 2, 3, 7, 100):
        seen: list[str] = []
        query: dict[str, Any] = {"limit": limit, "sort_by": "id_ascending"}
        path = f"{SUBNETS}/default/network-interfaces"
        page = await client.must(200, "GET", path, **IN_DEFAULT, **query)
        while page["items"]:
            seen += [interface["id"] for interface in page["items"]]
            page = await client.must(200, "GET", path, **query, page_token=page["next_page"])
        assert seen == sorted(every)


async def test_equal_names_across_the_edge_of_a_page_are_passed_over(client: RackUnderTest) -> None:
    """1.5: the place in a list by name is a bare name, so of NICs that share it those behind a page's edge are lost."""
    for name, interface in (("a", "net0"), ("b", "net0"), ("c", "net0"), ("d", "net1"), ("e", "aaa")):
        await _add_instance(client, name, interface)

    assert await _names(client) == [["aaa", "net0", "net0", "net0", "net1"]]
    assert await _names(client, limit=2) == [["aaa", "net0"], ["net1"]]
    assert await _names(client, limit=2, sort_by="name_descending") == [["net1", "net0"], ["aaa"]]


async def test_listing_follows_renaming_and_deletion(client: RackUnderTest) -> None:
    """7.3: a NIC stands in the list under its present name, and no longer when it is gone."""
    await _add_instance(client, "a", "net0")
    await _add_instance(client, "b", "net1")
    in_a = {"instance": "a", "project": "demo"}
    await client.must(200, "PUT", "/v1/network-interfaces/net0", {"name": "zzz"}, **in_a)
    assert await _names(client) == [["net1", "zzz"]]

    await client.must(204, "DELETE", life.path("b"))
    assert await _names(client) == [["zzz"]]
