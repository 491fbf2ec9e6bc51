"""IP pools and subnet pools as a silo sees them (semantics 8)."""

from __future__ import annotations

import ipaddress

from capox.rack import records
from tests.rack import RackUnderTest


async def test_only_linked_pools_are_listed(client: RackUnderTest) -> None:
    """8: with the silo's own view of what is the default; no addresses and no utilization."""
    client.add_pool("further", "v4", "192.0.2.0", "192.0.2.9", {client.silo.id: False})
    client.add_pool("private", "v4", "203.0.113.0", "203.0.113.9", {client.other_silo.id: True})

    pools = (await client.must(200, "GET", "/v1/ip-pools"))["items"]

    assert [(pool["name"], pool["ip_version"], pool["is_default"], pool["pool_type"]) for pool in pools] == [
        ("further", "v4", False, "unicast"),
        ("public-v4", "v4", True, "unicast"),
        ("public-v6", "v6", True, "unicast"),
    ]
    assert set(pools[0]) == {
        "id",
        "name",
        "description",
        "time_created",
        "time_modified",
        "is_default",
        "ip_version",
        "pool_type",
    }


async def test_pools_can_be_filtered(client: RackUnderTest) -> None:
    """8: by version and by type; the token of a page carries the filter on."""
    client.add_pool("further", "v4", "192.0.2.0", "192.0.2.9", {client.silo.id: False})
    groups = client.add_pool("groups", "v4", "224.1.1.0", "224.1.1.9", {client.silo.id: True})
    groups.pool_type = "multicast"

    async def names(**query: str) -> list[str]:
        """The names of the pools that are listed."""
        return [pool["name"] for pool in (await client.must(200, "GET", "/v1/ip-pools", **query))["items"]]

    assert await names(ip_version="v6") == ["public-v6"]
    assert await names(pool_type="multicast") == ["groups"]
    assert await names(ip_version="v4", pool_type="unicast") == ["further", "public-v4"]
    page = await client.must(200, "GET", "/v1/ip-pools", ip_version="v4", limit=1)
    assert [pool["name"] for pool in page["items"]] == ["further"]
    assert await names(page_token=page["next_page"]) == ["groups", "public-v4"]


async def test_pool_is_viewed_by_name_or_id_when_it_is_linked(client: RackUnderTest) -> None:
    """8: an unlinked one is not found."""
    private = client.add_pool("private", "v4", "203.0.113.0", "203.0.113.9", {client.other_silo.id: True})

    by_name = await client.must(200, "GET", "/v1/ip-pools/public-v4")
    by_id = await client.must(200, "GET", f"/v1/ip-pools/{client.pool_v4.id}")
    unlinked = await client.refused(404, "GET", "/v1/ip-pools/private")

    assert by_name == by_id
    assert unlinked["message"] == 'not found: ip-pool with name "private"'
    await client.refused(404, "GET", f"/v1/ip-pools/{private.id}")
    assert (await client.must(200, "GET", "/v1/ip-pools/private", user="stranger"))["is_default"] is True


async def test_view_of_a_silo_came_with_a_later_version(client: RackUnderTest) -> None:
    """1.2: before 2026020900 the resource had another place."""
    for version, status in (("2026020800.0.0", 404), ("2026020900.0.0", 200)):
        headers = {"api-version": version}
        await client.must(status, "GET", "/v1/ip-pools", headers=headers)
        await client.must(status, "GET", "/v1/subnet-pools", headers=headers)


async def test_subnet_pools_are_seen_in_the_same_way(client: RackUnderTest) -> None:
    """8: linked ones only, by name or id."""
    for name, links in (("routed", {client.silo.id: True}), ("private", {client.other_silo.id: True})):
        client.state.subnet_pools.insert(
            records.SubnetPool(
                **client.state.identity(name, ""),
                version="v4",
                networks=[ipaddress.IPv4Network("203.0.113.0/24")],
                links=links,
            )
        )

    (pool,) = (await client.must(200, "GET", "/v1/subnet-pools"))["items"]

    assert (pool["name"], pool["ip_version"], pool["is_default"]) == ("routed", "v4", True)
    assert await client.must(200, "GET", f"/v1/subnet-pools/{pool['id']}") == pool
    error = await client.refused(404, "GET", "/v1/subnet-pools/private")
    assert error["message"] == 'not found: subnet-pool with name "private"'
