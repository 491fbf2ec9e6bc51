"""Acts that are done one after the other, begun by code that does not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Act = Callable[[], Awaitable[None]]


class Acts:
    """A queue that works as long as there is something in it.

    Args:
        on_failure: told of an act that has failed. Those behind it are done all the same.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._waiting: list[Act] = []
        self._watchers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, act: Act) -> None:
        """Do an act when those before it are over."""
        self._waiting.append(act)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when nothing is left to do; at once, when that is so."""
        if self._task is None:
            then()
        else:
            self._watchers.append(then)

    async def stop(self) -> None:
        """Give up on what is being done and on the rest."""
        self._waiting.clear()
        self._watchers.clear()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        try:
            while self._waiting:
                act = self._waiting.pop(0)
                try:
                    await act()
                except Exception as error:  # noqa: BLE001 -- whatever it is, the queue goes on
                    self._on_failure(error)
        finally:
            self._task = None
        watchers, self._watchers = self._watchers, []
        for then in watchers:
            then()
