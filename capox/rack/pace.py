"""Letting a rack's time pass: by itself while nobody asks, and on command without skipping over what happens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime

from capox.rack.clock import CommandedClock, PassingClock
from capox.rack.state import Rack

# A request that is woken needs a few turns of the event loop until it sleeps again or has answered.
_TURNS = 10


async def keep_pace(rack: Rack) -> None:
    """Do what is due when it is due, so that things happen also while nobody asks. Runs until it is cancelled.

    It is for a clock that passes by itself; with a commanded one nothing becomes due between commands.
    """
    changed = asyncio.Event()
    rack.agenda.on_enter = changed.set
    try:
        while True:
            rack.settle()
            changed.clear()
            due = rack.agenda.next_due()
            seconds = None if due is None else max(0.0, (due - rack.now()).total_seconds())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()
    finally:
        rack.agenda.on_enter = lambda: None


async def advance(rack: Rack, seconds: float) -> None:
    """Let time pass, stopping wherever something is due or a request wakes, so that everything happens at its time.

    On a clock that passes by itself the time is skipped; requests that wait within it are not woken earlier.

    Args:
        rack: whose time.
        seconds: how long.
    """
    clock = rack.clock
    assert isinstance(clock, CommandedClock | PassingClock), "only these can be told to pass"
    until = rack.now() + datetime.timedelta(seconds=seconds)
    while True:
        stops = [moment for moment in (rack.agenda.next_due(), _next_wake(clock)) if moment is not None]
        stop = min([*stops, until])
        clock.advance(max(0.0, (stop - rack.now()).total_seconds()))
        rack.settle()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if stop == until:
            return


async def finish_all(rack: Rack, within_seconds: float) -> bool:
    """Let time pass until nothing is waiting for it any more.

    Args:
        rack: whose time.
        within_seconds: how long at most.

    Returns:
        Whether nothing is waiting.
    """
    until = rack.now() + datetime.timedelta(seconds=within_seconds)
    while (waits := _next(rack)) is not None and waits <= until:
        await advance(rack, max(0.0, (waits - rack.now()).total_seconds()))
    return _next(rack) is None


def _next(rack: Rack) -> datetime.datetime | None:
    moments = (rack.agenda.next_due(), _next_wake(rack.clock))
    return min((moment for moment in moments if moment is not None), default=None)


def _next_wake(clock: object) -> datetime.datetime | None:
    return clock.next_wake() if isinstance(clock, CommandedClock) else None
