"""Waiting for a state of the world, with a bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from hack.controlplane.plane import ControlPlane

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


def await_established(plane: ControlPlane) -> None:
    """Wait until all kinds that CRDs define are served; `kubectl wait` gives up on one that has no conditions yet."""

    def missing() -> list[str]:
        found: list[Any] = plane.client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        return [each["metadata"]["name"] for each in found if not _is_established(each)]

    eventually("all CRDs are established", lambda: not missing())


def _is_established(document: Any) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)
