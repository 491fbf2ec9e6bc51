"""How the rack's time passes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from capox.rack import clock, document, pace, state
from capox.rack.state import Timing
from tests.rack import START


async def crowd(count: int = 3) -> None:
    """Give other tasks some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def passing_rack(monotonic: Any) -> state.Rack:
    """A rack whose time passes by itself."""
    return state.Rack(
        document=document.load(),
        clock=clock.PassingClock(monotonic, START),
        randomness=random.Random(1),
        timing=Timing(),
    )


async def test_things_happen_while_nobody_asks() -> None:
    """With a clock that passes by itself, what is due is done when it is due; an earlier act overtakes the wait."""
    loop = asyncio.get_running_loop()
    rack = passing_rack(loop.time)
    done: list[str] = []
    finished = asyncio.Event()
    pacing = asyncio.create_task(pace.keep_pace(rack))
    await crowd()

    def late(_: Any) -> None:
        """The act that was entered first."""
        done.append("late")
        finished.set()

    rack.after(0.05, late)
    await crowd()
    rack.after(0.01, lambda _: done.append("early"))
    async with asyncio.timeout(10):
        await finished.wait()
    pacing.cancel()

    assert done == ["early", "late"]
    with pytest.raises(asyncio.CancelledError):
        await pacing


async def test_passing_time_can_be_skipped() -> None:
    """A clock that passes by itself can be told to pass, too, and everything happens at its time."""
    rack = passing_rack(lambda: 0.0)
    seen: list[float] = []

    def act(moment: Any) -> None:
        """Enter another one, twice."""
        seen.append((moment - START).total_seconds())
        if len(seen) < 3:
            rack.after(10, act)

    rack.after(10, act)
    await pace.advance(rack, 25)
    assert seen == [10, 20]

    assert await pace.finish_all(rack, 60)
    assert seen == [10, 20, 30]
