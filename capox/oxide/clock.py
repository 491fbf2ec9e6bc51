"""The time that everything goes by, handed in so that tests and simulations can play it."""

from __future__ import annotations

import asyncio
import datetime
from typing import Protocol


class Clock(Protocol):
    """Time that only moves forward."""

    def monotonic(self) -> float:
        """Give the present time in seconds since a moment of no meaning."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once that many seconds have passed."""
        ...


class LoopClock:
    """The clock of the running event loop, so that a loop on virtual time makes all of it virtual.

    Deadlines are `asyncio.timeout`, which goes by the loop in any case.
    """

    def monotonic(self) -> float:
        """Give the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Sleep in the loop."""
        await asyncio.sleep(seconds)


def utc_now() -> datetime.datetime:
    """Give the wall clock's time, for what is stored and what people read; it may jump, so no wait goes by it."""
    return datetime.datetime.now(datetime.UTC)
