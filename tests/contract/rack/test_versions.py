"""The `api-version` header, and requests in the shapes of older versions (semantics 1.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rack import staging
from tests.rack import GIB, RackUnderTest

LATEST = "2026081901.0.0"
# What oxide.go 0.11 sends.
SDK = "2026060800.0.0"
BEFORE_ALLOCATORS = "2026012100.0.0"
BEFORE_DUAL_STACK = "2026010200.0.0"
BEFORE_BACKENDS = "2025120200.0.0"
FIRST = "2025112000.0.0"

INSTANCE: dict[str, Any] = {
    "name": "node",
    "description": "",
    "hostname": "node",
    "ncpus": 1,
    "memory": GIB,
    "start": False,
}


def speaking(version: str) -> dict[str, str]:
    """The header of a client that speaks this version."""
    return {"api-version": version}


async def interfaces(client: RackUnderTest) -> list[dict[str, Any]]:
    """The NICs of the instance `node`."""
    page = await client.must(200, "GET", "/v1/network-interfaces", instance="node", project="demo")
    items: list[dict[str, Any]] = page["items"]
    return items


@pytest.mark.parametrize("version", [None, LATEST, SDK, FIRST, "1.0.0", "2026081900.9.9", "2026081901.0.0-alpha"])
async def test_served_versions(client: RackUnderTest, version: str | None) -> None:
    """1.2: without the header the latest is meant; every older version is accepted, even one before the first."""
    await client.must(200, "GET", "/v1/me", headers={} if version is None else speaking(version))


@pytest.mark.parametrize("version", ["2026081902.0.0", "2026081901.0.1", "2026091500.0.0", "9999999999.0.0"])
async def test_newer_versions(client: RackUnderTest, version: str) -> None:
    """1.2: a version newer than the rack's is refused without an error code."""
    error = await client.refused(400, "GET", "/v1/me", headers=speaking(version))

    assert "error_code" not in error
    assert error["message"] == f"server does not support this API version: {version}"


@pytest.mark.parametrize("version", ["", "latest", "1", "1.0", "01.0.0", "1.0.0.0", "v1.0.0"])
async def test_no_versions(client: RackUnderTest, version: str) -> None:
    """1.2: what is no version at all is refused without an error code, naming header and value."""
    error = await client.refused(400, "GET", "/v1/ping", user=None, headers=speaking(version))

    assert "error_code" not in error
    assert error["message"].startswith('bad value for header "api-version": ')
    assert error["message"].endswith(f": {version}")


async def test_operation_that_came_later(client: RackUnderTest) -> None:
    """1.2: an operation that a version did not have yet is an unknown route there."""
    await client.must(200, "GET", "/v1/ip-pools", headers=speaking("2026020900.0.0"))

    error = await client.refused(404, "GET", "/v1/ip-pools", headers=speaking("2026020800.0.0"))

    assert error.keys() == {"request_id", "message"}
    assert error["message"] == "Not Found"


async def test_default_interfaces_were_ipv4_only(client: RackUnderTest) -> None:
    """1.2: before dual stack, `default` was one NIC with IPv4 alone, also when nothing was said."""
    for number, wanted in enumerate([{}, {"network_interfaces": {"type": "default"}}]):
        body = INSTANCE | {"name": "node", **wanted}
        await client.must(201, "POST", "/v1/instances", body, headers=speaking(BEFORE_DUAL_STACK), project="demo")
        (nic,) = await interfaces(client)
        assert nic["ip_stack"]["type"] == "v4", number
        await client.must(204, "DELETE", "/v1/instances/node", project="demo")


async def test_default_interfaces_are_dual_stack(client: RackUnderTest) -> None:
    """1.2, 2.2: today's default has both families, and today's names are not known to older versions' parsers only."""
    await client.must(201, "POST", "/v1/instances", INSTANCE, headers=speaking(SDK), project="demo")

    (nic,) = await interfaces(client)

    assert nic["ip_stack"]["type"] == "dual_stack"


async def test_old_default_is_unknown_today(client: RackUnderTest) -> None:
    """1.2: `default` alone is no variant of the latest version."""
    body = INSTANCE | {"network_interfaces": {"type": "default"}}

    error = await client.refused(400, "POST", "/v1/instances", body, project="demo")

    assert error["message"].startswith("unable to parse JSON body: network_interfaces")


async def test_old_interface_with_an_address(client: RackUnderTest) -> None:
    """1.2: before dual stack, an interface to be created had an optional `ip` and `transit_ips` of its own."""
    params = [
        {
            "name": "first",
            "description": "",
            "vpc_name": "default",
            "subnet_name": "default",
            "ip": "172.30.0.77",
            "transit_ips": ["10.1.0.0/16"],
        }
    ]
    body = INSTANCE | {"network_interfaces": {"type": "create", "params": params}}

    await client.must(201, "POST", "/v1/instances", body, headers=speaking(BEFORE_DUAL_STACK), project="demo")

    (nic,) = await interfaces(client)
    assert nic["ip_stack"] == {"type": "v4", "value": {"ip": "172.30.0.77", "transit_ips": ["10.1.0.0/16"]}}


async def test_old_floating_ip_by_address(client: RackUnderTest) -> None:
    """1.2: before allocators, an explicit floating IP was asked for by `ip`."""
    body = {"name": "door", "description": "", "ip": "198.51.100.9"}

    view = await client.must(201, "POST", "/v1/floating-ips", body, headers=speaking(BEFORE_ALLOCATORS), project="demo")

    assert view["ip"] == "198.51.100.9"


@pytest.mark.parametrize(
    "wanted",
    [{"pool": "public-v6"}, {"ip_version": "v6"}, {"address_selector": {"type": "explicit", "ip": "2001:db8::5"}}],
)
async def test_old_floating_ip_by_pool(client: RackUnderTest, wanted: dict[str, Any]) -> None:
    """1.2: before allocators, a floating IP could name a pool, a family or a selector."""
    body = {"name": "door", "description": "", **wanted}

    view = await client.must(201, "POST", "/v1/floating-ips", body, headers=speaking(BEFORE_ALLOCATORS), project="demo")

    assert view["ip_pool_id"] == client.pool_v6.id


async def test_old_ephemeral_address(client: RackUnderTest) -> None:
    """1.2: before pool selectors, an ephemeral address named its pool or nothing."""
    for entry in ({"type": "ephemeral", "pool": "public-v4"}, {"type": "ephemeral", "ip_version": "v4"}):
        body = INSTANCE | {"external_ips": [entry]}
        await client.must(201, "POST", "/v1/instances", body, headers=speaking(BEFORE_ALLOCATORS), project="demo")
        page = await client.must(200, "GET", "/v1/instances/node/external-ips", project="demo")
        assert [item["ip_pool_id"] for item in page["items"] if item["kind"] == "ephemeral"] == [client.pool_v4.id]
        await client.must(204, "DELETE", "/v1/instances/node", project="demo")


async def test_old_disk(client: RackUnderTest) -> None:
    """1.2: before backends, a disk had its source at the top; today that is a parse error."""
    source = {"type": "blank", "block_size": 512}
    body = {"name": "data", "description": "", "size": GIB, "disk_source": source}

    error = await client.refused(400, "POST", "/v1/disks", body, headers=speaking(SDK), project="demo")
    view = await client.must(201, "POST", "/v1/disks", body, headers=speaking(BEFORE_BACKENDS), project="demo")

    assert "missing field `disk_backend`" in error["message"]
    assert (view["name"], view["disk_type"]) == ("data", "distributed")


async def test_old_disks_of_an_instance(client: RackUnderTest) -> None:
    """1.2: the disks of an instance to be created had the older shape, too."""
    disk = {
        "type": "create",
        "name": "boot",
        "description": "",
        "size": 2 * GIB,
        "disk_source": {"type": "image", "image_id": client.image.id},
    }
    attached = {"type": "attach", "name": "data"}
    await staging.add_disk(client, "data")
    body = INSTANCE | {"boot_disk": disk, "disks": [attached]}

    await client.must(201, "POST", "/v1/instances", body, headers=speaking(FIRST), project="demo")

    page = await client.must(200, "GET", "/v1/instances/node/disks", project="demo")
    assert {item["name"] for item in page["items"]} == {"boot", "data"}


async def test_today_s_shapes_in_older_versions(client: RackUnderTest) -> None:
    """1.2: translation leaves alone what already has today's shape, and what has neither to the document."""
    await client.must(
        201, "POST", "/v1/disks", staging.disk_body("data"), headers=speaking(BEFORE_BACKENDS), project="demo"
    )
    bodies: list[Any] = [{"name": "more", "description": "", "size": GIB}, [], "text", {"disk_source": 7}]
    for body in bodies:
        error = await client.refused(400, "POST", "/v1/disks", body, headers=speaking(BEFORE_BACKENDS), project="demo")
        assert error["message"].startswith("unable to parse JSON body: ")


async def test_older_and_newer_racks(client: RackUnderTest) -> None:
    """1.2: what counts as newer depends on the rack's own version."""
    client.state.latest_version = SDK
    await client.must(200, "GET", "/v1/me", headers=speaking(SDK))
    await client.refused(400, "GET", "/v1/me", headers=speaking(LATEST))

    client.state.latest_version = "2027010100.0.0"
    await client.must(200, "GET", "/v1/me", headers=speaking("2026091500.0.0"))
    await client.must(200, "GET", "/v1/me", headers=speaking(FIRST))
