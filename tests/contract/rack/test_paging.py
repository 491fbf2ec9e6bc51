"""Pages of lists (semantics 1.5)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capox.rack import records
from tests.rack import RackUnderTest

KEYS = "/v1/me/ssh-keys"
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
ORDERS = st.sampled_from(["name_ascending", "name_descending", "id_ascending"])


def put_key(rack: RackUnderTest, name: str) -> records.SshKey:
    """A public key of the user `admin`: the smallest thing of which there is a list."""
    user = rack.state.users.by_name(rack.silo.id, "admin")
    assert user is not None
    key = records.SshKey(**rack.state.identity(name, ""), user=user.id, public_key="ssh-ed25519 AAAA")
    return rack.state.ssh_keys.insert(key)


def in_order(order: str, keys: list[dict[str, Any]]) -> bool:
    """Whether keys come in the order that was asked for, each later than the one before."""
    by = [key["id" if order == "id_ascending" else "name"] for key in keys]
    return by == sorted(set(by), reverse=order == "name_descending")


@settings(max_examples=60)
@given(names=st.sets(NAMES, max_size=30), limit=st.integers(1, 12), order=ORDERS)
async def test_a_walk_sees_everything_once(names: set[str], limit: int, order: str) -> None:
    """1.5: pages of any size and order hold each item exactly once; only an empty page has no next one."""
    async with RackUnderTest() as rack:
        for name in names:
            put_key(rack, name)
        seen: list[dict[str, Any]] = []
        page = await rack.must(200, "GET", KEYS, limit=limit, sort_by=order)
        while page["items"]:
            assert len(page["items"]) <= limit
            assert page["next_page"]
            seen += page["items"]
            page = await rack.must(200, "GET", KEYS, limit=limit, page_token=page["next_page"])

        assert page["next_page"] is None
        assert {key["name"] for key in seen} == names
        assert in_order(order, seen)


@settings(max_examples=60)
@given(
    names=st.sets(NAMES, min_size=1, max_size=20),
    arriving=st.lists(NAMES, max_size=20, unique=True),
    limit=st.integers(1, 5),
    order=ORDERS,
    data=st.data(),
)
async def test_a_walk_survives_changes(
    names: set[str], arriving: list[str], limit: int, order: str, data: st.DataObject
) -> None:
    """1.5: what is there during a whole walk is seen exactly once, whatever comes and goes meanwhile."""
    async with RackUnderTest() as rack:
        keys = {name: put_key(rack, name) for name in sorted(names)}
        lasting = dict(keys)
        seen: list[dict[str, Any]] = []
        page = await rack.must(200, "GET", KEYS, limit=limit, sort_by=order)
        while page["items"]:
            seen += page["items"]
            if arriving and (name := arriving.pop()) not in keys:
                keys[name] = put_key(rack, name)
            if data.draw(st.booleans()) and lasting:
                rack.state.ssh_keys.delete(lasting.pop(data.draw(st.sampled_from(sorted(lasting)))))
            page = await rack.must(200, "GET", KEYS, limit=limit, page_token=page["next_page"])

        found = [key["name"] for key in seen]
        assert len(found) == len(set(found))
        assert lasting.keys() <= set(found)
        assert in_order(order, seen)


async def test_default_limit_and_clamp(client: RackUnderTest) -> None:
    """1.5: a page has 100 items unless told otherwise, and a limit above 10000 is silently lowered, not refused."""
    for number in range(130):
        put_key(client, f"key-{number:03}")

    default = await client.must(200, "GET", KEYS)
    large = await client.must(200, "GET", KEYS, limit=4_000_000_000)

    assert (len(default["items"]), len(large["items"])) == (100, 130)


async def test_last_page_is_not_known_to_be_the_last(client: RackUnderTest) -> None:
    """1.5: every page with an item has a next one, also when nothing is left; an empty page has none."""
    put_key(client, "only")

    first = await client.must(200, "GET", KEYS)
    second = await client.must(200, "GET", KEYS, page_token=first["next_page"])

    assert [key["name"] for key in first["items"]] == ["only"]
    assert second == {"items": [], "next_page": None}
    assert first["next_page"] is not None


async def test_names_come_first(client: RackUnderTest) -> None:
    """1.5: lists of named things are sorted by name unless told otherwise."""
    for name in ("c", "a", "b"):
        put_key(client, name)

    assert [key["name"] for key in (await client.must(200, "GET", KEYS))["items"]] == ["a", "b", "c"]


async def test_token_carries_filters(client: RackUnderTest) -> None:
    """1.5: with a token the filters of the first request hold; `project` may be repeated, left out, or even differ."""
    await client.must(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    for name in ("a", "b", "c"):
        group = {"name": name, "description": "", "policy": "fail", "failure_domain": "sled"}
        await client.must(201, "POST", "/v1/anti-affinity-groups", group, project="demo")
    first = await client.must(200, "GET", "/v1/anti-affinity-groups", project="demo", limit=1)

    for query in ({}, {"project": "demo"}, {"project": "other"}):
        page = await client.must(
            200, "GET", "/v1/anti-affinity-groups", page_token=first["next_page"], limit=5, **query
        )
        assert [group["name"] for group in page["items"]] == ["b", "c"]


def forge(**changes: Any) -> str:
    """A page token with something changed."""
    start = {"sort_by": "name_ascending", "selector": {}, "last_seen": "a"} | changes
    return base64.urlsafe_b64encode(json.dumps({"v": "v1", "page_start": start}).encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "a" * 513,
        base64.urlsafe_b64encode(b"not json").decode(),
        base64.urlsafe_b64encode(b"[]").decode(),
        base64.urlsafe_b64encode(b'{"v":"v2","page_start":{}}').decode(),
        base64.urlsafe_b64encode(b'{"v":"v1"}').decode(),
        forge(sort_by="colour"),
        forge(last_seen=7),
        forge(selector=[]),
        forge(selector={"project": 7}),
    ],
)
async def test_bad_token(client: RackUnderTest, token: str) -> None:
    """1.5: a token that is none of the rack's is a parse error without a code, at whatever point it fails."""
    error = await client.refused(400, "GET", KEYS, page_token=token)

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse query string: failed to parse pagination token: ")


async def test_unsorted_order_is_refused(client: RackUnderTest) -> None:
    """1.5: an order that a list does not have is a parse error."""
    error = await client.refused(400, "GET", KEYS, sort_by="colour")

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse query string: sort_by: ")


async def test_lists_in_one_piece(client: RackUnderTest) -> None:
    """1.5: external addresses and subnets of an instance come whole; firewall rules are no page at all."""
    body = {"name": "node", "description": "", "hostname": "node", "ncpus": 1, "memory": 1024**3, "start": False}
    await client.must(201, "POST", "/v1/instances", body, project="demo")

    addresses = await client.must(200, "GET", "/v1/instances/node/external-ips", project="demo")
    subnets = await client.must(200, "GET", "/v1/instances/node/external-subnets", project="demo")
    rules = await client.must(200, "GET", "/v1/vpc-firewall-rules", project="demo", vpc="default")

    assert addresses["items"]
    assert addresses["next_page"] is None
    assert subnets == {"items": [], "next_page": None}
    assert rules.keys() == {"rules"}
