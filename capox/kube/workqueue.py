"""The queue between watch events and a reconciler, with the semantics of client-go's.

A key waits at most once however often it is added, is worked on by at most one worker at a time, and comes back when it
was added meanwhile. Failures come back with exponential backoff and jitter. A key carries no news: whoever takes it
reads the present state (K-15, K-17).

One difference to client-go: when a pass over a key begins, a time that had been set for that key is dropped. The pass
sees what that time was waiting for, and what it decides replaces what an earlier one had planned.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from capox.kube.errors import KubeError
from capox.kube.metrics import QueueMetrics

__all__ = ["BACKOFF_CAP_SECONDS", "BACKOFF_FIRST_SECONDS", "DONE", "Request", "Result", "Workqueue"]

BACKOFF_FIRST_SECONDS: Final = 1.0
"""The longest wait after a first failure."""

BACKOFF_CAP_SECONDS: Final = 300.0
"""The longest wait after any failure."""


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Request:
    """The key of one object. Nothing else travels through the queue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What a reconciler wants next, when it did not fail.

    Attributes:
        requeue_after_seconds: Look again after this time, unless something wakes the object before. None waits for
            a watch event or the next relist.
    """

    requeue_after_seconds: float | None = None


DONE: Final = Result()
"""Nothing to do until something changes."""

Reconcile = Callable[[Request], Awaitable[Result]]


class Workqueue:
    """A queue with its workers. Everything is called from one event loop.

    Args:
        name: The controller's name in metrics and logs.
        reconcile: Called with one key at a time for each key, and with up to `concurrency` keys at once.
        concurrency: How many workers there are.
        randomness: Where jitter comes from.
        metrics: Where outcomes are counted.
        weather: Errors that are nobody's mistake; they are logged in one line. Any other is logged with its traceback.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        concurrency: int,
        randomness: random.Random,
        metrics: QueueMetrics,
        weather: tuple[type[Exception], ...] = (KubeError,),
    ) -> None:
        assert concurrency > 0, "a queue without workers never moves"
        self.name = name
        self._reconcile = reconcile
        self._concurrency = concurrency
        self._randomness = randomness
        self._metrics = metrics
        self._weather = weather
        self._waiting: collections.deque[tuple[Request, float]] = collections.deque()
        # Everything that has to be looked at: waiting, or to be put back when its worker is done with it.
        self._dirty: set[Request] = set()
        # What is being worked on, and since when, in order of beginning.
        self._processing: dict[Request, float] = {}
        self._timers: dict[Request, asyncio.TimerHandle] = {}
        self._failures: dict[Request, int] = {}
        self._ready = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._is_draining = False
        self._moved_at = 0.0
        self._log = structlog.get_logger().bind(controller=name)
        metrics.register(name, concurrency, self.longest_running_seconds)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nobody works; a key with a timer may still be to come."""
        return not self._waiting and not self._processing

    def longest_running_seconds(self) -> float:
        """How long the longest of the present passes has run; 0 when there is none."""
        return self._age_seconds(next(iter(self._processing.values()), None))

    def longest_waiting_seconds(self) -> float:
        """How long the key that comes next has waited for a worker; 0 when none waits."""
        return self._age_seconds(self._waiting[0][1] if self._waiting else None)

    def still_seconds(self) -> float:
        """How long keys have waited without any pass beginning or ending; 0 when none waits."""
        return min(self.longest_waiting_seconds(), self._age_seconds(self._moved_at)) if self._waiting else 0.0

    def add(self, request: Request) -> None:
        """Have a key looked at; at once if nobody works on it, else when that worker is done."""
        if self._is_draining or request in self._dirty:
            return
        self._dirty.add(request)
        if request not in self._processing:
            self._enqueue(request)

    def add_after(self, request: Request, seconds: float) -> None:
        """Have a key looked at after a time; of several times the earliest counts."""
        if self._is_draining:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        timer = self._timers.get(request)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[request] = loop.call_at(due, self._on_timer, request)

    async def run(self) -> None:
        """Work until cancelled. Cancelling stops the workers where they are; `drain` lets them finish first."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._concurrency):
                group.create_task(self._work(), name=f"{self.name} worker {number}")

    async def drain(self, seconds: float) -> bool:
        """Take no more keys and wait for the workers to finish with theirs; False when they did not in time (K-35)."""
        self._is_draining = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        self._dirty.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._at_rest.wait()
        return not self._processing

    def _enqueue(self, request: Request) -> None:
        self._waiting.append((request, asyncio.get_running_loop().time()))
        self._metrics.on_add(self.name, len(self._waiting))
        self._ready.set()

    def _on_timer(self, request: Request) -> None:
        self._timers.pop(request, None)
        self.add(request)

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._ready.clear()
                await self._ready.wait()
            request, since = self._waiting.popleft()
            now = asyncio.get_running_loop().time()
            self._dirty.discard(request)
            self._processing[request] = self._moved_at = now
            self._at_rest.clear()
            self._metrics.on_take(self.name, now - since, len(self._waiting), len(self._processing))
            if (timer := self._timers.pop(request, None)) is not None:
                timer.cancel()
            try:
                outcome = await self._process(request)
            finally:
                del self._processing[request]
                self._moved_at = asyncio.get_running_loop().time()
                if not self._processing:
                    self._at_rest.set()
                if request in self._dirty:
                    self._enqueue(request)
            elapsed_seconds = asyncio.get_running_loop().time() - now
            self._metrics.on_done(self.name, outcome, elapsed_seconds, len(self._processing))

    async def _process(self, request: Request) -> str:
        """One pass; gives how it ended."""
        with structlog.contextvars.bound_contextvars(
            reconcileID=str(uuid.UUID(int=self._randomness.getrandbits(128), version=4)),
            namespace=request.namespace,
            name=request.name,
        ):
            try:
                result = await self._reconcile(request)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something inside was cancelled, not we: without this, one worker less would be left.
                self._on_failure(request, error)
                return "error"
            except Exception as error:  # noqa: BLE001  # whatever it was, the key has to come back
                self._on_failure(request, error)
                return "error"
        self._failures.pop(request, None)
        if result.requeue_after_seconds is None:
            return "success"
        self.add_after(request, result.requeue_after_seconds)
        return "requeue_after"

    def _on_failure(self, request: Request, error: BaseException) -> None:
        failures = self._failures.get(request, 0)
        self._failures[request] = failures + 1
        wait_seconds = self._backoff_seconds(failures)
        self._log.warning(
            "Reconciling failed",
            error=str(error),
            errorType=type(error).__name__,
            retryAfterSeconds=round(wait_seconds, 3),
            exc_info=None if isinstance(error, self._weather) else error,
        )
        self._metrics.on_retry(self.name)
        self.add_after(request, wait_seconds)

    def _backoff_seconds(self, failures: int) -> float:
        """Between half of the exponential step and all of it, so that many failing keys do not come back as one."""
        step = min(BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 30))
        return step * (0.5 + self._randomness.random() / 2)

    def _age_seconds(self, since: float | None) -> float:
        return 0.0 if since is None else asyncio.get_running_loop().time() - since
