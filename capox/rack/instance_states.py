"""The life of an instance: what its power operations do, and what happens to it by itself (semantics 3).

An instance has a VMM, and a reservation on a sled, in the states starting, running, rebooting and stopping. Everything
that takes time waits on the agenda, bound to the number of transitions that the instance had made when it was entered;
whatever changes the instance's direction in between counts one more and so overtakes it. Every change of state goes
through `_move`. A passing state begins with an act on the guest (`Rack.guests`) and ends when both its time has passed
and the guest has come to where it was sent.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from http import HTTPStatus

from capox.rack import errors, placement, records
from capox.rack.call import Call
from capox.rack.state import Rack, Timing

# What each passing state ends in, and after how many seconds.
_ENDS: dict[records.InstanceState, tuple[records.InstanceState, Callable[[Timing], float]]] = {
    "starting": ("running", lambda timing: timing.instance_start),
    "rebooting": ("running", lambda timing: timing.instance_reboot),
    "stopping": ("stopped", lambda timing: timing.instance_stop),
}

# A rack without room looks again no more often than this, whatever its timing says.
_SHORTEST_RETRY_SECONDS = 1.0

_STILL_CREATING = "cannot change instance state while it is still being created"


def begin_start(call: Call, instance: records.Instance) -> None:
    """Start an instance; one that is on its way up or running stays as it is.

    Raises:
        Refusal: 409, its state does not allow it; 507, there is no sled or no quota for it. It stays stopped then, and
            a failed one for which there is no sled stays failed.
    """
    rack = call.rack
    instance.is_meant_to_run = True
    if instance.state in {"starting", "running", "rebooting"}:
        return
    if instance.state == "stopping":
        raise errors.conflict("instance must finish stopping before it can be started")
    if instance.state not in {"stopped", "failed"}:
        raise errors.conflict(f"instance is in state {instance.state} but it must be stopped to be started")
    try:
        if call.faults.strikes("start_failure", call.operation, (instance.name, instance.id)):
            raise placement.no_sled()
        _start(rack, instance, rack.now())
    except errors.Refusal:
        consider_restart(rack, instance, rack.now())
        raise


async def begin_stop(call: Call, instance: records.Instance) -> None:
    """Power an instance off; one that is stopped or stopping stays as it is, and a failed one is stopped at once.

    Raises:
        Refusal: 400, it is still being created; 503, its sled does not answer.
        RackError: 503, its sled does not know it any more.
    """
    instance.is_meant_to_run = False
    if instance.state == "creating":
        raise errors.invalid_request(_STILL_CREATING)
    if instance.state == "failed":
        _move(call.rack, instance, "stopped", call.rack.now())
    elif instance.state != "stopped":
        await _instruct_sled(call, instance)
        if instance.state != "stopping":
            _enter(call.rack, instance, "stopping", call.rack.now())


async def begin_reboot(call: Call, instance: records.Instance) -> None:
    """Reset an instance; one that is rebooting stays as it is.

    Raises:
        Refusal: 400, its state does not allow it; 503, its sled does not answer.
        RackError: 503, its sled does not know it any more.
    """
    instance.is_meant_to_run = True
    if instance.state == "creating":
        raise errors.invalid_request(_STILL_CREATING)
    if instance.state == "stopped":
        raise errors.invalid_request("cannot reboot an instance in state stopped with no VMM")
    if instance.state == "failed":
        # Refused as it is, the request has declared that the instance is meant to run.
        consider_restart(call.rack, instance, call.rack.now())
        raise errors.invalid_request("instance state cannot be changed from failed")
    await _instruct_sled(call, instance)
    if instance.state == "stopping":
        raise errors.invalid_request('instance state cannot be changed from state "stopping"')
    if instance.state != "rebooting":
        _enter(call.rack, instance, "rebooting", call.rack.now())


async def reach_sled(call: Call, instance: records.Instance) -> None:
    """Give up on an act that an instance's sled has to carry out, when that sled does not answer.

    Raises:
        Refusal: 503, after `sled_timeout` seconds.
    """
    if instance.sled is not None and not call.rack.sleds[instance.sled].is_reachable:
        await call.elapse(call.rack.timing.sled_timeout)
        raise errors.service_unavailable()


def finish_creation(rack: Rack, instance: records.Instance) -> None:
    """Let an instance whose parts are all there leave the state `creating`."""
    _move(rack, instance, "stopped", rack.now())


def fail(rack: Rack, instance: records.Instance) -> None:
    """Let the rack find now that an instance's VMM is gone: the instance is failed, and maybe restarted later.

    Raises:
        ValueError: it has no VMM that could be gone.
    """
    _require_vmm(instance)
    rack.guests.kill(instance)
    _fail(rack, instance, rack.now())


def crash_guest(rack: Rack, instance: records.Instance) -> None:
    """Take an instance's VMM away behind the rack's back, which notices it `failure_notice` seconds later.

    Until then the instance looks as before, and stop and reboot are answered by the 503 without an error code.

    Raises:
        ValueError: it has no VMM that could crash.
    """
    _require_vmm(instance)
    _lose_vmm(rack, instance)
    _await_notice(rack, instance, rack.now())


def power_off_guest(rack: Rack, instance: records.Instance) -> None:
    """Let the guest power itself off: the instance stops and is not restarted, though it is still meant to run.

    Raises:
        ValueError: there is no running guest.
    """
    _require_guest(instance)
    _enter(rack, instance, "stopping", rack.now())


def reboot_guest(rack: Rack, instance: records.Instance) -> None:
    """Let the guest reboot itself.

    Raises:
        ValueError: there is no running guest.
    """
    _require_guest(instance)
    _enter(rack, instance, "rebooting", rack.now())


def lose_sled(rack: Rack, sled: records.Sled) -> None:
    """Cut a sled off: its instances stay as they are, for as long as it does not answer."""
    del rack
    sled.is_reachable = False


def restore_sled(rack: Rack, sled: records.Sled, *, rebooted: bool = False) -> None:
    """Let a sled answer again.

    Args:
        rack: the rack.
        sled: one that is in service.
        rebooted: whether it has forgotten its instances, which then show `failed` after `failure_notice` seconds.

    Raises:
        ValueError: the sled has been expunged.
    """
    if not sled.is_in_service:
        raise ValueError(f"sled {sled.name} has been expunged and does not come back")
    sled.is_reachable = True
    for instance in _carried(rack, sled):
        if rebooted:
            _lose_vmm(rack, instance)
        if instance.is_vmm_lost:
            _await_notice(rack, instance, rack.now())
        elif instance.state in _ENDS:
            _await_end(rack, instance, rack.now())


def expunge_sled(rack: Rack, sled: records.Sled) -> None:
    """Take a sled out of service for good; its instances show `failed` after `failure_notice` seconds."""
    sled.is_in_service = False
    sled.is_reachable = False
    for instance in _carried(rack, sled):
        _lose_vmm(rack, instance)
        _await_notice(rack, instance, rack.now())


def is_restart_enabled(instance: records.Instance) -> bool:
    """Whether the policy lets the rack restart this instance; without a policy it does."""
    return instance.auto_restart_policy != "never"


def cooldown_ends(rack: Rack, instance: records.Instance) -> datetime.datetime | None:
    """Until when the rack does not restart this instance again; None when it has not done so yet."""
    if instance.time_last_auto_restarted is None:
        return None
    return instance.time_last_auto_restarted + datetime.timedelta(seconds=rack.timing.auto_restart_cooldown)


def consider_restart(
    rack: Rack, instance: records.Instance, moment: datetime.datetime, *, retry_seconds: float = 0.0
) -> None:
    """Plan the automatic restart of a failed instance that is meant to run, if its policy allows and none is planned.

    Args:
        rack: the rack.
        instance: the instance.
        moment: from when on it may be restarted.
        retry_seconds: how long to wait after that. The time since the failure and the cooldown may make it longer.
    """
    expected = instance.transitions
    if not _is_to_be_restarted(instance) or instance.planned_restart == expected:
        return
    instance.planned_restart = expected
    due = max(
        moment + datetime.timedelta(seconds=retry_seconds),
        instance.time_run_state_updated + datetime.timedelta(seconds=rack.timing.auto_restart),
        cooldown_ends(rack, instance) or moment,
    )

    def restart(now: datetime.datetime) -> None:
        if instance.transitions != expected:
            return
        instance.planned_restart = None
        if _is_to_be_restarted(instance):
            _restart(rack, instance, now)

    rack.agenda.enter(due, restart)


def _is_to_be_restarted(instance: records.Instance) -> bool:
    return instance.state == "failed" and instance.is_meant_to_run and is_restart_enabled(instance)


def _restart(rack: Rack, instance: records.Instance, moment: datetime.datetime) -> None:
    try:
        _start(rack, instance, moment, automatic=True)
    except errors.Refusal:
        retry_seconds = max(rack.timing.auto_restart, _SHORTEST_RETRY_SECONDS)
        consider_restart(rack, instance, moment, retry_seconds=retry_seconds)


def _start(rack: Rack, instance: records.Instance, moment: datetime.datetime, *, automatic: bool = False) -> None:
    """Find a sled and go there. Without a sled nothing changes; without quota the start unwinds to `stopped`."""
    sled = placement.choose(rack, instance)
    if automatic:
        instance.time_last_auto_restarted = moment
    try:
        placement.reserve(rack, instance, sled)
    except errors.Refusal:
        if instance.state != "stopped":
            _move(rack, instance, "stopped", moment)
        raise
    _enter(rack, instance, "starting", moment)


async def _instruct_sled(call: Call, instance: records.Instance) -> None:
    """Have the sled change an instance's state; one that does not know the instance makes it fail.

    Raises:
        Refusal: 503, the sled does not answer.
        RackError: 503 without a code, the sled does not know the instance.
    """
    await reach_sled(call, instance)
    if instance.is_vmm_lost:
        _fail(call.rack, instance, call.rack.now())
        raise errors.RackError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "The instance was running and is no longer reachable; it is being moved to the Failed state.",
        )


def _fail(rack: Rack, instance: records.Instance, moment: datetime.datetime) -> None:
    placement.vacate(rack, instance)
    instance.is_vmm_lost = False
    _move(rack, instance, "failed", moment)
    consider_restart(rack, instance, moment)


def _lose_vmm(rack: Rack, instance: records.Instance) -> None:
    rack.guests.kill(instance)
    instance.is_vmm_lost = True
    instance.transitions += 1


def _require_vmm(instance: records.Instance) -> None:
    if instance.sled is None:
        raise ValueError(f"instance {instance.name} is {instance.state} and has no VMM; start it first")


def _require_guest(instance: records.Instance) -> None:
    if instance.state != "running" or instance.is_vmm_lost:
        raise ValueError(f"instance {instance.name} has no running guest; its state is {instance.state}")


def _carried(rack: Rack, sled: records.Sled) -> list[records.Instance]:
    """The instances of a sled, in an order that does not differ from run to run."""
    found = (rack.instances.by_id(identity) for identity in sorted(sled.instances))
    return [instance for instance in found if instance is not None]


def _enter(rack: Rack, instance: records.Instance, state: records.InstanceState, moment: datetime.datetime) -> None:
    """Move to a passing state, which ends by itself, and send the guest on its way."""
    _move(rack, instance, state, moment)
    acts = {"starting": rack.guests.start, "rebooting": rack.guests.reset, "stopping": rack.guests.stop}
    acts[state](instance)
    _await_end(rack, instance, moment)


def _await_end(rack: Rack, instance: records.Instance, moment: datetime.datetime) -> None:
    """Let a passing state end in its time, when the guest has got there and the sled can tell the rack of it."""
    end, duration = _ENDS[instance.state]
    expected = instance.transitions
    due = moment + datetime.timedelta(seconds=duration(rack.timing))

    def finish(now: datetime.datetime) -> None:
        if instance.transitions != expected or not _answers(rack, instance):
            return
        if end == "stopped":
            placement.vacate(rack, instance)
        _move(rack, instance, end, now)

    rack.guests.when_settled(instance, moment, lambda arrived: rack.agenda.enter(max(due, arrived), finish))


def _await_notice(rack: Rack, instance: records.Instance, moment: datetime.datetime) -> None:
    """Let the rack notice in its time that a VMM is gone, if the sled answers then or has been expunged."""
    expected = instance.transitions

    def notice(now: datetime.datetime) -> None:
        if instance.transitions != expected:
            return
        if _answers(rack, instance) or not _is_in_service(rack, instance):
            _fail(rack, instance, now)

    rack.agenda.enter(moment + datetime.timedelta(seconds=rack.timing.failure_notice), notice)


def _answers(rack: Rack, instance: records.Instance) -> bool:
    return instance.sled is not None and rack.sleds[instance.sled].is_reachable


def _is_in_service(rack: Rack, instance: records.Instance) -> bool:
    return instance.sled is not None and rack.sleds[instance.sled].is_in_service


def _move(rack: Rack, instance: records.Instance, state: records.InstanceState, moment: datetime.datetime) -> None:
    """Change an instance's state. Nothing else does."""
    if state == "running":
        rack.guests.console(instance, moment)
    instance.state = state
    instance.time_run_state_updated = moment
    instance.transitions += 1
