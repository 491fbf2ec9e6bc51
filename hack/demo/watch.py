"""What a person sees while the cluster comes to be: a table on a terminal, elsewhere a line a change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import rich.console
import rich.live
import rich.table

from hack.controlplane.errors import ControlPlaneError
from hack.demo.cluster import Row

__all__ = ["until", "watch"]

LOOK_SECONDS: Final = 1.0


def watch(look: Callable[[], list[Row]], is_done: Callable[[Sequence[Row]], bool], *, within_seconds: float) -> bool:
    """Show what there is until it is what it should be.

    Args:
        look: gives what there is.
        is_done: whether that is all.
        within_seconds: the bound.

    Returns:
        Whether it came so far.
    """
    deadline = time.monotonic() + within_seconds
    console = rich.console.Console()
    shown: set[Row] = set()
    rows: list[Row] = []
    with rich.live.Live(console=console, refresh_per_second=4) if console.is_terminal else _NoLive() as live:
        while True:
            # Who does not answer in time, on a computer that is starting machines, answers the next time.
            with contextlib.suppress(ControlPlaneError, OSError):
                rows = look()
            if isinstance(live, rich.live.Live):
                live.update(_table(rows))
            for row in rows if not console.is_terminal else ():
                if row not in shown:
                    print("{:14} {:40} {}".format(*row), flush=True)
            shown.update(rows)
            if is_done(rows):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)


def until(is_done: Callable[[], bool], *, within_seconds: float) -> bool:
    """Wait for a state.

    Args:
        is_done: whether it is there.
        within_seconds: the bound.

    Returns:
        Whether it came.
    """
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        # As above.
        with contextlib.suppress(ControlPlaneError, OSError):
            if is_done():
                return True
        time.sleep(LOOK_SECONDS)
    return False


class _NoLive:
    """What stands in for the live table where there is no terminal."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


def _table(rows: list[Row]) -> rich.table.Table:
    table = rich.table.Table(title="The cluster comes to be", title_justify="left")
    for column in ("kind", "name", "state"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
