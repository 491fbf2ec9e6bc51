"""Every kind of refusal that the simulated rack can be brought to, as the client tells it. On virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from capox.oxide import errors, models
from tests.contract.oxide_rack import LiveRack
from tests.rack import GIB
from tests.sim.loop import seconds, simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from capox.oxide import OxideClient

UNKNOWN = "11111111-2222-4333-8444-555555555555"


@asynccontextmanager
async def _rack(user: str = "admin", **options: Any) -> AsyncIterator[tuple[LiveRack, OxideClient]]:
    async with LiveRack() as rack, rack.client(user, **options) as oxide:
        yield rack, oxide
    assert rack.app.violations == []


def _instance(name: str = "machine-1", **changes: Any) -> models.InstanceCreate:
    fields: dict[str, Any] = {
        "name": name,
        "description": "",
        "hostname": name,
        "ncpus": 2,
        "memory": 4 * GIB,
        "network_interfaces": models.DefaultInterface(type="default_ipv4"),
        "ssh_public_keys": (),
        **changes,
    }
    return models.InstanceCreate(**fields)


@simulated
async def test_what_does_not_exist() -> None:
    """By name and by id; the rack's own words and its request id arrive."""
    async with _rack() as (rack, oxide):
        with pytest.raises(errors.ObjectNotFound) as by_name:
            await oxide.instance_view("machine-1", project="demo")
        with pytest.raises(errors.ObjectNotFound) as by_id:
            await oxide.disk_view(UNKNOWN)

        assert by_name.value.message == 'not found: instance with name "machine-1"'
        assert by_id.value.message == f'not found: disk with id "{UNKNOWN}"'
        assert by_id.value.request_id == rack.app.log.entries()[-1].request_id


@simulated
async def test_a_404_that_is_no_absence() -> None:
    """A wrong address or a proxy answers 404 without a code; it is not ObjectNotFound."""
    async with _rack() as (rack, oxide):
        rack.play("not_found_page", "instance_view")
        with pytest.raises(errors.APIError) as caught:
            await oxide.instance_view(UNKNOWN)

        assert type(caught.value) is errors.APIError
        assert (caught.value.status, caught.value.error_code) == (404, None)


@simulated
async def test_a_name_that_is_taken() -> None:
    """A create that is repeated tells so, and the first one stays."""
    async with _rack() as (_, oxide):
        made = await oxide.instance_create(_instance(start=False), project="demo")
        with pytest.raises(errors.ObjectAlreadyExists, match='already exists: instance "machine-1"') as caught:
            await oxide.instance_create(_instance(start=False), project="demo")

        assert caught.value.status == 400
        assert [each.id for each in await oxide.instance_list(project="demo").all()] == [made.id]


@simulated
async def test_requests_that_make_no_sense() -> None:
    """Wrong state, wrong selectors, and what the rack's HTTP framework cannot parse, are invalid requests."""
    async with _rack() as (_, oxide):
        made = await oxide.instance_create(_instance(), project="demo")
        with pytest.raises(errors.InvalidRequest, match="has not yet fully stopped"):
            await oxide.instance_delete(made.id)
        with pytest.raises(errors.InvalidRequest, match="project should not be specified"):
            await oxide.instance_view(made.id, project="demo")
        with pytest.raises(errors.InvalidRequest, match="project should be specified"):
            await oxide.instance_view("machine-1")
        with pytest.raises(errors.InvalidRequest, match="bad parameter in URL path") as unparsed:
            await oxide.instance_view("Machine-1", project="demo")

        assert unparsed.value.error_code is None


@simulated
async def test_a_value_out_of_bounds() -> None:
    """The rack's own limits are its own words."""
    async with _rack() as (_, oxide):
        with pytest.raises(errors.InvalidValue, match="memory must be at least 1 GiB"):
            await oxide.instance_create(_instance(memory=GIB // 2), project="demo")


@simulated
async def test_credentials() -> None:
    """A wrong token, one that may only look, and one that may not even do that."""
    async with _rack("of-nobody") as (_, oxide):
        with pytest.raises(errors.Unauthorized, match="credentials missing or invalid"):
            await oxide.current_user_view()
        assert (await oxide.ping()).status == "ok"
    async with _rack("viewer") as (_, oxide):
        with pytest.raises(errors.Forbidden):
            await oxide.instance_create(_instance(), project="demo")
    async with _rack("nobody") as (_, oxide):
        with pytest.raises(errors.ObjectNotFound):
            await oxide.project_view("demo")


@simulated
async def test_states_that_exclude_each_other() -> None:
    """A start while it stops is a conflict; an attachment while it starts passes by itself."""
    async with _rack() as (_, oxide):
        address = await oxide.floating_ip_create(
            models.FloatingIpCreate(
                name="endpoint",
                description="",
                address_allocator=models.AnyAddress(pool_selector=models.DefaultPool(ip_version=models.IpVersion.V4)),
            ),
            project="demo",
        )
        made = await oxide.instance_create(_instance(), project="demo")
        with pytest.raises(errors.ServiceUnavailable) as passing:
            await oxide.floating_ip_attach(address.id, models.FloatingIpAttach(parent=made.id))
        await oxide.instance_stop(made.id)
        with pytest.raises(errors.Conflict, match="must finish stopping"):
            await oxide.instance_start(made.id)

        assert passing.value.retryable
        assert (await oxide.floating_ip_view(address.id)).instance_id is None


@simulated
async def test_no_room() -> None:
    """A create that cannot start still succeeds; its start says why."""
    async with _rack() as (_, oxide):
        made = await oxide.instance_create(_instance(ncpus=200), project="demo")
        with pytest.raises(errors.InsufficientCapacity, match="Insufficient capacity") as caught:
            await oxide.instance_start(made.id)

        assert made.run_state is models.InstanceState.STOPPED
        assert not caught.value.retryable


@simulated
async def test_what_passes_by_itself_is_waited_for_by_reads() -> None:
    """Two bad answers and a cut connection later the read succeeds, and its caller sees nothing of them."""
    async with _rack() as (rack, oxide):
        for kind in ("unavailable", "internal_error", "lost_reply"):
            rack.play(kind, "instance_list")

        assert await oxide.instance_list(project="demo").all() == []
        assert rack.asked("instance_list") == 4


@simulated
async def test_a_failure_after_the_work() -> None:
    """A 500, a cut connection, a late answer: the instance exists, and none of them is repeated."""
    for kind, expected in (
        ("internal_error_after", errors.InternalError),
        ("lost_reply", errors.TransportError),
        ("slow_answer", errors.TransportError),
        ("slow", errors.TransportError),
    ):
        async with _rack(write_deadline_seconds=5.0) as (rack, oxide):
            rack.play(kind, "instance_create", seconds=30)
            with pytest.raises(expected) as caught:
                await oxide.instance_create(_instance(start=False), project="demo")
            await rack.app.finish()

            assert rack.asked("instance_create") == 1
            if isinstance(caught.value, errors.TransportError):
                assert caught.value.outcome_unknown
            assert [each.name for each in await oxide.instance_list(project="demo").all()] == ["machine-1"]


@simulated
async def test_a_create_whose_client_gave_up_is_finished() -> None:
    """The rack goes on when nobody listens: the instance appears after the client's deadline."""
    async with _rack(write_deadline_seconds=0.01) as (rack, oxide):
        with pytest.raises(errors.TransportError) as caught:
            await oxide.instance_create(_instance(start=False), project="demo")
        at_the_deadline = seconds()
        await rack.app.finish()

        assert caught.value.outcome_unknown
        assert seconds() > at_the_deadline
        assert (await oxide.instance_view("machine-1", project="demo")).run_state is models.InstanceState.STOPPED


@simulated
async def test_a_rack_that_is_older_than_we_are() -> None:
    """It refuses our version in words that name it."""
    async with _rack() as (rack, oxide):
        rack.state.latest_version = "2026010300.0.0"
        with pytest.raises(errors.InvalidRequest, match=r"does not support this API version: 2026060800\.0\.0"):
            await oxide.current_user_view()
