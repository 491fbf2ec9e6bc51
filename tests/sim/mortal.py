"""What all simulated processes have in common: that they die, and that they die of nothing but a kill."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tests.sim.store_client import ProcessGoneError


class Cut(Protocol):
    """A way out of a process."""

    def cut(self) -> None:
        """Let nothing through any more."""
        ...


class Mortal:
    """A process that can be killed at any await. Whoever inherits it calls `live` when everything is begun."""

    def live(
        self,
        tasks: Sequence[asyncio.Task[None]],
        *,
        ways: Sequence[Cut],
        unsubscribe: Callable[[], None],
        aclose: Callable[[], Awaitable[None]],
    ) -> None:
        """Take note of what there is to end.

        Args:
            tasks: What it is doing.
            ways: Its ways to everybody else.
            unsubscribe: Has it hear nothing any more.
            aclose: Closes what it has open.
        """
        self._tasks, self._ways, self._unsubscribe, self._aclose = tasks, ways, unsubscribe, aclose

    async def kill(self) -> None:
        """SIGKILL: from now on nothing of it is heard."""
        for way in self._ways:
            way.cut()
        self._unsubscribe()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, ProcessGoneError, BaseExceptionGroup):
                await task
        with contextlib.suppress(ProcessGoneError):
            await self._aclose()

    def check(self) -> None:
        """Raise what has ended a part of it, which nothing but a kill may do."""
        for task in self._tasks:
            if task.done():
                task.result()
