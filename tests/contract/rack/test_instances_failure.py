"""Failed instances, automatic restarts, and sleds that do not answer (semantics 3.1, 3.3)."""

from __future__ import annotations

import datetime

import pytest

from capox.rack import instance_states, views
from capox.rack.faults import FaultRule
from capox.rack.state import Timing
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

# The defaults of `Timing`.
NOTICE_SECONDS = Timing().failure_notice
RESTART_SECONDS = Timing().auto_restart
START_SECONDS = Timing().instance_start
COOLDOWN_SECONDS = Timing().auto_restart_cooldown
SLED_TIMEOUT_SECONDS = Timing().sled_timeout


async def test_crashed_guest_is_noticed_and_restarted(client: RackUnderTest) -> None:
    """3.3: running, then failed, then starting, then running, with the same id; the restart is on record."""
    instance = await life.create_running(client)
    before = await life.view(client)
    restarted = client.clock.now() + datetime.timedelta(seconds=NOTICE_SECONDS + RESTART_SECONDS)

    instance_states.crash_guest(client.state, instance)
    assert await life.run_state(client) == "running"
    client.pass_time(NOTICE_SECONDS)
    assert await life.run_state(client) == "failed"
    client.pass_time(RESTART_SECONDS)
    assert await life.run_state(client) == "starting"
    client.pass_time(START_SECONDS)

    after = await life.view(client)
    assert (after["run_state"], after["id"]) == ("running", before["id"])
    assert before["time_last_auto_restarted"] is before["auto_restart_cooldown_expiration"] is None
    assert after["time_last_auto_restarted"] == views.timestamp(restarted)
    cooled_down = restarted + datetime.timedelta(minutes=5)
    assert after["auto_restart_cooldown_expiration"] == views.timestamp(cooled_down)
    await client.must(202, "POST", life.path(act="stop"))


async def test_second_restart_waits_for_the_cooldown(client: RackUnderTest) -> None:
    """3.3: the first restart is immediate, the next one comes five minutes after it."""
    instance = await life.create_running(client)
    instance_states.fail(client.state, instance)
    client.pass_time(RESTART_SECONDS + START_SECONDS)
    first = instance.time_last_auto_restarted
    assert first is not None

    instance_states.fail(client.state, instance)
    client.pass_time(COOLDOWN_SECONDS - START_SECONDS - 0.001)
    assert await life.run_state(client) == "failed"
    client.pass_time(0.001)

    assert await life.run_state(client) == "starting"
    second = instance.time_last_auto_restarted
    assert second is not None
    assert (second - first).total_seconds() == COOLDOWN_SECONDS


@pytest.mark.parametrize(("policy", "enabled"), [(None, True), ("best_effort", True), ("never", False)])
async def test_policy_decides(client: RackUnderTest, policy: str | None, *, enabled: bool) -> None:
    """3.3: no policy behaves like best_effort; the view shows both the policy and what follows from it."""
    instance = await life.create_running(client, auto_restart_policy=policy)
    instance_states.fail(client.state, instance)
    client.pass_time(3600)

    shown = await life.view(client)
    assert (shown["auto_restart_policy"], shown["auto_restart_enabled"]) == (policy, enabled)
    assert shown["run_state"] == ("running" if enabled else "failed")


async def test_policy_changed_while_failed(client: RackUnderTest) -> None:
    """3.3: a failed instance comes back when its policy is changed to allow it; its time has come long ago."""
    instance = await life.create_running(client, auto_restart_policy="never")
    instance_states.fail(client.state, instance)
    client.pass_time(3600)

    await client.must(200, "PUT", life.path(), life.UNCHANGED | {"auto_restart_policy": "best_effort"})

    assert await life.run_state(client) == "starting"


async def test_policy_withdrawn_before_the_restart(client: RackUnderTest) -> None:
    """3.3: a planned restart does not happen when the policy forbids it by then."""
    instance = await life.create_running(client)
    instance_states.fail(client.state, instance)

    await client.must(200, "PUT", life.path(), life.UNCHANGED | {"auto_restart_policy": "never"})
    client.pass_time(3600)

    assert await life.run_state(client) == "failed"


async def test_stopped_while_crashing_is_not_restarted(client: RackUnderTest) -> None:
    """3.3: only what is meant to run is restarted; a stop before the failure is noticed counts."""
    instance = await life.create_running(client)
    await client.must(202, "POST", life.path(act="stop"))
    instance_states.crash_guest(client.state, instance)

    client.pass_time(3600)

    assert await life.run_state(client) == "failed"


async def test_refused_delete_disables_restart(client: RackUnderTest) -> None:
    """3.2: a delete that is refused has already declared that the instance is not meant to run."""
    instance = await life.create_running(client)
    await client.refused(400, "DELETE", life.path())
    instance_states.fail(client.state, instance)

    client.pass_time(3600)

    assert await life.run_state(client) == "failed"


async def test_reboot_of_a_failed_instance_enables_restart(client: RackUnderTest) -> None:
    """3.2: a reboot that is refused has declared that the instance is meant to run."""
    instance = await life.create_running(client)
    await client.refused(400, "DELETE", life.path())
    instance_states.fail(client.state, instance)

    await client.refused(400, "POST", life.path(act="reboot"))
    client.pass_time(RESTART_SECONDS)

    assert await life.run_state(client) == "starting"


async def test_guest_powers_itself_off(client: RackUnderTest) -> None:
    """3.3: a guest that shuts down ends in stopped and is not restarted."""
    instance = await life.create_running(client)
    instance_states.power_off_guest(client.state, instance)
    assert await life.run_state(client) == "stopping"

    client.pass_time(3600)

    assert await life.run_state(client) == "stopped"


async def test_start_of_a_failed_instance_overtakes_the_restart(client: RackUnderTest) -> None:
    """3.2: a failed instance can be started; the rack does not restart it once more, and it is no automatic one."""
    instance = await life.create_in(client, "failed")

    await client.must(202, "POST", life.path(act="start"))
    client.pass_time(3600)

    assert await life.run_state(client) == "running"
    assert instance.time_last_auto_restarted is None


async def test_start_of_a_failed_instance_without_a_sled(client: RackUnderTest) -> None:
    """3.2, 3.3: it stays failed; but it is meant to run now, so the rack goes on trying."""
    instance = await life.create_running(client)
    await client.refused(400, "DELETE", life.path())
    instance_states.fail(client.state, instance)
    client.app.faults.add(FaultRule(kind="start_failure", operation="instance_start", times=1))

    await client.refused(507, "POST", life.path(act="start"))

    assert await life.run_state(client) == "failed"
    client.pass_time(RESTART_SECONDS)
    assert await life.run_state(client) == "starting"


async def test_deleted_while_a_restart_is_planned(client: RackUnderTest) -> None:
    """3.3: a failed instance that is deleted does not come back."""
    await life.create_in(client, "failed")

    await client.must(204, "DELETE", life.path())
    client.pass_time(3600)

    await client.refused(404, "GET", life.path())
    assert all(sled.reserved_cpus == 0 for sled in client.state.sleds.values())


@pytest.mark.parametrize("act", ["stop", "reboot"])
async def test_power_of_an_unknown_vmm(client: RackUnderTest, act: str) -> None:
    """1.3: the sled no longer knows the instance: 503 without an error code, and the instance becomes failed."""
    instance = await life.create_running(client)
    instance_states.crash_guest(client.state, instance)

    error = await client.refused(503, "POST", life.path(act=act))

    assert "error_code" not in error
    assert "no longer reachable" in error["message"]
    assert await life.run_state(client) == "failed"
    client.pass_time(RESTART_SECONDS)
    assert await life.run_state(client) == ("starting" if act == "reboot" else "failed")


@pytest.mark.parametrize("act", ["stop", "reboot"])
@pytest.mark.parametrize("state", ["starting", "running", "rebooting", "stopping"])
async def test_power_on_a_lost_sled(client: RackUnderTest, state: str, act: str) -> None:
    """3.2, 10: a sled that does not answer makes stop and reboot wait for its time limit and end in the opaque 503."""
    await life.create_in(client, state)
    instance_states.lose_sled(client.state, life.sled_of(client))
    began = client.clock.now()

    error = await client.refused(503, "POST", life.path(act=act))

    assert (error["error_code"], error["message"]) == ("ServiceNotAvailable", "Service Unavailable")
    assert (client.clock.now() - began).total_seconds() >= SLED_TIMEOUT_SECONDS
    assert await life.run_state(client) == state


async def test_lost_sled_leaves_its_instances_as_they_are(client: RackUnderTest) -> None:
    """3.3: a sled that merely does not answer leaves its instances running for as long as it lasts."""
    await life.create_running(client)
    sled = life.sled_of(client)
    instance_states.lose_sled(client.state, sled)
    client.pass_time(86_400)
    assert await life.run_state(client) == "running"

    instance_states.restore_sled(client.state, sled)
    client.pass_time(86_400)

    assert await life.run_state(client) == "running"


@pytest.mark.parametrize(("state", "end"), [("starting", "running"), ("rebooting", "running"), ("stopping", "stopped")])
async def test_lost_sled_holds_up_what_was_under_way(client: RackUnderTest, state: str, end: str) -> None:
    """3.3: what a sled was doing when it was cut off is seen to end only when it answers again."""
    await life.create_in(client, state)
    sled = life.sled_of(client)
    instance_states.lose_sled(client.state, sled)
    client.pass_time(86_400)
    assert await life.run_state(client) == state

    instance_states.restore_sled(client.state, sled)
    client.pass_time(1)

    assert await life.run_state(client) == end


async def test_rebooted_sled_has_forgotten_its_instances(client: RackUnderTest) -> None:
    """3.3: a sled that comes back without its instances makes them failed, and they are restarted."""
    await life.create_running(client)
    sled = life.sled_of(client)
    instance_states.lose_sled(client.state, sled)
    client.pass_time(60)
    assert await life.run_state(client) == "running"

    instance_states.restore_sled(client.state, sled, rebooted=True)
    client.pass_time(NOTICE_SECONDS)
    assert await life.run_state(client) == "failed"
    client.pass_time(RESTART_SECONDS + START_SECONDS)

    assert await life.run_state(client) == "running"


async def test_crash_on_a_lost_sled_is_noticed_when_it_is_back(client: RackUnderTest) -> None:
    """3.3: nobody tells the rack of a crash while the sled does not answer."""
    instance = await life.create_running(client)
    sled = life.sled_of(client)
    instance_states.lose_sled(client.state, sled)
    instance_states.crash_guest(client.state, instance)
    client.pass_time(60)
    assert await life.run_state(client) == "running"

    instance_states.restore_sled(client.state, sled)
    client.pass_time(NOTICE_SECONDS)

    assert await life.run_state(client) == "failed"


async def test_expunged_sled_gives_up_its_instances(client: RackUnderTest) -> None:
    """3.3: the instances of an expunged sled fail and come back on another one; the sled does not."""
    instance = await life.create_running(client)
    sled = life.sled_of(client)

    instance_states.expunge_sled(client.state, sled)
    client.pass_time(NOTICE_SECONDS)
    assert await life.run_state(client) == "failed"
    client.pass_time(RESTART_SECONDS + START_SECONDS)

    assert await life.run_state(client) == "running"
    assert instance.sled not in {None, sled.id}
    assert (sled.instances, sled.reserved_cpus, sled.reserved_memory_bytes) == (set(), 0, 0)
    with pytest.raises(ValueError, match="expunged"):
        instance_states.restore_sled(client.state, sled)


async def test_restart_without_room_is_tried_again(client: RackUnderTest) -> None:
    """3.3: a failed instance for which there is no sled stays failed and is tried until there is one."""
    instance = await life.create_running(client)
    sleds = list(client.state.sleds.values())
    for sled in sleds:
        instance_states.lose_sled(client.state, sled)
    instance_states.fail(client.state, instance)
    client.pass_time(60)
    assert await life.run_state(client) == "failed"
    assert instance.time_last_auto_restarted is None

    instance_states.restore_sled(client.state, sleds[0])
    client.pass_time(RESTART_SECONDS + START_SECONDS)

    assert await life.run_state(client) == "running"


async def test_restart_without_quota_ends_in_stopped(client: RackUnderTest) -> None:
    """3.3, 4.5: the quota is looked at when the start is under way, and its refusal leaves the instance stopped."""
    instance = await life.create_running(client)
    instance_states.fail(client.state, instance)
    client.silo.quota_cpus = 1

    client.pass_time(3600)

    assert await life.run_state(client) == "stopped"


async def test_start_failure_fault(client: RackUnderTest) -> None:
    """3.1: a start that fails during the creation is swallowed: 201 and stopped; one's own start tells the error."""
    client.app.faults.add(FaultRule(kind="start_failure", object="node"))

    assert (await life.create(client, start=True))["run_state"] == "stopped"

    client.pass_time(3600)
    assert await life.run_state(client) == "stopped"
    error = await client.refused(507, "POST", life.path(act="start"))
    assert (error["error_code"], error["message"]) == ("InsufficientCapacity", life.NO_SLED)
    assert await life.run_state(client) == "stopped"
    assert (await life.create(client, name="other", start=True))["run_state"] == "starting"


@pytest.mark.parametrize(
    "changes",
    [{"ncpus": 65}, {"memory": 257 * GIB}, {"cpu_platform": "amd_turin"}],
    ids=["cpus", "memory", "platform"],
)
async def test_start_without_room_during_creation(client: RackUnderTest, changes: dict[str, object]) -> None:
    """3.1: too large for every sled, or of a platform that no sled has: 201 and stopped, and 507 from a start."""
    assert (await life.create(client, start=True, **changes))["run_state"] == "stopped"

    error = await client.refused(507, "POST", life.path(act="start"))

    assert error["message"] == life.NO_SLED


async def test_control_refuses_what_cannot_happen(client: RackUnderTest) -> None:
    """3: without a VMM there is nothing that could fail, crash or power itself off."""
    await life.create(client)
    instance = life.record(client)

    with pytest.raises(ValueError, match="start it first"):
        instance_states.fail(client.state, instance)
    with pytest.raises(ValueError, match="start it first"):
        instance_states.crash_guest(client.state, instance)
    with pytest.raises(ValueError, match="no running guest"):
        instance_states.power_off_guest(client.state, instance)
