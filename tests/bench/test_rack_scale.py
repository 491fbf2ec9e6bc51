"""A rack with ten thousand instances answers nearly as fast as one with a thousand."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.rack_life import INSTANT, named
from tests.rack import GIB, RackUnderTest

FEW, MANY = 1_000, 10_000
ROUNDS = 25
# What ten times the instances may cost.
LIMIT = 2.0
WHERE = {"project": "demo"}
EXTRA = "/v1/instances/extra"


async def populated(instances: int) -> RackUnderTest:
    """A rack with so many instances, made by request, each with a NIC in one subnet and a share of an address."""
    rack = RackUnderTest(INSTANT)
    links = dict(rack.pool_v4.links)
    rack.pool_v4.links.clear()
    rack.add_pool("large", "v4", "10.200.0.0", "10.200.255.255", links)
    subnet = named("large", ipv4_block="10.0.0.0/12")
    await rack.must(201, "POST", "/v1/vpc-subnets", subnet, vpc="default", **WHERE)
    for number in range(instances):
        await create(rack, f"node-{number:05}")
    return rack


async def create(rack: RackUnderTest, name: str) -> None:
    """Make an instance."""
    attachment = {"type": "create", "params": [named("net0", vpc_name="default", subnet_name="large")]}
    body = named(name, hostname=name, ncpus=1, memory=GIB, network_interfaces=attachment, start=False)
    await rack.must(201, "POST", "/v1/instances", body, **WHERE)


async def steps(rack: RackUnderTest) -> AsyncIterator[tuple[str, int | None]]:
    """What is measured, step by step; yields the step's name and how many items its page had."""
    page: Any = await rack.must(200, "GET", "/v1/instances", limit=1000, **WHERE)
    yield "page of 1000 instances", len(page["items"])
    page = await rack.must(200, "GET", "/v1/instances", limit=500, sort_by="id_ascending", **WHERE)
    yield "page of 500 instances by id", len(page["items"])
    page = await rack.must(200, "GET", "/v1/vpc-subnets/large/network-interfaces", limit=1000, vpc="default", **WHERE)
    yield "page of 1000 NICs of a subnet", len(page["items"])
    await create(rack, "extra")
    yield "create", None
    await rack.must(200, "GET", EXTRA, **WHERE)
    yield "view", None
    await rack.must(200, "GET", f"{EXTRA}/external-ips", **WHERE)
    yield "external addresses of one", None
    await rack.must(202, "POST", f"{EXTRA}/start", **WHERE)
    rack.pass_time(1)
    yield "start", None
    await rack.must(202, "POST", f"{EXTRA}/stop", **WHERE)
    rack.pass_time(1)
    yield "stop", None
    await rack.must(204, "DELETE", EXTRA, **WHERE)
    yield "delete", None


async def measure(rack: RackUnderTest, seconds: dict[str, list[float]]) -> None:
    """Go through the steps once and note how long each took."""
    expected = {"page of 1000 instances": 1000, "page of 500 instances by id": 500}
    before = time.perf_counter()
    async for name, items in steps(rack):
        now = time.perf_counter()
        seconds.setdefault(name, []).append(now - before)
        assert items == expected.get(name, items)
        before = time.perf_counter()


@pytest.mark.timeout(900)
async def test_ten_times_the_instances() -> None:
    """Pages, creates and whatever is about one instance cost at most twice as much; medians of alternating rounds."""
    few, many = await populated(FEW), await populated(MANY)
    of_few: dict[str, list[float]] = {}
    of_many: dict[str, list[float]] = {}
    async with few, many:
        for _ in range(ROUNDS):
            await measure(few, of_few)
            await measure(many, of_many)

    ratios = {}
    print(f"\n{'milliseconds, median':<34} {FEW:>8} {MANY:>8}    ratio")  # noqa: T201 -- a bench's result
    for name, seconds in of_few.items():
        small, large = statistics.median(seconds), statistics.median(of_many[name])
        ratios[name] = large / small
        print(f"{name:<34} {small * 1000:>8.2f} {large * 1000:>8.2f} {ratios[name]:>8.2f}")  # noqa: T201 -- as above
    assert {name: ratio for name, ratio in ratios.items() if ratio > LIMIT} == {}
