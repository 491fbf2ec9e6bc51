"""What tests put on the rack by hand: instances in any state, and bodies of requests about disks."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import httpx

from capox.rack import records, storage
from tests.rack import GIB, START, RackUnderTest


def put_instance(
    rack: RackUnderTest,
    name: str,
    state: records.InstanceState = "stopped",
    *,
    project: records.Project | None = None,
) -> records.Instance:
    """An instance in a state, put there directly and without anything that belongs to it."""
    return rack.state.instances.insert(
        records.Instance(
            **rack.state.identity(name, ""),
            project=(project or rack.project).id,
            hostname=name,
            ncpus=2,
            memory_bytes=4 * GIB,
            user_data=b"",
            ssh_keys=(),
            state=state,
            time_run_state_updated=START,
        )
    )


def disk_body(name: str, *, gib: int = 10, source: dict[str, Any] | None = None) -> dict[str, Any]:
    """A request for a distributed disk; blank unless a source is given."""
    source = source or {"type": "blank", "block_size": 512}
    backend = {"type": "distributed", "disk_source": source}
    return {"name": name, "description": "", "size": gib * GIB, "disk_backend": backend}


def local_disk_body(name: str, *, gib: int = 10) -> dict[str, Any]:
    """A request for a local disk."""
    return {"name": name, "description": "", "size": gib * GIB, "disk_backend": {"type": "local"}}


async def add_disk(rack: RackUnderTest, name: str, **options: Any) -> records.Disk:
    """A distributed disk in the project `demo`, made over HTTP."""
    made = await rack.must(201, "POST", "/v1/disks", disk_body(name, **options), project="demo")
    disk = rack.state.disks.by_id(made["id"])
    assert disk is not None
    return disk


async def add_snapshot(rack: RackUnderTest, name: str, *, gib: int = 10) -> records.Snapshot:
    """A snapshot of a new disk of the same name, made over HTTP."""
    await add_disk(rack, name, gib=gib)
    body = {"name": name, "description": "", "disk": name}
    made = await rack.must(201, "POST", "/v1/snapshots", body, project="demo")
    snapshot = rack.state.snapshots.by_id(made["id"])
    assert snapshot is not None
    return snapshot


async def add_attached_disk(rack: RackUnderTest, name: str, instance: records.Instance) -> records.Disk:
    """A disk that is attached to an instance, whatever the instance is doing."""
    disk = await add_disk(rack, name)
    storage.attach(rack.state, instance, disk)
    return disk


async def begin(
    rack: RackUnderTest, method: str, path: str, body: Any = None, **query: Any
) -> asyncio.Task[httpx.Response]:
    """Send a request about a disk as `admin` and return while the rack works on it, which takes it a minute."""
    rack.state.timing = dataclasses.replace(rack.state.timing, disk_create=60, disk_delete=60)
    headers = {"authorization": "Bearer oxide-token-admin"}
    arguments = {} if body is None else {"json": body}
    request = asyncio.create_task(rack.http.request(method, path, params=query, headers=headers, **arguments))
    for _ in range(1000):
        if rack.clock.has_sleepers:
            return request
        assert not request.done(), f"{method} {path} was answered at once: {request.result().text}"
        await asyncio.sleep(0)
    raise AssertionError(f"{method} {path} neither takes time nor is answered")


async def disk_state(rack: RackUnderTest, name: str) -> str:
    """The state in which a disk of the project `demo` is shown."""
    state: str = (await rack.must(200, "GET", f"/v1/disks/{name}", project="demo"))["state"]["state"]
    return state
