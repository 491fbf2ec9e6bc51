"""The creation of an instance as a saga: what is visible meanwhile, and what a failure leaves (semantics 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from capox.rack import inventory
from capox.rack.faults import FaultRule
from capox.rack.json import JSON
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

AUTO_V4 = {"type": "ephemeral", "pool_selector": {"type": "auto", "ip_version": "v4"}}
FLOATING = {"type": "floating", "floating_ip": "vip"}
# Every part that an instance can have.
EVERYTHING: dict[str, Any] = {
    "name": "whole",
    "boot_disk": life.blank_disk("root"),
    "disks": [{"type": "attach", "name": "kept"}, life.blank_disk("data")],
    "network_interfaces": {"type": "default_dual_stack"},
    "external_ips": [AUTO_V4, FLOATING],
    "anti_affinity_groups": ["workers"],
    "start": True,
}


@pytest.fixture
async def slow() -> AsyncIterator[RackUnderTest]:
    """A rack on which a creation takes so long that requests can come in between."""
    async with RackUnderTest(life.SLOW_CREATION) as rack:
        yield rack
        assert rack.app.violations == []


async def _furnish(rack: RackUnderTest) -> None:
    """What `EVERYTHING` refers to: a group, a floating IP and a disk."""
    group = {"name": "workers", "description": "", "policy": "allow", "failure_domain": "sled"}
    await rack.must(201, "POST", "/v1/anti-affinity-groups?project=demo", group)
    fip = {"name": "vip", "description": "", "address_allocator": {"type": "explicit", "ip": "198.51.100.9"}}
    await rack.must(201, "POST", "/v1/floating-ips?project=demo", fip)
    kept = {key: value for key, value in life.blank_disk("kept").items() if key != "type"}
    await rack.must(201, "POST", "/v1/disks?project=demo", kept)


def _timeless(dump: JSON) -> JSON:
    """A dump without the times of changes: to take a change back is a change, too."""
    if isinstance(dump, dict):
        return {key: _timeless(value) for key, value in dump.items() if key != "time_modified"}
    return [_timeless(member) for member in dump] if isinstance(dump, list) else dump


def _world(rack: RackUnderTest) -> tuple[Any, ...]:
    """Everything that is on the rack, with the books that its records do not show."""
    state = rack.state
    return (
        _timeless(inventory.dump(state)),
        {key: book.taken_count for key, book in state.subnet_addresses.items()},
        *(
            {instance: sorted(held) for instance, held in index.items() if held}
            for index in (state.disks_of, state.floating_ips_of, state.groups_of, state.external_subnets_of)
        ),
        {instance: len(held) for instance, held in state.ephemeral_ips_of.items() if held},
        sorted(state.snat_ips_of),
        len(state.network_interfaces),
    )


async def test_everything_at_once(client: RackUnderTest) -> None:
    """4.2: one request makes the instance with all its parts, and the answer comes when they are there."""
    await _furnish(client)

    view = await client.must(201, "POST", life.INSTANCES, life.MINIMAL | EVERYTHING)

    assert view["run_state"] == "starting"
    disks = (await client.must(200, "GET", life.path("whole", "disks")))["items"]
    assert [(disk["name"], disk["state"]["state"]) for disk in disks] == [
        ("data", "attached"),
        ("kept", "attached"),
        ("root", "attached"),
    ]
    assert view["boot_disk_id"] == disks[2]["id"]
    addresses = (await client.must(200, "GET", life.path("whole", "external-ips")))["items"]
    assert sorted(address["kind"] for address in addresses) == ["ephemeral", "floating", "snat"]
    assert (await client.must(200, "GET", "/v1/floating-ips/vip?project=demo"))["instance_id"] == view["id"]


async def test_visible_while_it_is_made(slow: RackUnderTest) -> None:
    """3.1: while the request runs, view and list show the record as `creating`; nothing runs and no time is missing."""
    await _furnish(slow)

    async with life.creating(slow, **EVERYTHING) as request:
        assert await life.run_state(slow, "whole") == "creating"
        listed = (await slow.must(200, "GET", life.INSTANCES))["items"]
        assert [(item["name"], item["run_state"]) for item in listed] == [("whole", "creating")]
        assert len((await slow.must(200, "GET", life.path("whole", "disks")))["items"]) == 3
        assert (await life.view(slow, "whole"))["boot_disk_id"] is None
        assert not request.done()

    answer = await request
    assert (answer.status_code, answer.json()["run_state"]) == (201, "starting")
    assert answer.json()["boot_disk_id"]


async def test_disks_come_after_addresses(slow: RackUnderTest) -> None:
    """4.2: interfaces and addresses are made before disks, so they can be seen before."""
    await _furnish(slow)

    async with life.creating(slow, has_disks=False, **EVERYTHING) as request:
        assert len((await slow.must(200, "GET", life.path("whole", "external-ips")))["items"]) == 3
        assert (await slow.must(200, "GET", life.path("whole", "disks")))["items"] == []

    assert (await request).status_code == 201


async def test_same_name_at_the_same_time(client: RackUnderTest) -> None:
    """4.2: of many creations of one name exactly one wins; the others are told that the name is taken."""
    body = life.MINIMAL | {"network_interfaces": {"type": "default_ipv4"}}
    answers = await asyncio.gather(*(client.ask("POST", life.INSTANCES, body) for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [201] + [400] * 19
    codes = {answer.json().get("error_code") for answer in answers if answer.status_code == 400}
    assert codes == {"ObjectAlreadyExists"}
    assert len(client.state.instances) == len(client.state.network_interfaces) == 1


async def test_same_disk_at_the_same_time(client: RackUnderTest) -> None:
    """4.2: of two creations that make a disk of one name, the loser leaves nothing, not even its own disks."""
    bodies = [
        life.MINIMAL | {"name": name, "disks": [life.blank_disk(f"{name}-data"), life.blank_disk("shared")]}
        for name in ("first", "second")
    ]
    answers = await asyncio.gather(*(client.ask("POST", life.INSTANCES, body) for body in bodies))

    assert sorted(answer.status_code for answer in answers) == [201, 400]
    winner = next(answer.json()["name"] for answer in answers if answer.status_code == 201)
    assert sorted(disk.name for disk in client.state.disks) == [f"{winner}-data", "shared"]


# Each makes a different step of the saga fail: what the request changes, the fault that it meets, and the answer.
_EXPLICIT_NIC = {
    "name": "nic",
    "description": "",
    "vpc_name": "default",
    "subnet_name": "default",
    "ip_config": {"type": "v4", "value": {"ip": {"type": "explicit", "value": "172.30.0.2"}, "transit_ips": []}},
}
FAILURES: dict[str, tuple[dict[str, Any], FaultRule | None, int]] = {
    "interface": ({"network_interfaces": {"type": "create", "params": [_EXPLICIT_NIC]}}, None, 400),
    "vpc": ({"network_interfaces": {"type": "create", "params": [_EXPLICIT_NIC | {"vpc_name": "none"}]}}, None, 404),
    "snat": ({}, FaultRule(kind="pool_exhausted"), 507),
    "floating-ip": ({"external_ips": [AUTO_V4, {"type": "floating", "floating_ip": "none"}]}, None, 404),
    "pool": (
        {"external_ips": [FLOATING, {"type": "ephemeral", "pool_selector": {"type": "explicit", "pool": "none"}}]},
        None,
        404,
    ),
    "family": ({"network_interfaces": {"type": "default_ipv6"}, "external_ips": [FLOATING]}, None, 400),
    "disk-name": ({"disks": [life.blank_disk("data"), life.blank_disk("kept")]}, None, 400),
    "disk-quota": ({"disks": [life.blank_disk("data"), life.blank_disk("huge", size_gib=1000)]}, None, 507),
    "disk-description": ({"disks": [life.blank_disk("data") | {"description": "d" * 513}]}, None, 500),
    "missing-disk": ({"disks": [life.blank_disk("data"), {"type": "attach", "name": "none"}]}, None, 404),
}


@pytest.mark.parametrize("step", sorted(FAILURES))
async def test_failure_leaves_nothing(client: RackUnderTest, step: str) -> None:
    """4.2: whichever step fails, everything is as it was before, and the name can be used at once."""
    changes, fault, status = FAILURES[step]
    await _furnish(client)
    client.silo.quota_storage_bytes = 500 * GIB
    before = _world(client)
    if fault is not None:
        client.app.faults.add(fault)

    await client.refused(status, "POST", life.INSTANCES, life.MINIMAL | EVERYTHING | changes)

    client.app.faults.clear()
    assert _world(client) == before
    await client.must(201, "POST", life.INSTANCES, life.MINIMAL | EVERYTHING)


async def test_cancelled_creation_leaves_nothing(slow: RackUnderTest) -> None:
    """4.2: a creation that is torn off in the middle, as when the rack ends, is taken back like a refused one."""
    await _furnish(slow)
    before = _world(slow)

    async with life.creating(slow, **EVERYTHING) as request:
        assert _world(slow) != before
        (saga,) = slow.app._running
        saga.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    assert _world(slow) == before


async def test_boot_disk_taken_away_meanwhile(slow: RackUnderTest) -> None:
    """3.2, 4.2: a disk can be detached while the instance is created; without its boot disk the creation unwinds."""
    async with life.creating(slow, name="whole", boot_disk=life.blank_disk("root")) as request:
        await slow.must(202, "POST", life.path("whole", "disks/detach"), {"disk": "root"})

    answer = await request
    assert (answer.status_code, answer.json()["message"]) == (409, "boot disk must be attached")
    assert len(slow.state.instances) == len(slow.state.disks) == 0


async def test_disk_attached_meanwhile_survives_the_unwinding(slow: RackUnderTest) -> None:
    """3.2, 4.2: a disk that somebody attaches during the creation is only detached when the creation unwinds."""
    await _furnish(slow)

    async with life.creating(slow, name="whole", boot_disk=life.blank_disk("root")) as request:
        await slow.must(202, "POST", life.path("whole", "disks/attach"), {"disk": "kept"})
        await slow.must(202, "POST", life.path("whole", "disks/detach"), {"disk": "root"})

    assert (await request).status_code == 409
    assert [(disk.name, disk.state) for disk in slow.state.disks] == [("kept", "detached")]


async def test_created_disk_that_went_elsewhere_stays(slow: RackUnderTest) -> None:
    """4.2: a disk of the creation that somebody gave to another instance meanwhile is not taken from that one."""
    await slow.must(201, "POST", life.INSTANCES, life.MINIMAL | {"name": "other"})

    async with life.creating(slow, name="whole", boot_disk=life.blank_disk("root")) as request:
        await slow.must(202, "POST", life.path("whole", "disks/detach"), {"disk": "root"})
        await slow.must(202, "POST", life.path("other", "disks/attach"), {"disk": "root"})

    assert (await request).status_code == 409
    assert [disk.instance for disk in slow.state.disks] == [life.record(slow, "other").id]


async def test_client_that_goes_away(slow: RackUnderTest) -> None:
    """1.3: when the client gives up, the creation goes on to its end."""
    async with life.creating(slow, **life.MINIMAL) as request:
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert await life.run_state(slow) == "creating"
    await life.finish(slow, *slow.app._running)

    assert await life.run_state(slow) == "stopped"


async def test_boot_disk_among_the_disks(client: RackUnderTest) -> None:
    """4.2: naming the boot disk among the disks as well is tolerated, as long as only one of them creates it."""
    await life.create(client, boot_disk=life.blank_disk("root"), disks=[{"type": "attach", "name": "root"}])

    assert len((await client.must(200, "GET", life.path(act="disks")))["items"]) == 1


async def test_without_boot_disk(client: RackUnderTest) -> None:
    """4.2: with disks and no boot disk, none is recorded."""
    view = await life.create(client, disks=[life.blank_disk("data")])

    assert view["boot_disk_id"] is None
