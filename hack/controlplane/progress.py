"""Progress of long work: a live bar for a person, a line now and then for a log.

A build of the control plane takes minutes. Somebody who watches wants to see that it moves and how long it will take;
a CI log must show a line at least every half minute, or the job looks hung and gets killed.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

PLAIN_INTERVAL_SECONDS: Final = 25.0
"""How often a log gets a line while one stage runs."""

_DETAIL_WIDTH: Final = 36
"""Characters of detail on a terminal; the end of an import path says more than its beginning."""


class Stage(Protocol):
    """One piece of work while it runs."""

    def update(self, detail: str, *, done: int | None = None, total: int | None = None) -> None:
        """Say what is going on.

        Args:
            detail: what is being worked on, in a few words.
            done: how many of `total` units are finished, when that is known.
            total: how many units there are; an upper bound will do.
        """

    def tick(self) -> None:
        """Let time show; to be called about every second while nothing else happens."""


class Reporter(Protocol):
    """Where progress goes."""

    def stage(self, title: str, *, expected_seconds: float | None = None) -> AbstractContextManager[Stage]:
        """Begin a piece of work; leave the `with` block when it is finished or has failed."""

    def say(self, line: str) -> None:
        """Print one line."""


def format_seconds(seconds: float) -> str:
    """A duration for people: `8s`, `4m05s`, `1h02m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _expectation(seconds: float | None) -> str:
    """How long a stage is expected to take, in parentheses; empty when nobody knows."""
    return f"(about {format_seconds(seconds)} on an idle machine)" if seconds else ""


class PlainStage:
    """A stage that prints a line when it begins, every `PLAIN_INTERVAL_SECONDS`, and when it ends."""

    def __init__(
        self, title: str, expected_seconds: float | None, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._title = title
        self._expectation = _expectation(expected_seconds)
        self._say = say
        self._clock = clock
        self._began = self._last_line = clock()
        self._detail = ""

    def begin(self) -> None:
        """Print the first line."""
        self._say(f"{self._title} ... {self._expectation}".rstrip())

    def update(self, detail: str, *, done: int | None = None, total: int | None = None) -> None:
        """Take note of where the work is; printed with the next line that is due."""
        self._detail = f"{done} of {total}, {detail}" if done is not None and total else detail
        self.tick()

    def tick(self) -> None:
        """Print a line when one is due."""
        now = self._clock()
        if now - self._last_line >= PLAIN_INTERVAL_SECONDS:
            self._last_line = now
            detail = f": {self._detail}" if self._detail else ""
            self._say(f"{self._title}: {format_seconds(now - self._began)} so far{detail}")

    def end(self, *, failed: bool) -> None:
        """Print the last line."""
        self._say(
            f"{self._title}: {'failed after' if failed else 'done in'} {format_seconds(self._clock() - self._began)}"
        )


class PlainReporter:
    """Lines for a log, flushed at once.

    Args:
        stream: where lines go.
        clock: seconds that only grow.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    def say(self, line: str) -> None:
        """Print one line."""
        print(line, file=self._stream, flush=True)

    @contextmanager
    def stage(self, title: str, *, expected_seconds: float | None = None) -> Iterator[Stage]:
        """One piece of work; see `Reporter.stage`."""
        stage = PlainStage(title, expected_seconds, self.say, self._clock)
        stage.begin()
        failed = True
        try:
            yield stage
            failed = False
        finally:
            stage.end(failed=failed)


class RichStage:
    """A stage drawn as a live line with a bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, detail: str, *, done: int | None = None, total: int | None = None) -> None:
        """Move the bar and show what is being worked on."""
        end = detail[-_DETAIL_WIDTH:]
        if done is None:
            self._progress.update(self._task, detail=end)
        else:
            self._progress.update(self._task, detail=end, completed=done, total=total)

    def tick(self) -> None:
        """Nothing to do: rich redraws by itself."""


class RichReporter:
    """A live display on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)

    def say(self, line: str) -> None:
        """Print one line above the live display."""
        self._console.print(line, markup=False, highlight=False)

    @contextmanager
    def stage(self, title: str, *, expected_seconds: float | None = None) -> Iterator[Stage]:
        """One piece of work; see `Reporter.stage`."""
        began = time.monotonic()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[expectation]} {task.fields[detail]}", markup=False, style="dim"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=None, expectation=_expectation(expected_seconds), detail="")
            yield RichStage(progress, task)
        self.say(f"{title}: done in {format_seconds(time.monotonic() - began)}")


def reporter_for(stream: TextIO | None = None) -> Reporter:
    """The reporter that fits a stream: live on a terminal, lines elsewhere. Standard error unless told otherwise."""
    chosen = sys.stderr if stream is None else stream
    return RichReporter(chosen) if chosen.isatty() else PlainReporter(chosen)
