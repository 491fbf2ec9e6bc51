"""VPCs, interfaces and addresses for tests: made by request and looked at."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import httpx

from capox.rack import records
from tests.contract.rack import instance_life
from tests.rack import RackUnderTest

DUAL_STACK = {"type": "default_dual_stack"}
IPV4 = {"type": "default_ipv4"}
IPV6 = {"type": "default_ipv6"}

AUTO_V4 = {"type": "auto", "ip_version": "v4"}
AUTO_V6 = {"type": "auto", "ip_version": "v6"}


def stack(version: str, ip: str | None = None, *, transit_ips: tuple[str, ...] = ()) -> dict[str, Any]:
    """An `ip_config` of one version, with this address or any."""
    assignment = {"type": "auto"} if ip is None else {"type": "explicit", "value": ip}
    return {"type": version, "value": {"ip": assignment, "transit_ips": list(transit_ips)}}


def interface(name: str, subnet: str = "default", *, vpc: str = "default", **changes: Any) -> dict[str, Any]:
    """What the API takes as an interface to be created."""
    return {"name": name, "description": "", "vpc_name": vpc, "subnet_name": subnet, **changes}


async def add_subnet(rack: RackUnderTest, name: str, block: str, *, vpc: str = "default") -> dict[str, Any]:
    """Make a subnet in a VPC of the project `demo`."""
    body = {"name": name, "description": "", "ipv4_block": block}
    made: dict[str, Any] = await rack.must(201, "POST", "/v1/vpc-subnets", body, vpc=vpc, project="demo")
    return made


async def interfaces_of(rack: RackUnderTest, instance: str = "node") -> list[dict[str, Any]]:
    """The interfaces of an instance."""
    query = {"instance": instance, "project": "demo"}
    items: list[dict[str, Any]] = (await rack.must(200, "GET", "/v1/network-interfaces", **query))["items"]
    return items


async def external_ips_of(rack: RackUnderTest, instance: str = "node") -> list[dict[str, Any]]:
    """The external addresses of an instance."""
    page = await rack.must(200, "GET", instance_life.path(instance, "external-ips"))
    assert page["next_page"] is None
    items: list[dict[str, Any]] = page["items"]
    return items


async def add_floating_ip(
    rack: RackUnderTest, name: str = "entry", *, version: str = "v4", ip: str | None = None
) -> dict[str, Any]:
    """Make a floating IP in the project `demo`, with this address or the lowest free one."""
    if ip is None:
        allocator: dict[str, Any] = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": version}}
    else:
        allocator = {"type": "explicit", "ip": ip}
    body = {"name": name, "description": "", "address_allocator": allocator}
    made: dict[str, Any] = await rack.must(201, "POST", "/v1/floating-ips", body, project="demo")
    return made


async def view_floating_ip(rack: RackUnderTest, name: str = "entry") -> dict[str, Any]:
    """A floating IP as it is now."""
    found: dict[str, Any] = await rack.must(200, "GET", f"/v1/floating-ips/{name}", project="demo")
    return found


async def attach(rack: RackUnderTest, name: str = "entry", instance: str = "node") -> dict[str, Any]:
    """Attach a floating IP to an instance."""
    body = {"kind": "instance", "parent": instance}
    answer: dict[str, Any] = await rack.must(202, "POST", f"/v1/floating-ips/{name}/attach", body, project="demo")
    return answer


async def detach(rack: RackUnderTest, name: str = "entry") -> dict[str, Any]:
    """Detach a floating IP."""
    answer: dict[str, Any] = await rack.must(202, "POST", f"/v1/floating-ips/{name}/detach", project="demo")
    return answer


def floating_record(rack: RackUnderTest, name: str = "entry") -> records.FloatingIp:
    """The rack's record of a floating IP."""
    found = rack.state.floating_ips.by_name(rack.project.id, name)
    assert found is not None
    return found


def addresses_in_use(rack: RackUnderTest) -> int:
    """How many addresses of the IPv4 pool are in use."""
    return rack.state.pool_addresses[rack.pool_v4.id].taken_count


async def begin(rack: RackUnderTest, method: str, path: str, body: Any = None) -> asyncio.Task[httpx.Response]:
    """Send a request as `admin` that changes an address, which takes a minute, and return while the rack works on it.

    `instance_life.finish` lets it come to its end.
    """
    waits_already = rack.clock.has_sleepers
    assert not waits_already, "a request is under way already"
    rack.state.timing = dataclasses.replace(rack.state.timing, address_change=60.0)
    headers = {"authorization": "Bearer oxide-token-admin"}
    arguments = {} if body is None else {"json": body}
    request = asyncio.ensure_future(rack.http.request(method, path, headers=headers, **arguments))
    for _ in range(1000):
        await asyncio.sleep(0)
        if rack.clock.has_sleepers:
            return request
        assert not request.done(), f"{method} {path} was answered at once: {request.result().text}"
    raise AssertionError(f"{method} {path} neither takes time nor is answered")
