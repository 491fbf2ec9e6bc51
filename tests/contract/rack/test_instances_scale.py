"""What a request costs does not depend on how many instances there are.

Counted are the lines of the rack's own code that run, so that the verdict does not depend on the machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from capox import rack as rack_package
from capox.rack.state import Timing
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

FEW = 100
MANY = 1000

_RACK_FOLDER = str(Path(rack_package.__file__).parent)
_HEADERS = [(b"authorization", b"Bearer oxide-token-admin"), (b"content-type", b"application/json")]


class _Counter:
    """How many lines of the rack ran."""

    def __init__(self) -> None:
        self.lines = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """What Python calls at each call and line."""
        del event, argument
        if not frame.f_code.co_filename.startswith(_RACK_FOLDER):
            return None
        return self._count

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        del frame, argument
        self.lines += event == "line"
        return self._count


@contextmanager
def _counting() -> Iterator[_Counter]:
    counter = _Counter()
    before = sys.gettrace()
    sys.settrace(counter.trace)
    try:
        yield counter
    finally:
        sys.settrace(before)


async def _ask(rack: RackUnderTest, method: str, target: str, body: Any = None) -> Any:
    """One request without a client in between; the answer's JSON."""
    path, _, query = target.partition("?")
    content = b"" if body is None else json.dumps(body).encode()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": _HEADERS}
    await rack.app({**scope, "server": ("rack", 80), "scheme": "http"}, receive, send)
    assert sent[0]["status"] < 300, sent[1]["body"]
    return json.loads(sent[1]["body"]) if sent[1]["body"] else None


def _body(number: int) -> dict[str, Any]:
    """An instance with a NIC, a SNAT address, a boot disk and a group of its own."""
    interface = {
        "name": "net0",
        "description": "",
        "vpc_name": "wide",
        "subnet_name": "wide",
        "ip_config": {"type": "v4", "value": {"ip": {"type": "auto"}, "transit_ips": []}},
    }
    return life.MINIMAL | {
        "name": f"node{number:05}",
        "boot_disk": life.blank_disk(f"disk{number:05}"),
        "network_interfaces": {"type": "create", "params": [interface]},
        "start": True,
    }


async def _wide_rack() -> RackUnderTest:
    """A rack with room for thousands of instances."""
    rack = RackUnderTest(Timing(instance_create=0.0, disk_delete=0.0))
    rack.silo.quota_cpus = rack.silo.quota_memory_bytes = rack.silo.quota_storage_bytes = 2**60
    for sled in rack.state.sleds.values():
        sled.cpus, sled.memory_bytes = 100_000, 100_000 * GIB
    rack.pool_v4.links[rack.silo.id] = False
    rack.add_pool("wide", "v4", "10.0.0.0", "10.0.255.255", {rack.silo.id: True})
    vpc = {"name": "wide", "description": "", "dns_name": "wide"}
    await _ask(rack, "POST", "/v1/vpcs?project=demo", vpc)
    subnet = {"name": "wide", "description": "", "ipv4_block": "10.0.0.0/8"}
    await _ask(rack, "POST", "/v1/vpc-subnets?project=demo&vpc=wide", subnet)
    return rack


async def _costs(rack: RackUnderTest, number: int) -> dict[str, int]:
    """How many lines each operation takes for one more instance, which is gone in the end."""
    name = f"node{number:05}"
    steps: list[tuple[str, str, str, Any]] = [
        ("create", "POST", life.INSTANCES, _body(number)),
        ("view", "GET", life.path(name), None),
        ("list", "GET", "/v1/instances?project=demo&limit=20", None),
        ("reboot", "POST", life.path(name, "reboot"), None),
        ("utilization", "GET", "/v1/utilization", None),
        ("stop", "POST", life.path(name, "stop"), None),
        ("delete", "DELETE", life.path(name), None),
        ("delete disk", "DELETE", f"/v1/disks/disk{number:05}?project=demo", None),
    ]
    costs = {}
    for act, method, target, body in steps:
        with _counting() as counter:
            await _ask(rack, method, target, body)
        costs[act] = counter.lines
        rack.pass_time(60)
    return costs


async def test_cost_of_a_request_does_not_grow_with_the_instances() -> None:
    """1.5, 4: what is done with an instance among a thousand takes no more than among a hundred."""
    rack = await _wide_rack()
    async with rack:
        for number in range(FEW):
            await _ask(rack, "POST", life.INSTANCES, _body(number))
        await _costs(rack, MANY)
        among_few = await _costs(rack, MANY)
        for number in range(FEW, MANY):
            await _ask(rack, "POST", life.INSTANCES, _body(number))
        rack.pass_time(60)

        among_many = await _costs(rack, MANY)

        assert rack.app.violations == []
        assert len(rack.state.instances) == MANY
    ratios = {act: among_many[act] / lines for act, lines in among_few.items()}
    assert max(ratios.values()) < 1.1, ratios


async def test_every_instance_is_on_one_page() -> None:
    """1.5: walked page by page, a list of many gives each of them once."""
    rack = await _wide_rack()
    async with rack:
        for number in range(FEW):
            await _ask(rack, "POST", life.INSTANCES, _body(number))
        names: list[str] = []
        target = "/v1/instances?project=demo&limit=7"
        while True:
            page = await _ask(rack, "GET", target)
            names += [item["name"] for item in page["items"]]
            if page["next_page"] is None:
                break
            target = f"/v1/instances?limit=7&page_token={page['next_page']}"

    assert names == [f"node{number:05}" for number in range(FEW)]
