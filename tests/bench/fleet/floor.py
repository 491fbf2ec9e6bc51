"""The rack's floor: a bare script that makes the same calls with the same token bucket, and nothing else.

One write a machine to create and three to delete, as many at once as the provider has workers, beside one reader of the
lists at the provider's pace. It knows beforehand what the provider has to find out, keeps nothing and proves nothing.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import httpx

from capox.oxide.shared_list import TRANSITION_SECONDS
from capox.oxide.token_bucket import TokenBucket
from tests.bench.fleet.racks import TOKEN, calls_of
from tests.bench.fleet.results import FloorResult
from tests.rack_process import RackProcess

__all__ = ["measure_floor"]

WORKERS: Final = 32
"""As many machines at once as the provider works on."""

_GIB: Final = 1024**3
_LIMIT_SECONDS: Final = 1800.0
_PROJECT: Final = {"project": "demo"}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

T = TypeVar("T")


def measure_floor(rack: RackProcess, profile: str, *, machines: int, clusters: int) -> FloorResult:
    """Make and delete as many instances and floating IPs as a fleet has."""
    return asyncio.run(_measure(rack, profile, machines, clusters))


async def _measure(rack: RackProcess, profile: str, machines: int, clusters: int) -> FloorResult:
    async with (
        httpx.AsyncClient(base_url=rack.url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as http,
        asyncio.timeout(_LIMIT_SECONDS),
    ):
        script = _Script(http)
        await script.prepare()
        rack.control.clear_calls()
        began = time.monotonic()
        await script.create(machines, clusters)
        created = time.monotonic()
        create = calls_of(rack)
        # The bucket of a provider that deletes a fleet is full by then.
        script.refill()
        rack.control.clear_calls()
        asked = time.monotonic()
        await script.delete()
        deleted = time.monotonic()
    return FloorResult(
        profile=profile,
        machines=machines,
        create_seconds=created - began,
        delete_seconds=deleted - asked,
        create=create,
        delete=calls_of(rack),
    )


class _Script:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._bucket = TokenBucket()
        self._image = self._subnet = ""
        self._instances: list[dict[str, Any]] = []
        self._floating_ips: list[dict[str, Any]] = []

    async def prepare(self) -> None:
        """Look up what a machine's spec names."""
        self._image = (await self._ask("GET", "/v1/images"))["items"][0]["id"]
        self._subnet = (await self._ask("GET", "/v1/vpc-subnets/default", {"vpc": "default", **_PROJECT}))["id"]
        self.refill()

    def refill(self) -> None:
        """Begin with a full bucket."""
        self._bucket = TokenBucket()

    async def create(self, machines: int, clusters: int) -> None:
        """Make everything and wait until it runs and its addresses are known."""
        self._floating_ips = await _in_turn(range(clusters), self._create_floating_ip)
        made = asyncio.create_task(_in_turn(range(machines), self._create_instance))
        async for instances in self._readings():
            running = sum(each["run_state"] == "running" for each in instances)
            interfaces = [each async for each in self._list(f"/v1/vpc-subnets/{self._subnet}/network-interfaces")]
            if running == len(interfaces) == machines:
                break
        self._instances = await made

    async def delete(self) -> None:
        """Delete everything and wait until it is gone."""
        stopped: dict[str, asyncio.Event] = {each["id"]: asyncio.Event() for each in self._instances}

        async def delete(instance: dict[str, Any]) -> None:
            await stopped[instance["id"]].wait()
            await self._ask("DELETE", f"/v1/instances/{instance['id']}")
            await self._ask("DELETE", f"/v1/disks/{instance['boot_disk_id']}")

        async def stop_all() -> None:
            await _in_turn(self._instances, self._stop)

        stopping = asyncio.create_task(stop_all())
        deleting = asyncio.create_task(_in_turn(self._instances, delete))
        async for instances in self._readings():
            for each in instances:
                if each["run_state"] == "stopped":
                    stopped[each["id"]].set()
            if not instances:
                break
        await stopping
        await deleting
        for floating_ip in self._floating_ips:
            await self._ask("DELETE", f"/v1/floating-ips/{floating_ip['id']}")

    async def _create_floating_ip(self, number: int) -> dict[str, Any]:
        allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
        body = {"name": f"floor-{number}", "description": "", "address_allocator": allocator}
        made: dict[str, Any] = await self._ask("POST", "/v1/floating-ips", _PROJECT, json=body)
        return made

    async def _create_instance(self, number: int) -> dict[str, Any]:
        name = f"floor-{number:04}"
        source = {"type": "image", "image_id": self._image}
        stack = {"ip": {"type": "auto"}, "transit_ips": []}
        config = {"type": "dual_stack", "value": {"v4": stack, "v6": stack}}
        interface = {
            "name": name,
            "description": "",
            "vpc_name": "default",
            "subnet_name": "default",
            "ip_config": config,
        }
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 1,
            "memory": _GIB,
            "boot_disk": {
                "type": "create",
                "name": f"disk-{name}",
                "description": "",
                "size": 2 * _GIB,
                "disk_backend": {"type": "distributed", "disk_source": source},
            },
            "network_interfaces": {"type": "create", "params": [interface]},
            "external_ips": [],
            "ssh_public_keys": [],
            "user_data": base64.b64encode(f"#cloud-config\n# {name}\n".encode()).decode(),
        }
        made: dict[str, Any] = await self._ask("POST", "/v1/instances", _PROJECT, json=body)
        return made

    async def _stop(self, instance: dict[str, Any]) -> None:
        await self._ask("POST", f"/v1/instances/{instance['id']}/stop")

    async def _readings(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The project's instances at the provider's pace, for ever."""
        while True:
            began = time.monotonic()
            yield [each async for each in self._list("/v1/instances", _PROJECT)]
            await asyncio.sleep(max(0.0, began + TRANSITION_SECONDS - time.monotonic()))

    async def _list(self, path: str, query: Mapping[str, str] = _NOTHING) -> AsyncIterator[dict[str, Any]]:
        token: dict[str, str] = {"sort_by": "id_ascending"}
        while True:
            page = await self._ask("GET", path, {"limit": "1000", **token, **query})
            for item in page["items"]:
                yield item
            if not page["items"] or not page["next_page"]:
                return
            token = {"page_token": page["next_page"]}

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] = _NOTHING, *, json: dict[str, Any] | None = None
    ) -> Any:
        await self._bucket.acquire()
        answer = await self._http.request(method, path, params=query, json=json)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


async def _in_turn(items: Iterable[Any], work: Callable[[Any], Awaitable[T]]) -> list[T]:
    """Work on items, so many at once as there are workers."""
    slots = asyncio.Semaphore(WORKERS)

    async def one(item: Any) -> T:
        async with slots:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))
