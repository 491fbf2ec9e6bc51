"""An event loop whose time passes only when everything waits for it, and then at once."""

from __future__ import annotations

import asyncio
import functools
import selectors
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from selectors import SelectorKey

P = ParamSpec("P")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is due: this test would hang for ever")
        self.seconds += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at 0. It is for code that does no input or output of its own."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Give the virtual time in seconds."""
        return self._jumping.seconds


def virtual_time(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run an async test on virtual time, which is 0 when it begins."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def seconds() -> float:
    """Give the running loop's time."""
    return asyncio.get_running_loop().time()
