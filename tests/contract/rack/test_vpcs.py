"""VPCs and what comes with them (semantics 1.6, 7.1)."""

from __future__ import annotations

import ipaddress

import pytest

from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

VPCS = "/v1/vpcs"
BODY = {"name": "inner", "description": "For the inside", "dns_name": "inner"}


async def test_project_begins_with_the_vpc_default(client: RackUnderTest) -> None:
    """7.1: it is called `default`, and its prefix is a random unique local /48."""
    vpc = await client.must(200, "GET", f"{VPCS}/default", project="demo")

    prefix = ipaddress.IPv6Network(vpc["ipv6_prefix"])
    assert (vpc["name"], vpc["description"], vpc["dns_name"]) == ("default", "Default VPC", "default")
    assert vpc["project_id"] == client.project.id
    assert prefix.prefixlen == 48
    assert prefix.subnet_of(ipaddress.IPv6Network("fd00::/8"))


async def test_default_subnet_is_the_documented_block_and_the_first_64(client: RackUnderTest) -> None:
    """7.1: every VPC gets the subnet `default` with 172.30.0.0/22 and the first /64 of its prefix."""
    vpc = await client.must(200, "GET", f"{VPCS}/default", project="demo")

    (subnet,) = (await client.must(200, "GET", "/v1/vpc-subnets", vpc=vpc["id"]))["items"]

    assert (subnet["name"], subnet["ipv4_block"]) == ("default", "172.30.0.0/22")
    assert subnet["ipv6_block"] == vpc["ipv6_prefix"].replace("/48", "/64")
    assert (subnet["vpc_id"], subnet["custom_router_id"]) == (vpc["id"], None)


async def test_vpc_can_be_made_seen_changed_and_deleted(client: RackUnderTest) -> None:
    """7.1: the life of a VPC; it can be deleted when its subnet has been."""
    made = await client.must(201, "POST", VPCS, BODY, project="demo")
    changed = await client.must(200, "PUT", f"{VPCS}/{made['id']}", {"name": "outer", "dns_name": "out"})
    listed = await client.must(200, "GET", VPCS, project="demo")

    assert (changed["id"], changed["name"], changed["dns_name"]) == (made["id"], "outer", "out")
    assert changed["description"] == "For the inside"
    assert [vpc["name"] for vpc in listed["items"]] == ["default", "outer"]
    error = await client.refused(400, "DELETE", f"{VPCS}/outer", project="demo")
    assert error["message"] == "VPC cannot be deleted while VPC Subnets exist"
    await client.must(204, "DELETE", "/v1/vpc-subnets/default", vpc="outer", project="demo")
    await client.must(204, "DELETE", f"{VPCS}/outer", project="demo")
    gone = await client.refused(404, "GET", f"{VPCS}/{made['id']}")
    assert gone["message"] == f'not found: vpc with id "{made["id"]}"'


async def test_deleted_vpc_leaves_nothing_behind(client: RackUnderTest) -> None:
    """7.1: router, routes, gateway and attached pools go with it."""
    state = client.state
    tables = (state.vpcs, state.subnets, state.routers, state.routes, state.gateways, state.gateway_ip_pools)
    before = [len(table) for table in tables]
    made = await client.must(201, "POST", VPCS, BODY, project="demo")
    await client.must(204, "DELETE", "/v1/vpc-subnets/default", vpc=made["id"])
    await client.must(204, "DELETE", f"{VPCS}/{made['id']}")

    assert [len(table) for table in tables] == before


async def test_project_without_its_vpc_can_be_deleted(client: RackUnderTest) -> None:
    """7.1: to delete a project the subnet `default` and the VPC `default` have to go first."""
    await client.must(201, "POST", "/v1/projects", {"name": "fresh", "description": ""})
    await client.must(204, "DELETE", "/v1/vpc-subnets/default", vpc="default", project="fresh")
    await client.must(204, "DELETE", f"{VPCS}/default", project="fresh")

    await client.must(204, "DELETE", "/v1/projects/fresh")


async def test_prefix_of_a_vpc_can_be_chosen(client: RackUnderTest) -> None:
    """7.1: a unique local /48 of one's own; the subnet `default` is its first /64."""
    await client.must(201, "POST", VPCS, BODY | {"ipv6_prefix": "fd12:3456:789a::/48"}, project="demo")

    subnet = await client.must(200, "GET", "/v1/vpc-subnets/default", vpc="inner", project="demo")
    assert subnet["ipv6_block"] == "fd12:3456:789a::/64"


@pytest.mark.parametrize("prefix", ["fd12:3456:789a::/56", "2001:db8::/48"])
async def test_prefix_of_a_vpc_is_a_unique_local_48(client: RackUnderTest, prefix: str) -> None:
    """7.1: another length or another range is refused, and the refusal names the value."""
    error = await client.refused(400, "POST", VPCS, BODY | {"ipv6_prefix": prefix}, project="demo")

    assert error["error_code"] == "InvalidRequest"
    assert prefix in error["message"]


async def test_names_of_vpcs_are_unique_in_a_project(client: RackUnderTest) -> None:
    """2.1: a taken name is refused at creation and at renaming; nothing is left of the attempt."""
    await client.must(201, "POST", VPCS, BODY, project="demo")
    routers = len(client.state.routers)

    for method, path, body in (("POST", VPCS, BODY), ("PUT", f"{VPCS}/default", {"name": "inner"})):
        error = await client.refused(400, method, path, body, project="demo")
        assert (error["error_code"], error["message"]) == ("ObjectAlreadyExists", 'already exists: vpc "inner"')
    assert len(client.state.routers) == routers


async def test_vpc_is_named_by_its_id_alone_or_by_name_and_project(client: RackUnderTest) -> None:
    """1.6: id and project, or a name alone, are refused with the texts of this resource."""
    vpc = await client.must(200, "GET", f"{VPCS}/default", project="demo")

    both = await client.refused(400, "GET", f"{VPCS}/{vpc['id']}", project="demo")
    alone = await client.refused(400, "GET", f"{VPCS}/default")

    assert both["message"] == "when providing vpc as an ID, project should not be specified"
    assert alone["message"] == "vpc should either be an ID or project should be specified"


async def test_limited_collaborator_may_see_but_not_change_networks(client: RackUnderTest) -> None:
    """1.1: VPCs, subnets and firewall rules are not for a limited collaborator; a collaborator may change them."""
    query = {"vpc": "default", "project": "demo"}
    subnet = {"name": "more", "description": "", "ipv4_block": "10.0.0.0/24"}
    for path, options in ((VPCS, {"project": "demo"}), ("/v1/vpc-subnets", query), ("/v1/vpc-firewall-rules", query)):
        await client.must(200, "GET", path, user="limited_collaborator", **options)

    for user, status in (("limited_collaborator", 403), ("viewer", 403), ("stranger", 404), ("nobody", 404)):
        await client.refused(status, "POST", VPCS, BODY, project="demo", user=user)
        await client.refused(status, "PUT", f"{VPCS}/default", {"name": "mine"}, project="demo", user=user)
        await client.refused(status, "DELETE", f"{VPCS}/default", project="demo", user=user)
        await client.refused(status, "POST", "/v1/vpc-subnets", subnet, user=user, **query)
        await client.refused(status, "DELETE", "/v1/vpc-subnets/default", user=user, **query)
        await client.refused(status, "PUT", "/v1/vpc-firewall-rules", {"rules": []}, user=user, **query)
    await client.must(201, "POST", VPCS, BODY, project="demo", user="collaborator")
    assert (await client.must(200, "GET", f"{VPCS}/default", project="demo"))["name"] == "default"


async def test_gateway_has_the_default_pools_of_the_silo(client: RackUnderTest) -> None:
    """7.1: the gateway `default` is attached to them as `default-v4` and `default-v6`."""
    query = {"vpc": "default", "project": "demo"}
    (gateway,) = (await client.must(200, "GET", "/v1/internet-gateways", **query))["items"]
    viewed = await client.must(200, "GET", f"/v1/internet-gateways/{gateway['id']}")
    attached = await client.must(200, "GET", "/v1/internet-gateway-ip-pools", gateway="default", **query)

    assert viewed == gateway
    assert gateway["name"] == "default"
    assert {pool["name"]: pool["ip_pool_id"] for pool in attached["items"]} == {
        "default-v4": client.pool_v4.id,
        "default-v6": client.pool_v6.id,
    }
    assert {pool["internet_gateway_id"] for pool in attached["items"]} == {gateway["id"]}


async def test_system_router_has_the_default_routes_and_one_for_each_subnet(client: RackUnderTest) -> None:
    """7.1: `default-v4` and `default-v6` lead to the gateway; a subnet's route comes, is renamed and goes with it."""
    query = {"vpc": "default", "project": "demo"}
    await network.add_subnet(client, "more", "10.0.0.0/24")
    await client.must(200, "PUT", "/v1/vpc-subnets/more", {"name": "less"}, **query)
    (router,) = (await client.must(200, "GET", "/v1/vpc-routers", **query))["items"]
    vpc = await client.must(200, "GET", f"{VPCS}/default", project="demo")
    routes = (await client.must(200, "GET", "/v1/vpc-router-routes", router="system", **query))["items"]

    assert (router["id"], router["name"], router["kind"]) == (vpc["system_router_id"], "system", "system")
    assert await client.must(200, "GET", "/v1/vpc-routers/system", **query) == router
    targets = {route["name"]: (route["kind"], route["destination"]["value"], route["target"]) for route in routes}
    gateway = {"type": "internet_gateway", "value": "default"}
    assert targets == {
        "default-v4": ("default", "0.0.0.0/0", gateway),
        "default-v6": ("default", "::/0", gateway),
        "default": ("vpc_subnet", "default", {"type": "subnet", "value": "default"}),
        "more": ("vpc_subnet", "less", {"type": "subnet", "value": "less"}),
    }
    await client.must(204, "DELETE", "/v1/vpc-subnets/less", **query)
    left = (await client.must(200, "GET", "/v1/vpc-router-routes", router=router["id"]))["items"]
    assert "more" not in {route["name"] for route in left}


async def test_subnet_may_bear_the_name_of_a_default_route(client: RackUnderTest) -> None:
    """7.1: the route of a subnet then has another name, and still goes with the subnet."""
    query = {"vpc": "default", "project": "demo"}
    subnet = await network.add_subnet(client, "default-v4", "10.0.0.0/24")
    route = await client.must(200, "GET", f"/v1/vpc-router-routes/subnet-{subnet['id']}", router="system", **query)

    assert route["target"] == {"type": "subnet", "value": "default-v4"}
    await client.must(204, "DELETE", "/v1/vpc-subnets/default-v4", **query)
    await client.refused(404, "GET", f"/v1/vpc-router-routes/{route['id']}")
    default = await client.must(200, "GET", "/v1/vpc-router-routes/default-v4", router="system", **query)
    assert default["kind"] == "default"


async def test_routes_routers_and_gateways_are_found_as_everything_in_a_vpc(client: RackUnderTest) -> None:
    """1.6: an id stands alone, a name needs what it is unique in; another silo's are not found."""
    query = {"vpc": "default", "project": "demo"}
    route = await client.must(200, "GET", "/v1/vpc-router-routes/default-v4", router="system", **query)
    router, gateway = route["vpc_router_id"], client.state.gateways.of(client.state.vpcs.of(client.project.id)[0].id)[0]

    assert await client.must(200, "GET", f"/v1/vpc-router-routes/{route['id']}") == route
    for path, scope in (
        (f"/v1/vpc-router-routes/{route['id']}", {"router": router}),
        (f"/v1/vpc-routers/{router}", query),
        (f"/v1/internet-gateways/{gateway.id}", query),
    ):
        error = await client.refused(400, "GET", path, **scope)
        assert "should not be specified" in error["message"]
        missing = await client.refused(404, "GET", path, user="stranger")
        assert missing["error_code"] == "ObjectNotFound"
    for path in ("/v1/vpc-router-routes/default-v4", "/v1/vpc-routers/system", "/v1/internet-gateways/default"):
        error = await client.refused(400, "GET", path)
        assert "should be specified" in error["message"]


async def test_two_racks_of_one_seed_have_the_same_prefixes(rack: RackUnderTest) -> None:
    """7.1: randomness is the rack's own, so a run repeats."""
    twin = RackUnderTest()
    vpcs = [under_test.state.vpcs.of(under_test.project.id)[0] for under_test in (rack, twin)]

    assert vpcs[0].ipv6_prefix == vpcs[1].ipv6_prefix
