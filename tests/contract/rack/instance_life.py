"""Instances for tests: made by request, brought into any state of their life, and looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from capox.rack import instance_states, records
from capox.rack.state import Timing
from tests.rack import GIB, RackUnderTest

INSTANCES = "/v1/instances?project=demo"

# What an instance needs at least. It has no NIC, so that a test says so when it is about one.
MINIMAL: dict[str, Any] = {
    "name": "node",
    "description": "",
    "hostname": "node",
    "ncpus": 2,
    "memory": 4 * GIB,
    "network_interfaces": {"type": "none"},
    "start": False,
}

# What an update says that changes nothing of such an instance.
UNCHANGED: dict[str, Any] = {
    "ncpus": 2,
    "memory": 4 * GIB,
    "boot_disk": None,
    "auto_restart_policy": None,
    "cpu_platform": None,
    "enable_jumbo_frames": False,
}

# The refusal of a start for which there is no sled.
NO_SLED = (
    "Insufficient capacity: Failed to place instance: "
    "Could not find any valid sled on which this instance can be placed"
)

# So long that the requests of a test pass while an instance is being created.
SLOW_CREATION = Timing(instance_create=20.0)


def path(name: str = "node", act: str = "") -> str:
    """The path of an instance, or of something to be done with it."""
    return f"/v1/instances/{name}{'/' if act else ''}{act}?project=demo"


def blank_disk(name: str, *, size_gib: int = 1) -> dict[str, Any]:
    """What `POST /v1/instances` takes as a disk to be created with the instance."""
    backend = {"type": "distributed", "disk_source": {"type": "blank", "block_size": 512}}
    return {"type": "create", "name": name, "description": "", "size": size_gib * GIB, "disk_backend": backend}


async def create(rack: RackUnderTest, **changes: Any) -> dict[str, Any]:
    """Make an instance and return its view."""
    view: dict[str, Any] = await rack.must(201, "POST", INSTANCES, MINIMAL | changes)
    return view


async def refuse_create(rack: RackUnderTest, status: int, **changes: Any) -> dict[str, Any]:
    """Have a creation refused and return the error's body; no trace of the instance may be left."""
    error = await rack.refused(status, "POST", INSTANCES, MINIMAL | changes)
    names = {instance.name for instance in rack.state.instances}
    assert changes.get("name", MINIMAL["name"]) not in names or error.get("error_code") == "ObjectAlreadyExists"
    return error


async def view(rack: RackUnderTest, name: str = "node") -> dict[str, Any]:
    """The instance as it is now."""
    found: dict[str, Any] = await rack.must(200, "GET", path(name))
    return found


async def run_state(rack: RackUnderTest, name: str = "node") -> str:
    """The run state of an instance as it is now."""
    state: str = (await view(rack, name))["run_state"]
    return state


def record(rack: RackUnderTest, name: str = "node") -> records.Instance:
    """The rack's record of an instance."""
    found = rack.state.instances.by_name(rack.project.id, name)
    assert found is not None
    return found


def sled_of(rack: RackUnderTest, name: str = "node") -> records.Sled:
    """The sled on which an instance has its reservation."""
    sled = record(rack, name).sled
    assert sled is not None
    return rack.state.sleds[sled]


async def start(rack: RackUnderTest, name: str = "node") -> None:
    """Bring a stopped instance to running."""
    await rack.must(202, "POST", path(name, "start"))
    rack.pass_time(rack.state.timing.instance_start)
    assert await run_state(rack, name) == "running"


async def create_running(rack: RackUnderTest, name: str = "node", **changes: Any) -> records.Instance:
    """Make an instance that runs."""
    await create(rack, name=name, **changes)
    await start(rack, name)
    return record(rack, name)


async def create_in(rack: RackUnderTest, state: str, name: str = "node", **changes: Any) -> records.Instance:
    """Make an instance and bring it into one of the states in which nobody waits for an answer."""
    await create(rack, name=name, **changes)
    if state == "starting":
        await rack.must(202, "POST", path(name, "start"))
    elif state != "stopped":
        await start(rack, name)
        if state == "stopping":
            await rack.must(202, "POST", path(name, "stop"))
        elif state == "rebooting":
            await rack.must(202, "POST", path(name, "reboot"))
        elif state == "failed":
            instance_states.fail(rack.state, record(rack, name))
    assert await run_state(rack, name) == state
    return record(rack, name)


@contextlib.asynccontextmanager
async def creating(
    rack: RackUnderTest, *, has_disks: bool = True, **changes: Any
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """An instance whose creation waits in the middle; it goes on when the context ends.

    Yields the request, whose result is the answer. The rack's timing has to be `SLOW_CREATION`.

    Args:
        rack: the rack.
        has_disks: whether the creation has come as far as to have made the disks.
        changes: what the request says beside the minimum.
    """
    headers = {"authorization": "Bearer oxide-token-admin"}
    request = asyncio.ensure_future(rack.http.post(INSTANCES, json=MINIMAL | changes, headers=headers))
    await _until_it_waits(rack)
    if has_disks:
        rack.clock.advance(rack.state.timing.instance_create / 2)
        await _until_it_waits(rack)
    yield request
    await finish(rack, request)


async def finish(rack: RackUnderTest, *tasks: asyncio.Task[Any]) -> None:
    """Let time pass until all of these are done."""
    for _ in range(10_000):
        if all(task.done() for task in tasks):
            return
        rack.clock.advance(0.1)
        await asyncio.sleep(0)
    raise AssertionError("it does not come to an end")


async def _until_it_waits(rack: RackUnderTest) -> None:
    """Return when the rack waits for its clock."""
    for _ in range(1000):
        await asyncio.sleep(0)
        if rack.clock.has_sleepers:
            return
    raise AssertionError("the rack does not wait for its clock")
