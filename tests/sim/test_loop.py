"""The simulation's event loop: virtual time, and an order of steps that a seed decides."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime

import pytest

from tests.sim.loop import SpinningError, StandstillError, simulate, simulated, simulation_loop


@simulated
async def test_time_passes_only_when_all_wait() -> None:
    """A day takes no time, and begins at 0."""
    began = time.monotonic()
    loop = simulation_loop()
    assert loop.time() == 0
    assert loop.now() == datetime(2026, 1, 1, tzinfo=UTC)
    await asyncio.gather(asyncio.sleep(86400), asyncio.sleep(3600))

    assert loop.time() == 86400
    assert loop.now() == datetime(2026, 1, 2, tzinfo=UTC)
    assert time.monotonic() - began < 3600


@simulated
async def test_deadlines_are_virtual_too() -> None:
    """asyncio.timeout goes by the loop."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await asyncio.sleep(2000)

    assert simulation_loop().time() == 1000


def test_a_standstill_is_an_error() -> None:
    """Nobody waits for what nobody will do."""

    async def forever() -> None:
        """Wait for nothing."""
        await asyncio.Event().wait()

    with pytest.raises(StandstillError, match="nothing is due"):
        simulate(forever)


def test_spinning_is_an_error() -> None:
    """A loop of steps that takes no time would never end."""

    async def spinning() -> None:
        """Take turns for ever."""
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(SpinningError):
        simulate(spinning)


def order_of_steps(seed: int | None) -> list[str]:
    """Run ten tasks of three steps, and give the order in which they went."""
    steps: list[str] = []

    async def work(name: str) -> None:
        """Take three steps."""
        for number in range(3):
            steps.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def story() -> None:
        """What happens."""
        await asyncio.gather(*(work(name) for name in "abcdefghij"))

    simulate(story, seed=seed)
    return steps


def test_a_seed_decides_the_order_of_steps() -> None:
    """The same seed the same order, other seeds others; without a seed it is asyncio's own."""
    orders = [order_of_steps(seed) for seed in range(20)]

    assert orders == [order_of_steps(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) == 20
    assert order_of_steps(None) == [f"{name}{number}" for number in range(3) for name in "abcdefghij"]


@pytest.mark.parametrize("seed", range(20))
def test_asyncio_keeps_its_promises_under_any_order(seed: int) -> None:
    """Locks exclude, queues keep their order, groups wait for all, cancellation arrives."""

    async def story() -> None:
        """What happens."""
        lock, queue, inside = asyncio.Lock(), asyncio.Queue[int](), 0
        received: list[int] = []

        async def exclusive() -> None:
            """Be alone in the lock."""
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

        async def receive() -> None:
            """Take what is sent."""
            while True:
                received.append(await queue.get())

        receiver = asyncio.create_task(receive())
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(exclusive())
        for number in range(10):
            queue.put_nowait(number)
        await asyncio.sleep(1)
        receiver.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiver
        assert received == list(range(10))

    simulate(story, seed=seed)
