"""Attaching and detaching of floating IPs (semantics 3.2, 4.2, 4.6, 6)."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from capox.rack import instance_states
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

ATTACH = "/v1/floating-ips/entry/attach?project=demo"
DETACH = "/v1/floating-ips/entry/detach?project=demo"

STATUS = {"stopped": 202, "running": 202, "rebooting": 202, "starting": 503, "stopping": 503, "failed": 400}


def to(instance: str) -> dict[str, str]:
    """The body of an attach request."""
    return {"kind": "instance", "parent": instance}


async def bring_to(client: RackUnderTest, state: str) -> None:
    """Bring the running instance `node` into another state."""
    if state == "failed":
        instance_states.fail(client.state, life.record(client))
    elif state != "running":
        act = {"stopped": "stop", "stopping": "stop", "rebooting": "reboot", "starting": "stop"}[state]
        await client.must(202, "POST", life.path(act=act))
        if state in {"stopped", "starting"}:
            client.pass_time(client.state.timing.instance_stop)
        if state == "starting":
            await client.must(202, "POST", life.path(act="start"))
    assert await life.run_state(client) == state


@pytest.mark.parametrize("state", STATUS)
async def test_when_a_floating_ip_can_be_attached(client: RackUnderTest, state: str) -> None:
    """3.2: row floating IP attach; the 503 of passing states hides its cause, the 400 of a failed one does not."""
    await network.add_floating_ip(client)
    instance = await life.create_in(client, state, network_interfaces=network.IPV4)

    answer = await client.must(STATUS[state], "POST", ATTACH, to("node"))

    if STATUS[state] == 202:
        assert answer["instance_id"] == instance.id
    else:
        text = "cannot attach floating IP to instance in failed state" if state == "failed" else "Service Unavailable"
        assert answer["message"] == text
        assert (await network.view_floating_ip(client))["instance_id"] is None


@pytest.mark.parametrize("state", STATUS)
async def test_when_a_floating_ip_can_be_detached(client: RackUnderTest, state: str) -> None:
    """3.2: row floating IP detach; from a failed instance it cannot be, so that has to be stopped or deleted first."""
    await network.add_floating_ip(client)
    instance = await life.create_running(client, network_interfaces=network.IPV4)
    await network.attach(client)
    await bring_to(client, state)

    answer = await client.must(STATUS[state], "POST", DETACH)

    attached = (await network.view_floating_ip(client))["instance_id"]
    assert attached == (None if STATUS[state] == 202 else instance.id)
    if state == "failed":
        assert answer["message"] == "cannot detach floating IP from instance in failed state"
        await client.must(202, "POST", life.path(act="stop"))
        await network.detach(client)
        assert (await network.view_floating_ip(client))["instance_id"] is None
    elif STATUS[state] == 503:
        assert (answer["error_code"], answer["message"]) == ("ServiceNotAvailable", "Service Unavailable")


@pytest.mark.parametrize("act", ["attach", "detach"])
async def test_floating_ip_of_an_instance_that_is_being_created_stays(client: RackUnderTest, act: str) -> None:
    """3.2: column creating."""
    await network.add_floating_ip(client)
    await network.add_floating_ip(client, "other")
    client.state.timing = life.SLOW_CREATION
    external_ips = [{"type": "floating", "floating_ip": "entry"}]
    async with life.creating(client, network_interfaces=network.IPV4, external_ips=external_ips):
        if act == "attach":
            path, preposition = "/v1/floating-ips/other/attach?project=demo", "to"
        else:
            path, preposition = DETACH, "from"
        error = await client.refused(400, "POST", path, to("node") if act == "attach" else None)
    assert error["message"] == f"cannot {act} floating IP {preposition} instance in creating state"


async def test_lost_vmm_that_is_not_noticed_yet_is_unhealthy(client: RackUnderTest) -> None:
    """3.2: the instance still shows as running then."""
    await network.add_floating_ip(client)
    instance = await life.create_running(client, network_interfaces=network.IPV4)
    instance_states.crash_guest(client.state, instance)

    error = await client.refused(400, "POST", ATTACH, to("node"))

    assert await life.run_state(client) == "running"
    assert error["message"] == "cannot modify instance IPs or subnets, instance is in unhealthy state"


async def test_attaching_to_the_same_instance_again_has_no_effect(client: RackUnderTest) -> None:
    """6: 202."""
    await network.add_floating_ip(client)
    await life.create(client, network_interfaces=network.IPV4)
    first = await network.attach(client)
    modified = (await network.view_floating_ip(client))["time_modified"]

    again = await network.attach(client)

    assert again["instance_id"] == first["instance_id"]
    assert (await network.view_floating_ip(client))["time_modified"] == modified


async def test_attached_floating_ip_does_not_move(client: RackUnderTest) -> None:
    """6: it has to be detached first; the refusal leaves it where it is."""
    await network.add_floating_ip(client)
    first = await life.create(client, name="first", network_interfaces=network.IPV4)
    second = await life.create(client, name="second", network_interfaces=network.IPV4)
    await network.attach(client, instance="first")

    error = await client.refused(400, "POST", ATTACH, to("second"))

    text = "floating IP cannot be attached to one instance while still attached to another"
    assert (error["error_code"], error["message"]) == ("InvalidRequest", text)
    assert (await network.view_floating_ip(client))["instance_id"] == first["id"]
    await network.detach(client)
    assert (await network.attach(client, instance="second"))["instance_id"] == second["id"]


async def test_answer_to_a_detach_still_names_the_instance(client: RackUnderTest) -> None:
    """6: the next view does not."""
    await network.add_floating_ip(client)
    instance = await life.create(client, network_interfaces=network.IPV4)
    await network.attach(client)

    answer = await network.detach(client)

    assert answer["instance_id"] == instance["id"]
    assert (await network.view_floating_ip(client))["instance_id"] is None
    assert await network.external_ips_of(client) == [
        {
            "kind": "snat",
            "ip": "198.51.100.1",
            "ip_pool_id": client.pool_v4.id,
            "first_port": 0,
            "last_port": 16383,
        }
    ]


async def test_detaching_what_is_not_attached_has_no_effect(client: RackUnderTest) -> None:
    """6: 202, and it has no instance before and after."""
    await network.add_floating_ip(client)

    assert (await network.detach(client))["instance_id"] is None


async def test_instance_is_named_by_id_or_by_its_name_in_the_same_project(client: RackUnderTest) -> None:
    """1.6: a name is looked up in the floating IP's project; an instance of another project is refused."""
    await network.add_floating_ip(client)
    await client.must(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    elsewhere = await client.must(201, "POST", "/v1/instances?project=other", life.MINIMAL | {"name": "away"})
    here = await life.create(client, network_interfaces=network.IPV4)

    by_name = await client.refused(404, "POST", ATTACH, to("away"))
    by_id = await client.refused(400, "POST", ATTACH, to(elsewhere["id"]))

    assert by_name["message"] == 'not found: instance with name "away"'
    assert by_id["message"] == "floating IP must be in the same project as the instance"
    assert (await client.must(202, "POST", ATTACH, to(here["id"].upper())))["instance_id"] == here["id"]


@pytest.mark.parametrize(
    ("attachment", "version", "status"),
    [
        (network.IPV4, "v4", 202),
        (network.IPV4, "v6", 400),
        (network.IPV6, "v4", 400),
        (network.IPV6, "v6", 202),
        (network.DUAL_STACK, "v4", 202),
        (network.DUAL_STACK, "v6", 202),
        ({"type": "none"}, "v4", 400),
        ({"type": "none"}, "v6", 400),
    ],
)
async def test_primary_interface_needs_the_version(
    client: RackUnderTest, attachment: dict[str, Any], version: str, status: int
) -> None:
    """6: an IPv4 address needs a private IPv4 address, IPv6 likewise."""
    await network.add_floating_ip(client, version=version)
    instance = await life.create(client, network_interfaces=attachment)

    answer = await client.must(status, "POST", ATTACH, to("node"))

    if status == 400:
        start = f"The floating external IP is an IP{version} address, but the instance with ID {instance['id']}"
        assert answer["message"].startswith(start)
        assert (await network.view_floating_ip(client))["instance_id"] is None


async def test_several_floating_ips_lead_to_one_instance_but_no_more_than_32(client: RackUnderTest) -> None:
    """2.2: 32 beside the address for source NAT."""
    await life.create(client, network_interfaces=network.IPV4)
    for number in range(33):
        await network.add_floating_ip(client, f"ip{number}")
    for number in range(32):
        await network.attach(client, f"ip{number}")

    error = await client.refused(400, "POST", "/v1/floating-ips/ip32/attach?project=demo", to("node"))

    assert error["message"] == "an instance may not have more than 32 external IP addresses"
    assert len(await network.external_ips_of(client)) == 33


@pytest.mark.parametrize("first", ["attach", "detach"])
@pytest.mark.parametrize("second", ["attach", "attach elsewhere", "detach"])
async def test_second_operation_on_the_same_address_is_unavailable(
    client: RackUnderTest, first: str, second: str
) -> None:
    """6: 503 as long as another one is under way, which is not disturbed by it."""
    await network.add_floating_ip(client)
    instance = await life.create(client, network_interfaces=network.IPV4)
    await life.create(client, name="elsewhere", network_interfaces=network.IPV4)
    if first == "detach":
        await network.attach(client)
    under_way = await network.begin(client, "POST", ATTACH if first == "attach" else DETACH, to("node"))

    if second == "detach":
        error = await client.refused(503, "POST", DETACH)
    else:
        error = await client.refused(503, "POST", ATTACH, to("elsewhere" if "elsewhere" in second else "node"))

    assert error["error_code"] == "ServiceNotAvailable"
    # It shows where it is going to or coming from, and the instance does not have it yet or any more.
    assert (await network.view_floating_ip(client))["instance_id"] == instance["id"]
    assert {item["kind"] for item in await network.external_ips_of(client)} == {"snat"}
    await life.finish(client, under_way)
    assert under_way.result().status_code == 202
    attached = (await network.view_floating_ip(client))["instance_id"]
    assert attached == (instance["id"] if first == "attach" else None)


@pytest.mark.parametrize("act", ["attach", "detach"])
async def test_unreachable_sled_makes_it_wait_fail_and_revert(client: RackUnderTest, act: str) -> None:
    """3.2: 503 after the time-out of the sled, and nothing has changed; when the sled is back, it can be repeated."""
    await network.add_floating_ip(client)
    instance = await life.create_running(client, network_interfaces=network.IPV4)
    if act == "detach":
        await network.attach(client)
    before = await network.external_ips_of(client)
    sled = life.sled_of(client)
    instance_states.lose_sled(client.state, sled)
    began = client.clock.now()

    await client.refused(503, "POST", ATTACH if act == "attach" else DETACH, to("node"))

    assert (client.clock.now() - began).total_seconds() >= client.state.timing.sled_timeout
    attached = (await network.view_floating_ip(client))["instance_id"]
    assert attached == (None if act == "attach" else instance.id)
    assert [item["ip"] for item in await network.external_ips_of(client)] == [item["ip"] for item in before]
    instance_states.restore_sled(client.state, sled)
    await client.must(202, "POST", ATTACH if act == "attach" else DETACH, to("node"))


@pytest.mark.parametrize("act", ["attach", "detach"])
@pytest.mark.parametrize(("stop_seconds", "status"), [(120.0, 503), (30.0, 202)])
async def test_stop_in_the_middle_of_it(client: RackUnderTest, act: str, stop_seconds: float, status: int) -> None:
    """3.2: it ends in 503 without effect while the instance is stopping, and well when the instance has stopped."""
    client.state.timing = dataclasses.replace(client.state.timing, instance_stop=stop_seconds)
    await network.add_floating_ip(client)
    instance = await life.create_running(client, network_interfaces=network.IPV4)
    if act == "detach":
        await network.attach(client)
    under_way = await network.begin(client, "POST", ATTACH if act == "attach" else DETACH, to("node"))
    await client.must(202, "POST", life.path(act="stop"))

    await life.finish(client, under_way)

    assert under_way.result().status_code == status
    attached = (await network.view_floating_ip(client))["instance_id"] == instance.id
    assert attached == ((act == "attach") == (status == 202))


async def test_instance_deleted_meanwhile_is_not_found(client: RackUnderTest) -> None:
    """6: the floating IP is detached then and can be used for another instance at once."""
    await network.add_floating_ip(client)
    gone = await life.create(client, network_interfaces=network.IPV4)
    other = await life.create(client, name="other", network_interfaces=network.IPV4)
    under_way = await network.begin(client, "POST", ATTACH, to("node"))
    await client.must(204, "DELETE", life.path())
    assert (await network.view_floating_ip(client))["instance_id"] is None
    again = asyncio.ensure_future(client.ask("POST", ATTACH, to("other")))

    await life.finish(client, under_way, again)

    assert under_way.result().json()["message"] == f'not found: instance with id "{gone["id"]}"'
    assert again.result().status_code == 202
    assert (await network.view_floating_ip(client))["instance_id"] == other["id"]


async def test_instance_deleted_during_a_detach_does_not_disturb_it(client: RackUnderTest) -> None:
    """6: what was to be detached is detached."""
    await network.add_floating_ip(client)
    await life.create(client, network_interfaces=network.IPV4)
    await network.attach(client)
    under_way = await network.begin(client, "POST", DETACH)
    await client.must(204, "DELETE", life.path())

    await life.finish(client, under_way)

    assert under_way.result().status_code == 202
    assert (await network.view_floating_ip(client))["instance_id"] is None


async def test_floating_ip_outlives_its_instance(client: RackUnderTest) -> None:
    """4.6: it stays through a stop, and is detached when the instance is deleted."""
    await network.add_floating_ip(client)
    instance = await life.create_running(client, network_interfaces=network.IPV4)
    await network.attach(client)
    await bring_to(client, "stopped")
    assert (await network.view_floating_ip(client))["instance_id"] == instance.id

    await client.must(204, "DELETE", life.path())

    assert (await network.view_floating_ip(client))["instance_id"] is None
    assert network.addresses_in_use(client) == 1


async def test_instance_can_be_created_with_floating_ips(client: RackUnderTest) -> None:
    """4.2: by name or id; one that is attached elsewhere, unknown, or of another project unwinds the creation."""
    entry = await network.add_floating_ip(client)
    other = await network.add_floating_ip(client, "other")
    wanted = [{"type": "floating", "floating_ip": reference} for reference in ("entry", other["id"])]
    made = await life.create(client, network_interfaces=network.IPV4, external_ips=wanted)
    assert {(await network.view_floating_ip(client, name))["instance_id"] for name in ("entry", "other")} == {
        made["id"]
    }
    await client.must(201, "POST", "/v1/projects", {"name": "away", "description": ""})
    allocator = {"type": "auto", "pool_selector": network.AUTO_V4}
    foreign = await client.must(
        201,
        "POST",
        "/v1/floating-ips",
        {"name": "x", "description": "", "address_allocator": allocator},
        project="away",
    )
    used = network.addresses_in_use(client)

    for reference, status, message in (
        (entry["id"], 400, "floating IP cannot be attached to one instance while still attached to another"),
        ("ghost", 404, 'not found: floating-ip with name "ghost"'),
        (foreign["id"], 400, "floating IP must be in the same project as the instance"),
    ):
        wanted = [{"type": "floating", "floating_ip": reference}]
        error = await life.refuse_create(
            client, status, name="second", network_interfaces=network.IPV4, external_ips=wanted
        )
        assert error["message"] == message
    assert network.addresses_in_use(client) == used


async def test_unwinding_gives_floating_ips_back(client: RackUnderTest) -> None:
    """4.2: a creation that fails after them leaves them detached."""
    await network.add_floating_ip(client)
    wanted = [{"type": "floating", "floating_ip": "entry"}, {"type": "floating", "floating_ip": "ghost"}]

    await life.refuse_create(client, 404, network_interfaces=network.IPV4, external_ips=wanted)

    assert (await network.view_floating_ip(client))["instance_id"] is None
    assert network.addresses_in_use(client) == 1


async def test_viewer_may_not_attach(client: RackUnderTest) -> None:
    """1.1: 403, and 404 for a stranger."""
    await network.add_floating_ip(client)
    await life.create(client, network_interfaces=network.IPV4)

    for user, status in (("viewer", 403), ("stranger", 404), ("limited_collaborator", 202)):
        await client.must(status, "POST", ATTACH, to("node"), user=user)
        await client.must(status, "POST", DETACH, user=user)
