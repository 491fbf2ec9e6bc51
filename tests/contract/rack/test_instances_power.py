"""What start, stop, reboot, delete and update do in each state of an instance (semantics 3.2)."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.rack import instance_life as life
from tests.rack import RackUnderTest

STATES = ("stopped", "starting", "running", "rebooting", "stopping", "failed", "creating")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is answered: a status, and either the run state in the answer or the error's message."""

    status: int
    text: str


_START_409 = "instance is in state creating but it must be stopped to be started"
_STOPPING_409 = "instance must finish stopping before it can be started"
_CREATING_400 = "cannot change instance state while it is still being created"
_DELETE_400 = "cannot delete instance: instance is running or has not yet fully stopped"
_DELETE_CREATING_400 = 'instance cannot be deleted in state "creating"'
_RESIZE_409 = "instance must be stopped to change CPU or memory"
_BOOT_409 = "instance must be stopped to set boot disk"

# One row an operation, one column a state, in the order of STATES; as the table of the semantics has it.
TABLE: dict[str, tuple[Cell, ...]] = {
    "start": (
        Cell(202, "starting"),
        Cell(202, "starting"),
        Cell(202, "running"),
        Cell(202, "rebooting"),
        Cell(409, _STOPPING_409),
        Cell(202, "starting"),
        Cell(409, _START_409),
    ),
    "stop": (
        Cell(202, "stopped"),
        Cell(202, "stopping"),
        Cell(202, "stopping"),
        Cell(202, "stopping"),
        Cell(202, "stopping"),
        Cell(202, "stopped"),
        Cell(400, _CREATING_400),
    ),
    "reboot": (
        Cell(400, "cannot reboot an instance in state stopped with no VMM"),
        Cell(202, "rebooting"),
        Cell(202, "rebooting"),
        Cell(202, "rebooting"),
        Cell(400, 'instance state cannot be changed from state "stopping"'),
        Cell(400, "instance state cannot be changed from failed"),
        Cell(400, _CREATING_400),
    ),
    "delete": (
        Cell(204, ""),
        Cell(400, _DELETE_400),
        Cell(400, _DELETE_400),
        Cell(400, _DELETE_400),
        Cell(400, _DELETE_400),
        Cell(204, ""),
        Cell(400, _DELETE_CREATING_400),
    ),
    "resize": (
        Cell(200, "stopped"),
        Cell(409, _RESIZE_409),
        Cell(409, _RESIZE_409),
        Cell(409, _RESIZE_409),
        Cell(409, _RESIZE_409),
        Cell(200, "failed"),
        Cell(200, "creating"),
    ),
    "boot_disk": (
        Cell(200, "stopped"),
        Cell(409, _BOOT_409),
        Cell(409, _BOOT_409),
        Cell(409, _BOOT_409),
        Cell(409, _BOOT_409),
        Cell(200, "failed"),
        Cell(200, "creating"),
    ),
    "auto_restart_policy": tuple(Cell(200, state) for state in STATES),
}
CELLS = [(act, state, cell) for act, row in TABLE.items() for state, cell in zip(STATES, row, strict=True)]

CHANGES: dict[str, dict[str, Any]] = {
    "resize": {"ncpus": 4},
    "boot_disk": {"boot_disk": "data"},
    "auto_restart_policy": {"auto_restart_policy": "never"},
}


@pytest.fixture
async def slow() -> AsyncIterator[RackUnderTest]:
    """A rack on which a creation takes so long that requests can come in between."""
    async with RackUnderTest(life.SLOW_CREATION) as rack:
        yield rack
        assert rack.app.violations == []


async def _act(rack: RackUnderTest, act: str, status: int) -> dict[str, Any] | None:
    if act == "delete":
        answer = await rack.must(status, "DELETE", life.path())
    elif act in CHANGES:
        answer = await rack.must(status, "PUT", life.path(), life.UNCHANGED | CHANGES[act])
    else:
        answer = await rack.must(status, "POST", life.path(act=act))
    found: dict[str, Any] | None = answer
    return found


@pytest.mark.parametrize(("act", "state", "cell"), CELLS, ids=[f"{act}-{state}" for act, state, _ in CELLS])
async def test_table_of_operations_by_state(slow: RackUnderTest, act: str, state: str, cell: Cell) -> None:
    """3.2: each operation in each state is answered as the table says, and a refusal leaves the state as it was."""
    disks = [life.blank_disk("data")]
    after: str | None
    if state == "creating":
        async with life.creating(slow, disks=disks):
            answer = await _act(slow, act, cell.status)
            after = await life.run_state(slow)
    else:
        await life.create_in(slow, state, disks=disks)
        answer = await _act(slow, act, cell.status)
        after = None if cell.status == 204 else await life.run_state(slow)

    if cell.status == 204:
        assert answer is None
        assert slow.state.instances.by_name(slow.project.id, "node") is None
        return
    assert answer is not None
    if cell.status < 300:
        assert (answer["run_state"], after) == (cell.text, cell.text)
    else:
        code = {400: "InvalidRequest", 409: "Conflict"}[cell.status]
        assert (answer["error_code"], answer["message"], after) == (code, cell.text, state)


@pytest.mark.parametrize(
    ("state", "seconds", "end"),
    [("starting", 0.5, "running"), ("rebooting", 0.5, "running"), ("stopping", 0.5, "stopped")],
)
async def test_passing_states_end_by_themselves(client: RackUnderTest, state: str, seconds: float, end: str) -> None:
    """3.2: starting and rebooting end in running and stopping in stopped, each in its time, which is when it says."""
    await life.create_in(client, state)
    began = client.clock.now()
    client.pass_time(seconds - 0.001)
    assert await life.run_state(client) == state

    client.pass_time(10)

    shown = await life.view(client)
    assert shown["run_state"] == end
    ended = datetime.datetime.fromisoformat(shown["time_run_state_updated"])
    assert (ended - began).total_seconds() == seconds


async def test_stop_during_start_wins(client: RackUnderTest) -> None:
    """3.2: an instance that is stopped while it starts does not run later."""
    await life.create_in(client, "starting")
    client.pass_time(0.3)
    await client.must(202, "POST", life.path(act="stop"))

    # The start would have ended by now, and the stop has not.
    client.pass_time(0.3)
    assert await life.run_state(client) == "stopping"

    client.pass_time(60)
    assert await life.run_state(client) == "stopped"


async def test_started_again_after_a_stop(client: RackUnderTest) -> None:
    """3.2: what was due for an earlier start does not shorten a later one."""
    await life.create_in(client, "starting")
    await client.must(202, "POST", life.path(act="stop"))
    client.pass_time(0.5)
    await client.must(202, "POST", life.path(act="start"))
    client.pass_time(0.4)
    assert await life.run_state(client) == "starting"

    client.pass_time(0.1)

    assert await life.run_state(client) == "running"


async def test_start_of_a_running_instance_touches_nothing(client: RackUnderTest) -> None:
    """3.2: the start that does nothing does not touch time_run_state_updated either."""
    await life.create_running(client)
    before = await life.view(client)
    client.pass_time(5)

    assert await client.must(202, "POST", life.path(act="start")) == before


async def test_failed_instance_is_stopped_at_once(client: RackUnderTest) -> None:
    """3.2: stop of a failed instance answers `stopped`, and the instance is not restarted later."""
    await life.create_in(client, "failed")

    assert (await client.must(202, "POST", life.path(act="stop")))["run_state"] == "stopped"

    client.pass_time(3600)
    assert await life.run_state(client) == "stopped"


async def test_power_needs_compute_rights(client: RackUnderTest) -> None:
    """1.1: a viewer sees an instance and may not move it; to a stranger it does not exist."""
    await life.create(client)
    for method, act in (("POST", "start"), ("POST", "stop"), ("POST", "reboot"), ("DELETE", "")):
        await client.refused(403, method, life.path(act=act), user="viewer")
        await client.refused(404, method, f"/v1/instances/{life.record(client).id}/{act}".rstrip("/"), user="stranger")

    await client.must(202, "POST", life.path(act="start"), user="limited_collaborator")
