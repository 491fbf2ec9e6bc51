"""Time on the rack: it passes by itself or only on command.

Nothing in the rack runs in the background. What is due at a later time waits in the `Agenda`, and everything that is
due is done before the next
request is looked at, so a rack that nobody asks is idle and two runs with the same clock are the same run.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A source of time that can be waited on."""

    def now(self) -> datetime.datetime:
        """The rack's wall clock, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when this many seconds have passed on this clock."""
        ...


class PassingClock:
    """Time that passes by itself, measured by `monotonic` from a given start.

    Args:
        monotonic: seconds from any origin. The running event loop's `time` makes the rack follow a test's virtual time.
        start: the wall clock at the origin; absent, now.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, start: datetime.datetime | None = None) -> None:
        self._monotonic = monotonic
        self._start = start or datetime.datetime.now(datetime.UTC)
        self._origin = monotonic()
        self._skipped_seconds = 0.0

    def now(self) -> datetime.datetime:
        """The wall clock, including what was skipped."""
        passed_seconds = self._monotonic() - self._origin + self._skipped_seconds
        return self._start + datetime.timedelta(seconds=passed_seconds)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Skip ahead. Who sleeps already is not woken earlier."""
        self._skipped_seconds += seconds


class CommandedClock:
    """Time that stands still until it is told to pass.

    Args:
        start: the wall clock at the beginning.
    """

    def __init__(self, start: datetime.datetime) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[datetime.datetime, int, asyncio.Future[None]]] = []

    def now(self) -> datetime.datetime:
        """The wall clock as it was last set."""
        return self._now

    @property
    def has_sleepers(self) -> bool:
        """Whether anybody waits for time to pass."""
        return any(not woken.done() for _, _, woken in self._sleepers)

    def next_wake(self) -> datetime.datetime | None:
        """When the next sleeper is to be woken; None when nobody sleeps."""
        return min((until for until, _, woken in self._sleepers if not woken.done()), default=None)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by that much."""
        if seconds <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until = self._now + datetime.timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (until, next(self._order), woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass and wake whoever slept until then."""
        self._now += datetime.timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)


class Agenda:
    """What will happen later: acts ordered by when they are due, and among equals by when they were entered.

    Attributes:
        on_enter: called after an act has been entered, so that whoever waits for the next one learns of an earlier one.
    """

    def __init__(self) -> None:
        self.on_enter: Callable[[], None] = lambda: None
        self._acts: list[tuple[datetime.datetime, int, Callable[[datetime.datetime], None]]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._acts)

    def enter(self, due: datetime.datetime, act: Callable[[datetime.datetime], None]) -> None:
        """Do `act` at `due`. It is given the time at which it was due, not the time at which somebody noticed."""
        heapq.heappush(self._acts, (due, next(self._order), act))
        self.on_enter()

    def next_due(self) -> datetime.datetime | None:
        """When the next act is due; None when nothing is waiting."""
        return self._acts[0][0] if self._acts else None

    def run_until(self, moment: datetime.datetime) -> None:
        """Do everything that is due at `moment` or earlier, in order, including what those acts enter."""
        while self._acts and self._acts[0][0] <= moment:
            due, _, act = heapq.heappop(self._acts)
            act(due)
