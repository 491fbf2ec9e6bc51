"""The wiring: watches feed queues, lists make up for what watches lose, and all of it ends in order.

A watch that is gone, or that could not begin because its kind was not served yet, is begun again (K-30, K-37). What
cannot be mended by that ends the process: `WatchesLostError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import structlog

from capox.kube import errors
from capox.kube.kind import Kind
from capox.kube.metrics import WatchMetrics
from capox.kube.watch import Dispatcher, Lister, Watch
from capox.kube.workqueue import Workqueue

__all__ = ["EventType", "Manager", "WatchSource", "WatchesLostError", "background", "stop_on_signals"]

DRAIN_SECONDS: Final = 20.0
"""How long passes that run may take to finish when the process is asked to end (K-35)."""

LOOK_SECONDS: Final = 5.0
"""How often the watches are looked at."""

GRACE_SECONDS: Final = 30.0
"""How long a kind that is served may be without its watch before all watches are begun again."""

SILENCE_SECONDS: Final = 90.0
"""How long kopf's thread may say nothing before it counts as dead."""

RESTARTS_MAX: Final = 6
"""How often the watches may be begun again without all of them living once in between."""

RELIST_JITTER: Final = 0.2
"""By how much of itself the time between two lists varies, either way."""

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class WatchesLostError(Exception):
    """The watches are gone and do not come back. Nothing is seen any more: the process has to be begun again."""


class WatchSource(Protocol):
    """What watches. Its parts are called from the manager's loop."""

    def start(
        self, sink: Callable[[Kind[Any], EventType, dict[str, Any]], None], beat: Callable[[set[str]], None]
    ) -> None:
        """Begin to watch.

        Args:
            sink: Called in the manager's loop with each event: the kind, what has happened, the object.
            beat: Called in the manager's loop every few seconds with the names of the kinds whose watches live.
        """
        ...

    def restart(self) -> None:
        """Begin all watches again."""
        ...

    async def stop(self) -> None:
        """End all watches. Nothing is seen after this."""
        ...


class Manager:
    """Watches, lists and queues of one process.

    Args:
        source: What watches.
        lister: Where the periodic lists come from.
        dispatcher: What is watched, and where it goes.
        queues: The work queues by controller.
        namespace: The one namespace that is looked at; None for all.
        sync_period_seconds: The time between two lists of a kind.
        randomness: Where jitter comes from.
        metrics: Where lists and watches are counted.
        drain_seconds: How long running passes may take to finish in the end.
        grace_seconds: How long a served kind may be without its watch.
    """

    def __init__(
        self,
        *,
        source: WatchSource,
        lister: Lister,
        dispatcher: Dispatcher,
        queues: Mapping[str, Workqueue],
        namespace: str | None,
        sync_period_seconds: float,
        randomness: random.Random,
        metrics: WatchMetrics,
        drain_seconds: float = DRAIN_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._source = source
        self._lister = lister
        self._dispatcher = dispatcher
        self._queues = queues
        self._namespace = namespace
        self._sync_period_seconds = sync_period_seconds
        self._randomness = randomness
        self._metrics = metrics
        self._drain_seconds = drain_seconds
        self._grace_seconds = grace_seconds
        self._watches = {str(watch.kind): watch for watch in dispatcher.watches}
        self._live: set[str] = set()
        self._last_beat: float | None = None
        self._missing_since: dict[str, float] = {}
        self._restarts = 0
        self._is_stopped = False
        self._log = structlog.get_logger()

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that are served and not watched just now, or all of them before the first look."""
        if self._last_beat is None:
            return tuple(self._watches)
        return tuple(self._missing_since)

    def silence_seconds(self) -> float:
        """How long the source of the watches has said nothing."""
        return 0.0 if self._last_beat is None else asyncio.get_running_loop().time() - self._last_beat

    async def run(self, stop: asyncio.Event) -> None:
        """Work until asked to stop, then let the running passes finish. Cancelling ends everything where it is.

        Raises:
            WatchesLostError: The watches do not come back. The running passes have finished.
        """
        parts = [asyncio.create_task(queue.run(), name=f"queue {name}") for name, queue in self._queues.items()]
        parts += [
            asyncio.create_task(self._relist_for_ever(watch), name=f"relist {name}")
            for name, watch in self._watches.items()
        ]
        parts.append(asyncio.create_task(self._look_after_watches(), name="watchdog"))
        waiting = asyncio.create_task(stop.wait(), name="stop")
        self._source.start(self._on_event, self._on_beat)
        try:
            done, _ = await asyncio.wait((*parts, waiting), return_when=asyncio.FIRST_COMPLETED)
            self._log.info("Stopping", isAsked=stop.is_set())
            self._is_stopped = True
            await self._drain()
        finally:
            self._is_stopped = True
            for task in (*parts, waiting):
                task.cancel()
            await asyncio.gather(*parts, waiting, return_exceptions=True)
            await self._source.stop()
        for task in done - {waiting}:
            task.result()

    async def _drain(self) -> None:
        drained = await asyncio.gather(*(queue.drain(self._drain_seconds) for queue in self._queues.values()))
        if not all(drained):
            self._log.warning("Passes did not finish in time and are cut off", seconds=self._drain_seconds)

    def _on_event(self, kind: Kind[Any], type_: EventType, document: dict[str, Any]) -> None:
        if not self._is_stopped:
            self._dispatcher.see(self._watches[str(kind)], type_, document)

    def _on_beat(self, live: set[str]) -> None:
        self._live = live
        self._last_beat = asyncio.get_running_loop().time()
        for name in self._watches:
            self._metrics.on_live(name, is_live=name in live)

    # The watches.

    async def _look_after_watches(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_beat = loop.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.silence_seconds() > SILENCE_SECONDS:
                raise WatchesLostError(f"the watches' thread has said nothing for {self.silence_seconds():.0f} s")
            await self._note_missing()
            if not self._missing_since:
                self._restarts = 0
                continue
            longest_seconds = max(loop.time() - since for since in self._missing_since.values())
            if longest_seconds < self._grace_seconds:
                continue
            if self._restarts >= RESTARTS_MAX:
                missing = ", ".join(self._missing_since)
                raise WatchesLostError(f"no watch for {missing}, after beginning again {self._restarts} times")
            self._restarts += 1
            self._log.warning("Beginning the watches again", missing=list(self._missing_since), times=self._restarts)
            self._metrics.on_restart()
            self._missing_since.clear()
            self._source.restart()

    async def _note_missing(self) -> None:
        """Find the kinds without a watch, other than those that the API does not serve (yet) or cannot tell of."""
        now = asyncio.get_running_loop().time()
        for name, watch in self._watches.items():
            if name in self._live or not await self._is_served(watch):
                self._missing_since.pop(name, None)
            else:
                self._missing_since.setdefault(name, now)

    async def _is_served(self, watch: Watch) -> bool:
        try:
            async for _ in self._lister.pages(watch.kind, self._namespace, _NOBODY):
                pass
        except errors.KubeError:
            return False
        return True

    # The lists.

    async def _relist_for_ever(self, watch: Watch) -> None:
        name = str(watch.kind)
        pause_seconds = self._sync_period_seconds
        while True:
            await asyncio.sleep(pause_seconds * (1 + RELIST_JITTER * (2 * self._randomness.random() - 1)))
            try:
                count = await self._dispatcher.relist(watch, self._lister, self._namespace)
            except errors.KubeError as error:
                self._metrics.on_relist(name, is_success=False)
                if not isinstance(error, errors.KindNotServed):
                    self._log.warning("Listing failed", kind=name, error=str(error))
                # Sooner than usual, but not so often that a struggling apiserver is kept busy by it.
                pause_seconds = min(self._sync_period_seconds, 60.0)
            else:
                self._metrics.on_relist(name, is_success=True)
                self._log.debug("Listed", kind=name, count=count)
                pause_seconds = self._sync_period_seconds


_NOBODY: Final[Mapping[str, str | None]] = {"capox.invalid/nobody": None}
"""Labels that no object has."""


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something beside, until the block is left.

    What ends it early is told at once, and raised when the block is left: nobody would hear of it before.
    """
    task = asyncio.create_task(work, name=getattr(work, "__qualname__", "work"))
    task.add_done_callback(_tell_end)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _tell_end(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        structlog.get_logger().error("What ran beside the work has ended", work=task.get_name(), exc_info=error)


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Ask to stop on SIGTERM and SIGINT. Inside a running event loop of the main thread."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
