"""A work queue with a reconciler that does what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from capox.kube import errors
from capox.kube.metrics import QueueMetrics, Registry
from capox.kube.workqueue import DONE, Request, Result, Workqueue
from tests.sim.loop import simulation_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

A, B, C = Request("team", "a"), Request("team", "b"), Request("team", "c")


class Work:
    """A reconciler that does what it is told, and remembers.

    Attributes:
        begun: Each pass as (time, key), in order.
        ended: The keys of the passes that have ended, in order.
        behaviour: What a pass does and wants; a pass takes no time and wants nothing until a test says otherwise.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[float, Request]] = []
        self.ended: list[Request] = []
        self.behaviour: Callable[[Request], Awaitable[Result]] = self.nothing

    @staticmethod
    async def nothing(_: Request) -> Result:
        """A pass that takes no time and wants nothing."""
        return DONE

    async def reconcile(self, request: Request) -> Result:
        """A pass, as the queue calls it."""
        self.begun.append((simulation_loop().time(), request))
        result = await self.behaviour(request)
        self.ended.append(request)
        return result

    def times(self, request: Request) -> list[float]:
        """When the passes over a key began."""
        return [time for time, key in self.begun if key == request]


def taking(seconds: float, result: Result = DONE) -> Callable[[Request], Awaitable[Result]]:
    """Give the behaviour of a pass that takes its time."""

    async def behaviour(_: Request) -> Result:
        """Take the time."""
        await asyncio.sleep(seconds)
        return result

    return behaviour


async def failing(_: Request) -> Result:
    """A pass that fails as the weather makes them fail."""
    raise errors.NoAnswer("nobody is there")


@contextlib.asynccontextmanager
async def running(
    work: Work, *, concurrency: int = 1, registry: Registry | None = None, seed: int = 0
) -> AsyncIterator[Workqueue]:
    """Run a queue, and cancel it in the end."""
    queue = Workqueue(
        "test",
        work.reconcile,
        concurrency=concurrency,
        randomness=random.Random(seed),
        metrics=QueueMetrics(registry or Registry()),
    )
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
