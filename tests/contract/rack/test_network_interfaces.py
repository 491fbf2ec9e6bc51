"""Network interfaces of instances: how they come and go (semantics 2.2, 3.2, 4.3, 7.3)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from capox.rack.interfaces import INTERFACES_MAXIMUM
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

INTERFACES = "/v1/network-interfaces"
OF_NODE = {"instance": "node", "project": "demo"}


def create(*params: dict[str, Any]) -> dict[str, Any]:
    """An attachment of these interfaces."""
    return {"type": "create", "params": list(params)}


async def add(rack: RackUnderTest, status: int, params: dict[str, Any], instance: str = "node") -> dict[str, Any]:
    """Add an interface to an instance that is there."""
    answer: dict[str, Any] = await rack.must(status, "POST", INTERFACES, params, instance=instance, project="demo")
    return answer


async def add_subnets(rack: RackUnderTest, count: int) -> None:
    """Make subnets `net1` to `net<count>`."""
    for number in range(1, count + 1):
        await network.add_subnet(rack, f"net{number}", f"10.0.{number}.0/24")


@pytest.mark.parametrize(
    ("kind", "stacks"),
    [("default_ipv4", {"v4"}), ("default_ipv6", {"v6"}), ("default_dual_stack", {"v4", "v6"})],
)
async def test_default_interface_is_net0_in_the_default_subnet(
    client: RackUnderTest, kind: str, stacks: set[str]
) -> None:
    """4.3: primary, described as such, with the first address that no NIC is kept from: .5."""
    await life.create(client, network_interfaces={"type": kind})

    (interface,) = await network.interfaces_of(client)
    outer, inner = interface["ip_stack"]["type"], interface["ip_stack"]["value"]
    found = inner if outer == "dual_stack" else {outer: inner}
    assert interface["name"] == "net0"
    assert interface["description"] == "default primary interface for node"
    assert interface["primary"] is True
    assert set(found) == stacks
    if "v4" in stacks:
        assert found["v4"] == {"ip": "172.30.0.5", "transit_ips": []}
    if "v6" in stacks:
        assert int(ipaddress.ip_address(found["v6"]["ip"])) % 2**64 == 5


async def test_absent_field_means_the_default_dual_stack_interface(client: RackUnderTest) -> None:
    """2.2: of the newest version of the API."""
    body = {key: value for key, value in life.MINIMAL.items() if key != "network_interfaces"}

    await client.must(201, "POST", life.INSTANCES, body)

    (interface,) = await network.interfaces_of(client)
    assert interface["ip_stack"]["type"] == "dual_stack"


async def test_older_clients_get_an_ipv4_interface(client: RackUnderTest) -> None:
    """1.2: before dual stack `default` was IPv4, and an interface to be created could have an `ip`."""
    headers = {"api-version": "2026010100.0.0"}
    body = life.MINIMAL | {"network_interfaces": {"type": "default"}}
    await client.must(201, "POST", life.INSTANCES, body, headers=headers)
    await add_subnets(client, 1)
    params = network.interface("second", "net1", ip="10.0.1.77")

    await client.must(201, "POST", INTERFACES, params, headers=headers, **OF_NODE)

    default, second = await network.interfaces_of(client)
    assert default["ip_stack"]["type"] == "v4"
    assert second["ip_stack"] == {"type": "v4", "value": {"ip": "10.0.1.77", "transit_ips": []}}


async def test_none_is_no_interface(client: RackUnderTest) -> None:
    """4.3: and no address for source NAT either."""
    await life.create(client, network_interfaces={"type": "none"})

    assert await network.interfaces_of(client) == []
    assert await network.external_ips_of(client) == []


@pytest.mark.parametrize("gone", ["subnet", "vpc"])
async def test_default_interface_needs_the_default_network(client: RackUnderTest, gone: str) -> None:
    """4.3: 404 for the VPC or the subnet `default`, and the creation unwinds."""
    await client.must(204, "DELETE", "/v1/vpc-subnets/default", vpc="default", project="demo")
    if gone == "vpc":
        await client.must(204, "DELETE", "/v1/vpcs/default", project="demo")

    error = await life.refuse_create(client, 404, network_interfaces=network.DUAL_STACK)

    resource = {"subnet": "vpc-subnet", "vpc": "vpc"}[gone]
    assert error["message"] == f'not found: {resource} with name "default"'


async def test_first_interface_of_a_list_is_the_primary_one(client: RackUnderTest) -> None:
    """4.3: the others are secondary, in the order of the list; without `ip_config` each is dual stack."""
    await add_subnets(client, 2)
    wanted = [network.interface(f"nic-{letter}", f"net{number}") for letter, number in (("z", 1), ("a", 2))]

    await life.create(client, network_interfaces=create(*wanted))

    found = await network.interfaces_of(client)
    assert [(interface["name"], interface["primary"]) for interface in found] == [("nic-a", False), ("nic-z", True)]
    assert {interface["ip_stack"]["type"] for interface in found} == {"dual_stack"}
    slots = {interface.name: interface.slot for interface in client.state.network_interfaces}
    assert slots == {"nic-z": 0, "nic-a": 1}


async def test_addresses_are_handed_out_lowest_first_and_come_back(client: RackUnderTest) -> None:
    """7.3: .5, .6, .7; a freed one is the next again, and an explicit one is passed over."""
    for name in ("a", "b", "c"):
        await life.create(client, name=name, network_interfaces=network.IPV4)
    await client.must(204, "DELETE", life.path("b"))
    explicit = create(network.interface("net0", ip_config=network.stack("v4", "172.30.0.8")))
    await life.create(client, name="explicit", network_interfaces=explicit)
    for name in ("d", "e"):
        await life.create(client, name=name, network_interfaces=network.IPV4)

    found = {name: (await network.interfaces_of(client, name))[0]["ip_stack"]["value"]["ip"] for name in "acde"}
    assert found == {"a": "172.30.0.5", "c": "172.30.0.7", "d": "172.30.0.6", "e": "172.30.0.9"}


@pytest.mark.parametrize(
    ("ip", "message"),
    [
        ("172.30.0.0", "The first 5 addresses of a subnet are reserved"),
        ("172.30.0.4", "The first 5 addresses of a subnet are reserved"),
        ("172.30.3.255", "Cannot request a broadcast address"),
        ("10.0.0.9", "10.0.0.9 is outside subnet 172.30.0.0/22"),
    ],
)
async def test_not_every_address_can_be_asked_for(client: RackUnderTest, ip: str, message: str) -> None:
    """7.3: reserved, broadcast and foreign ones are refused."""
    wanted = create(network.interface("net0", ip_config=network.stack("v4", ip)))

    error = await life.refuse_create(client, 400, network_interfaces=wanted)

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)


async def test_address_in_use_is_not_available(client: RackUnderTest) -> None:
    """3.2: of both versions; the attempt leaves nothing behind."""
    await life.create(client, name="first", network_interfaces=network.DUAL_STACK)
    stacks = (await network.interfaces_of(client, "first"))[0]["ip_stack"]["value"]
    before = len(client.state.network_interfaces), network.addresses_in_use(client)

    for version in ("v4", "v6"):
        ip = stacks[version]["ip"]
        wanted = create(network.interface("net0", ip_config=network.stack(version, ip)))
        error = await life.refuse_create(client, 400, network_interfaces=wanted)
        assert error["message"] == f"The IP address '{ip}' is not available"
    assert (len(client.state.network_interfaces), network.addresses_in_use(client)) == before


async def test_subnet_can_run_out_of_addresses(client: RackUnderTest) -> None:
    """3.2: a /26 has 58 addresses for NICs; the refusal names the family and the subnet."""
    subnet = await network.add_subnet(client, "small", "10.0.0.0/26")
    book = client.state.subnet_addresses[subnet["id"], "v4"]
    while book.take() is not None:
        pass
    wanted = create(network.interface("net0", "small", ip_config=network.stack("v4")))

    error = await life.refuse_create(client, 400, network_interfaces=wanted)

    assert book.taken_count == 58
    where = f"in subnet 'small' with ID '{subnet['id']}'"
    assert error["message"] == f"No available IPv4 addresses for interface {where}"


@pytest.mark.parametrize(
    ("attachment", "message"),
    [
        (create(), "All interfaces must be in the same VPC"),
        (
            create(network.interface("a"), network.interface("b", vpc="other")),
            "All interfaces must be in the same VPC",
        ),
        (
            create(*(network.interface(f"nic{number}", f"net{number}") for number in range(9))),
            "An instance may not have more than 8 network interfaces",
        ),
        (
            create(network.interface("a"), network.interface("b")),
            "Each interface must be in a distinct VPC Subnet",
        ),
    ],
)
async def test_interfaces_that_an_instance_cannot_have(
    client: RackUnderTest, attachment: dict[str, Any], message: str
) -> None:
    """2.2: also an empty list, because the set of its VPCs has not one element."""
    error = await life.refuse_create(client, 400, network_interfaces=attachment)

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)
    assert len(client.state.network_interfaces) == 0


async def test_names_of_interfaces_are_unique_in_an_instance(client: RackUnderTest) -> None:
    """2.1: at creation, at adding and at renaming."""
    await add_subnets(client, 1)
    twice = create(network.interface("same"), network.interface("same", "net1"))
    at_creation = await life.refuse_create(client, 400, network_interfaces=twice)
    await life.create(client, network_interfaces=create(network.interface("same")))
    at_adding = await add(client, 400, network.interface("same", "net1"))
    await add(client, 201, network.interface("other", "net1"))
    at_renaming = await client.refused(400, "PUT", f"{INTERFACES}/other", {"name": "same"}, **OF_NODE)

    for error in (at_creation, at_adding, at_renaming):
        assert error["error_code"] == "ObjectAlreadyExists"
        assert error["message"] == 'already exists: instance-network-interface "same"'
    names = [interface["name"] for interface in await network.interfaces_of(client)]
    assert names == ["other", "same"]


async def test_mac_addresses_are_of_the_guests_range(client: RackUnderTest) -> None:
    """7.3: A8:40:25:F0:00:00 to A8:40:25:FE:FF:FF, and no two are equal."""
    for number in range(5):
        await life.create(client, name=f"node{number}", network_interfaces=network.DUAL_STACK)

    macs = {interface.mac for interface in client.state.network_interfaces}
    assert len(macs) == 5
    assert all("A8:40:25:F0:00:00" <= mac <= "A8:40:25:FE:FF:FF" for mac in macs)
    await client.must(204, "DELETE", life.path("node0"))
    assert len(client.state.mac_addresses) == 4


@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 201), ("starting", 400), ("running", 400), ("rebooting", 400), ("stopping", 400), ("failed", 400)],
)
async def test_interface_is_added_to_a_stopped_instance_only(client: RackUnderTest, state: str, status: int) -> None:
    """3.2: row NIC add."""
    await add_subnets(client, 1)
    await life.create_in(client, state, network_interfaces=network.DUAL_STACK)

    answer = await add(client, status, network.interface("more", "net1"))

    if status == 201:
        assert (answer["name"], answer["primary"]) == ("more", False)
    else:
        assert answer["message"] == "Instance must be stopped to attach a new network interface"


@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 204), ("starting", 400), ("running", 400), ("rebooting", 400), ("stopping", 400), ("failed", 204)],
)
async def test_interface_is_deleted_of_a_stopped_or_failed_instance(
    client: RackUnderTest, state: str, status: int
) -> None:
    """3.2: row NIC delete."""
    await life.create_in(client, state, network_interfaces=network.DUAL_STACK)

    error = await client.must(status, "DELETE", f"{INTERFACES}/net0", **OF_NODE)

    if status == 204:
        assert await network.interfaces_of(client) == []
    else:
        assert error["message"] == "Instance must be stopped or failed to detach a network interface"


@pytest.mark.parametrize(
    ("state", "status"),
    [("stopped", 200), ("starting", 400), ("running", 400), ("rebooting", 400), ("stopping", 400), ("failed", 400)],
)
@pytest.mark.parametrize("change", [{"description": "x"}, {"transit_ips": ["10.9.0.0/16"]}, {"primary": True}])
async def test_interface_is_updated_on_a_stopped_instance_only(
    client: RackUnderTest, state: str, status: int, change: dict[str, Any]
) -> None:
    """3.2: row NIC update, whatever is changed."""
    await life.create_in(client, state, network_interfaces=network.DUAL_STACK)

    answer = await client.must(status, "PUT", f"{INTERFACES}/net0", change, **OF_NODE)

    if status == 400:
        assert answer["message"] == "Instance must be stopped to update its network interfaces"


async def test_interfaces_cannot_be_changed_while_the_instance_is_being_created(client: RackUnderTest) -> None:
    """3.2: column creating."""
    client.state.timing = life.SLOW_CREATION
    async with life.creating(client, network_interfaces=network.DUAL_STACK):
        for method, path, body in (
            ("POST", INTERFACES, network.interface("more")),
            ("PUT", f"{INTERFACES}/net0", {}),
            ("DELETE", f"{INTERFACES}/net0", None),
        ):
            error = await client.refused(400, method, path, body, **OF_NODE)
            assert error["message"].startswith("Instance must be stopped")


async def test_ninth_interface_is_refused(client: RackUnderTest) -> None:
    """2.2: 8 are the most; the slot of one that was deleted is used again."""
    await add_subnets(client, INTERFACES_MAXIMUM)
    await life.create(client, network_interfaces=create(network.interface("net0")))
    for number in range(1, INTERFACES_MAXIMUM):
        await add(client, 201, network.interface(f"nic{number}", f"net{number}"))

    error = await add(client, 400, network.interface("nic8", "net8"))

    assert error["message"] == "May not attach more than 8 network interfaces"
    await client.must(204, "DELETE", f"{INTERFACES}/nic3", **OF_NODE)
    await add(client, 201, network.interface("nic8", "net8"))
    slots = {interface.name: interface.slot for interface in client.state.network_interfaces}
    assert slots["nic8"] == 3


async def test_added_interface_stays_in_the_instances_vpc(client: RackUnderTest) -> None:
    """3.2: 400 for another VPC, 400 for a subnet in which there is one already, 404 for names that nobody has."""
    await client.must(201, "POST", "/v1/vpcs", {"name": "inner", "description": "", "dns_name": "i"}, project="demo")
    await life.create(client, network_interfaces=network.DUAL_STACK)

    span = await add(client, 400, network.interface("more", vpc="inner"))
    same = await add(client, 400, network.interface("more"))
    no_vpc = await add(client, 404, network.interface("more", vpc="ghost"))
    no_subnet = await add(client, 404, network.interface("more", "ghost"))

    assert span["message"] == (
        "Networking may not span multiple VPCs, but the requested resource is associated with another VPC"
    )
    assert same["message"] == "Each interface must be in a distinct VPC Subnet"
    assert no_vpc["message"] == 'not found: vpc with name "ghost"'
    assert no_subnet["message"] == 'not found: vpc-subnet with name "ghost"'


async def test_primary_interface_goes_last(client: RackUnderTest) -> None:
    """3.2: not while there are secondary ones; the next one added is primary again."""
    await add_subnets(client, 1)
    await life.create(client, network_interfaces=network.DUAL_STACK)
    await add(client, 201, network.interface("more", "net1"))

    error = await client.refused(400, "DELETE", f"{INTERFACES}/net0", **OF_NODE)

    assert error["message"] == (
        "The primary interface may not be deleted while secondary interfaces are still attached"
    )
    await client.must(204, "DELETE", f"{INTERFACES}/more", **OF_NODE)
    await client.must(204, "DELETE", f"{INTERFACES}/net0", **OF_NODE)
    assert (await add(client, 201, network.interface("again")))["primary"] is True


async def test_interface_is_named_by_its_id_alone_or_by_name_and_instance(client: RackUnderTest) -> None:
    """1.6: the texts of this resource; the instance in the query follows the rules of instances."""
    await life.create(client, network_interfaces=network.DUAL_STACK)
    (interface,) = await network.interfaces_of(client)

    both = await client.refused(400, "GET", f"{INTERFACES}/{interface['id']}", instance="node", project="demo")
    alone = await client.refused(400, "GET", f"{INTERFACES}/net0")
    without_project = await client.refused(400, "GET", f"{INTERFACES}/net0", instance="node")
    missing = await client.refused(404, "GET", f"{INTERFACES}/ghost", **OF_NODE)

    assert both["message"] == ("when providing network_interface as an id instance and project should not be specified")
    assert alone["message"] == "network_interface should either be a UUID or instance should be specified"
    assert without_project["message"] == "instance should either be UUID or project should be specified"
    assert missing["message"] == 'not found: instance-network-interface with name "ghost"'
    assert await client.must(200, "GET", f"{INTERFACES}/{interface['id']}") == interface
    assert await client.must(200, "GET", f"{INTERFACES}/net0", instance=interface["instance_id"]) == interface


async def test_interfaces_are_for_those_who_manage_instances(client: RackUnderTest) -> None:
    """1.1: a limited collaborator may; a viewer may look; of another silo nothing is found."""
    await add_subnets(client, 1)
    await life.create(client, network_interfaces=network.DUAL_STACK)
    params = network.interface("more", "net1")

    for user, status in (("viewer", 403), ("stranger", 404), ("limited_collaborator", 201)):
        await client.must(status, "POST", INTERFACES, params, user=user, **OF_NODE)
    for user, status in (("viewer", 403), ("stranger", 404), ("limited_collaborator", 204)):
        await client.must(status, "DELETE", f"{INTERFACES}/more", user=user, **OF_NODE)
    await client.must(200, "GET", f"{INTERFACES}/net0", user="viewer", **OF_NODE)
