"""Waiting for a state of the world, with a bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

State = TypeVar("State")


def eventually(
    what: str, observe: Callable[[], State], *, within_seconds: float = 60.0, every_seconds: float = 0.1
) -> State:
    """Observe the world until what is seen is true, and return it.

    Args:
        what: the state that is waited for, for the message.
        observe: looks at the world; something falsy means "not yet". What it raises ends the wait.
        within_seconds: the bound.
        every_seconds: how long to wait between two looks, for those that take work themselves.

    Raises:
        AssertionError: the state was not reached; the message has the last observation.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        seen = observe()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_seconds:.0f} s; last seen: {seen!r}")
        time.sleep(every_seconds)
