"""Faults on request: each kind, whom it hits, and that a seed repeats it."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic
import pytest

from capox.rack import app, pace
from capox.rack.faults import FaultRule, Faults
from tests.contract.rack import instance_life, staging
from tests.rack import RackUnderTest

PROJECT: dict[str, Any] = {"name": "mine", "description": ""}


def has_project(rack: RackUnderTest, name: str = "mine") -> bool:
    """Whether the project is on the rack, whatever its creator was told."""
    return rack.state.projects.by_name(rack.silo.id, name) is not None


def play(rack: RackUnderTest, kind: str, **fields: Any) -> None:
    """Put a rule to work."""
    rack.app.faults.add(FaultRule.model_validate({"kind": kind, **fields}))


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("unavailable", 503, "ServiceNotAvailable"),
        ("insufficient_capacity", 507, "InsufficientCapacity"),
        ("internal_error", 500, "Internal"),
        ("unauthorized", 401, "Unauthorized"),
        ("hidden", 404, "ObjectNotFound"),
        ("not_found_page", 404, None),
    ],
)
async def test_refusals_instead_of_the_work(client: RackUnderTest, kind: str, status: int, code: str | None) -> None:
    """1.3: these faults answer as a real rack would, and nothing is done."""
    play(client, kind, operation="project_create")

    error = await client.refused(status, "POST", "/v1/projects", PROJECT)

    assert error.get("error_code") == code
    assert not has_project(client)
    await client.must(200, "GET", "/v1/projects")


async def test_error_after_success(client: RackUnderTest) -> None:
    """1.3: a create that is answered by 500 may have been done; a repeat then finds the name taken."""
    play(client, "internal_error_after", operation="project_create", times=1)

    error = await client.refused(500, "POST", "/v1/projects", PROJECT)

    assert error["message"] == "Internal Server Error"
    assert has_project(client)
    repeated = await client.refused(400, "POST", "/v1/projects", PROJECT)
    assert repeated["error_code"] == "ObjectAlreadyExists"


@pytest.mark.parametrize(("kind", "done_at_once"), [("slow", False), ("slow_answer", True)])
async def test_late_answers(client: RackUnderTest, kind: str, *, done_at_once: bool) -> None:
    """1.3: `slow` does the work late, `slow_answer` tells of it late."""
    play(client, kind, operation="project_create", seconds=30)
    headers = {"authorization": "Bearer oxide-token-admin"}
    request = asyncio.ensure_future(client.http.post("/v1/projects", json=PROJECT, headers=headers))
    await client.waits_for_time()

    assert has_project(client) is done_at_once
    client.pass_time(29)
    await asyncio.sleep(0)
    assert not request.done()
    client.pass_time(1)

    assert (await request).status_code == 201
    assert has_project(client)


@pytest.mark.parametrize(("kind", "done"), [("lost_request", False), ("lost_reply", True)])
async def test_lost_messages(client: RackUnderTest, kind: str, *, done: bool) -> None:
    """1.3: with either fault the client sees a broken connection; only with `lost_reply` the work was done."""
    play(client, kind, operation="project_create")

    with pytest.raises(app.HungUp):
        await client.ask("POST", "/v1/projects", PROJECT)

    assert has_project(client) is done
    entry = client.app.log.entries()[-1]
    assert (entry.fault, entry.status) == (kind, None)


async def test_lost_reply_loses_refusals_too(client: RackUnderTest) -> None:
    """1.3: what would have been refused is lost as well, so that the client cannot tell the two apart."""
    play(client, "lost_reply")

    with pytest.raises(app.HungUp):
        await client.ask("POST", "/v1/projects", {"name": "demo", "description": ""})


async def test_start_failure(client: RackUnderTest) -> None:
    """3.1: a start that fails within a create is not told; the instance is there and stopped."""
    play(client, "start_failure", object="unlucky")

    unlucky = await instance_life.create(client, name="unlucky", start=True)
    lucky = await instance_life.create(client, name="lucky", start=True)

    assert (unlucky["run_state"], lucky["run_state"]) == ("stopped", "starting")
    error = await client.refused(507, "POST", instance_life.path("unlucky", "start"))
    assert error["error_code"] == "InsufficientCapacity"


async def test_pool_exhausted(client: RackUnderTest) -> None:
    """4.4: a pool can be told to have nothing left, by its name, while others go on."""
    play(client, "pool_exhausted", object="public-v4")
    body = {"name": "door", "description": ""}

    def wanting(pool: str) -> dict[str, Any]:
        """A floating IP from a pool."""
        allocator = {"type": "auto", "pool_selector": {"type": "explicit", "pool": pool}}
        return body | {"address_allocator": allocator}

    error = await client.refused(507, "POST", "/v1/floating-ips", wanting("public-v4"), project="demo")
    await client.must(201, "POST", "/v1/floating-ips", wanting("public-v6"), project="demo")

    assert error["message"] == "Insufficient capacity: No external IP addresses available"


@pytest.mark.parametrize(
    ("fields", "hit"),
    [
        ({"operation": "disk_view"}, {"data", "more"}),
        ({"operation": "disk_*"}, {"data", "more"}),
        ({"operation": "instance_*"}, set()),
        ({"object": "data"}, {"data"}),
        ({"object": "m?re"}, {"more"}),
        ({"object": "demo"}, {"data", "more"}),
        ({"operation": "disk_view", "object": "nothing"}, set()),
    ],
)
async def test_whom_a_rule_hits(client: RackUnderTest, fields: dict[str, Any], hit: set[str]) -> None:
    """A rule names operations and objects, with wildcards; a query's values count as objects, too."""
    for name in ("data", "more"):
        await staging.add_disk(client, name)
    play(client, "unavailable", **fields)

    answers = {name: await client.ask("GET", f"/v1/disks/{name}", project="demo") for name in ("data", "more")}

    assert {name for name, answer in answers.items() if answer.status_code == 503} == hit


async def test_objects_of_bodies(client: RackUnderTest) -> None:
    """A create is about the name in its body."""
    play(client, "unavailable", operation="project_create", object="mine")

    await client.refused(503, "POST", "/v1/projects", PROJECT)
    await client.must(201, "POST", "/v1/projects", PROJECT | {"name": "yours"})


async def test_times(client: RackUnderTest) -> None:
    """A rule that may be played so many times is spent after that."""
    play(client, "unavailable", times=2)

    statuses = [(await client.ask("GET", "/v1/ping")).status_code for _ in range(4)]

    assert statuses == [503, 503, 200, 200]


async def test_first_matching_rule_is_played(client: RackUnderTest) -> None:
    """Rules stand in the order in which they came; a spent one lets the next have its turn."""
    play(client, "internal_error", times=1)
    play(client, "unavailable", times=1)

    statuses = [(await client.ask("GET", "/v1/ping")).status_code for _ in range(3)]

    assert statuses == [500, 503, 200]


async def test_faults_need_a_route(client: RackUnderTest) -> None:
    """What is no operation is not hit: the framework's own refusals come first."""
    play(client, "unavailable")

    await client.refused(404, "GET", "/v1/nothing")
    await client.refused(405, "DELETE", "/v1/ping")


def hits(seed: int, probability: float = 0.5, count: int = 200) -> list[bool]:
    """Which of so many requests a rule with these dice hits."""
    faults = Faults()
    faults.add(FaultRule(kind="unavailable", probability=probability, seed=seed))
    return [faults.on_request("ping", []) is not None for _ in range(count)]


def test_seeds_repeat() -> None:
    """The same seed hits the same requests, another seed others, and about as many as the probability says."""
    assert hits(7) == hits(7) != hits(8)
    assert 60 < sum(hits(7)) < 140
    assert not any(hits(7, probability=0))
    assert all(hits(7, probability=1))


def test_dice_are_thrown_for_matching_requests_only() -> None:
    """Other requests in between do not change which matching ones are hit."""
    alone, among = Faults(), Faults()
    for faults in (alone, among):
        faults.add(FaultRule(kind="unavailable", operation="disk_view", probability=0.5, seed=3))

    expected = [alone.on_request("disk_view", []) is not None for _ in range(50)]
    found = []
    for _ in range(50):
        assert among.on_request("ping", []) is None
        found.append(among.on_request("disk_view", []) is not None)

    assert found == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "explode"},
        {"kind": "slow", "seconds": -1},
        {"kind": "slow", "seconds": 1e9},
        {"kind": "unavailable", "probability": 1.5},
        {"kind": "unavailable", "times": 0},
        {"kind": "unavailable", "colour": "blue"},
        {},
    ],
)
def test_bad_rules(fields: dict[str, Any]) -> None:
    """A rule that could not be meant is refused."""
    with pytest.raises(pydantic.ValidationError):
        FaultRule.model_validate(fields)


async def test_work_goes_on_without_its_client(client: RackUnderTest) -> None:
    """1.3: an operation that takes time is finished when its client has gone, and its refusal troubles nobody."""
    headers = {"authorization": "Bearer oxide-token-admin"}
    body = instance_life.MINIMAL | {"name": "orphan"}
    request = asyncio.ensure_future(client.http.post(instance_life.INSTANCES, json=body, headers=headers))
    await client.waits_for_time()

    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await pace.finish_all(client.state, 60)
    await client.app.finish()

    assert await instance_life.run_state(client, "orphan") == "stopped"
