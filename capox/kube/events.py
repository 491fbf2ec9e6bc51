"""Events for people: what `kubectl describe` shows under an object.

Recording never waits and never fails. What is said again of the same object in the same words is not a new Event: it
raises the count of the one that is there, now and then (K-42). Limits keep a loop that goes wrong from filling etcd:
tokens an object and in all, and a bound on what waits to be sent. An Event lost is no harm, since the object's
conditions say the same.

Messages are kept as they come: whoever records sees to it that there is no secret in them.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

import structlog

from capox.kube import errors
from capox.kube.client import KubeAPI
from capox.kube.kind import Kind
from capox.kube.metrics import EventMetrics
from capox.kube.objects import Resource

__all__ = ["EVENTS", "Event", "EventRecorder", "Recorder"]

NOTE_BYTES_MAX: Final = 1024
"""The longest message of an Event, in UTF-8."""

QUEUE_MAX: Final = 1000
"""How many Events may wait to be sent."""

REMEMBERED_MAX: Final = 2048
"""How many sent Events, and how many objects' tokens, are remembered."""

REPEAT_SECONDS: Final = 300.0
"""After how long the count of an Event is raised again, at the earliest."""

OBJECT_BURST: Final = 25
"""How many Events an object may have at once."""

OBJECT_SECONDS: Final = 300.0
"""How long it takes until an object may have one more."""

ALL_BURST: Final = 300
"""How many Events all objects may have at once."""

ALL_PER_SECOND: Final = 10.0
"""How many more they may have each second."""

ATTEMPTS: Final = 4
"""How often an Event is tried to be sent while the API is away."""

_Type: TypeAlias = Literal["Normal", "Warning"]
_Key: TypeAlias = tuple[str, str, str, str]


class Event(Resource):
    """An Event (`events.k8s.io/v1`). Nothing of it is ever read."""


EVENTS: Final = Kind(Event, "events.k8s.io", "v1", "events")


class Recorder(Protocol):
    """Tells people what happened, by Events on an object."""

    def normal(self, resource: Resource, reason: str, message: str) -> None:
        """Something happened as it should."""
        ...

    def warning(self, resource: Resource, reason: str, message: str) -> None:
        """Something needs a person, or more time than it should."""
        ...


@dataclasses.dataclass(slots=True)
class _Series:
    """An Event that was sent, and how often the same has been said.

    Attributes:
        namespace: Where it is.
        name: What it is called.
        document: What it was made from, in case it is gone: Events live for an hour.
        count: How often it was said.
        is_queued: Whether it waits to be sent.
        is_new: Whether it has yet to be made.
        sent_at: When it was last put into the queue.
    """

    namespace: str
    name: str
    document: dict[str, Any]
    count: int = 1
    is_queued: bool = True
    is_new: bool = True
    sent_at: float = 0.0


class _Tokens:
    """A token bucket that says no instead of making wait."""

    __slots__ = ("_burst", "_left", "_per_second", "_since")

    def __init__(self, burst: float, per_second: float, now: float) -> None:
        self._burst, self._per_second = burst, per_second
        self._left, self._since = burst, now

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class EventRecorder:
    """Records Events and sends them in the background.

    Args:
        kube: The API.
        component: Who reports, such as `capox-controller`.
        instance: Which process of it, such as the Pod's name.
        now: The wall clock.
        randomness: Where names come from, and jitter.
        metrics: Where Events are counted.
        repeat_seconds: After how long the count of an Event is raised again, at the earliest.
    """

    def __init__(
        self,
        kube: KubeAPI,
        *,
        component: str,
        instance: str,
        now: Callable[[], datetime],
        randomness: random.Random,
        metrics: EventMetrics,
        repeat_seconds: float = REPEAT_SECONDS,
    ) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance[:128]
        self._now = now
        self._randomness = randomness
        self._metrics = metrics
        self._repeat_seconds = repeat_seconds
        self._queue: collections.deque[_Series] = collections.deque()
        self._ready = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._series: collections.OrderedDict[_Key, _Series] = collections.OrderedDict()
        self._objects: collections.OrderedDict[str, _Tokens] = collections.OrderedDict()
        self._all: _Tokens | None = None
        self._log = structlog.get_logger()

    def normal(self, resource: Resource, reason: str, message: str) -> None:
        """Something happened as it should."""
        self._record(resource, "Normal", reason, message)

    def warning(self, resource: Resource, reason: str, message: str) -> None:
        """Something needs a person, or more time than it should."""
        self._record(resource, "Warning", reason, message)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            while not self._queue:
                self._empty.set()
                self._ready.clear()
                await self._ready.wait()
            series = self._queue.popleft()
            series.is_queued = False
            self._metrics.on_event(await self._send(series))

    async def drain(self, seconds: float) -> bool:
        """Wait until everything is sent; False when it was not in time. `run` has to be running."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _record(self, resource: Resource, type_: _Type, reason: str, message: str) -> None:
        try:
            result = self._note(resource, type_, reason, message, asyncio.get_running_loop().time())
        except Exception:  # noqa: BLE001  # an Event is never worth the work that it tells of
            self._log.exception("Recording an event failed", reason=reason)
            return
        if result is not None:
            self._metrics.on_event(result)

    def _note(self, resource: Resource, type_: _Type, reason: str, message: str, now: float) -> str | None:
        """Queue an Event, or raise the count of one; gives what became of it if that is certain already."""
        metadata = resource.metadata
        key = (metadata.uid, type_, reason, message)
        known = self._series.get(key)
        if known is not None:
            known.count += 1
            self._series.move_to_end(key)
            if known.is_queued or now - known.sent_at < self._repeat_seconds:
                return "repeated"
        if not self._may_send(metadata.uid, now) or len(self._queue) >= QUEUE_MAX:
            return "dropped"
        if known is None:
            known = _Series(metadata.namespace or "default", self._name(metadata.name), {})
            known.document = self._document(resource, type_, reason, message, known)
            _remember(self._series, key, known)
        known.is_queued, known.sent_at = True, now
        self._queue.append(known)
        self._empty.clear()
        self._ready.set()
        return None

    def _may_send(self, uid: str, now: float) -> bool:
        tokens = self._objects.get(uid)
        if tokens is None:
            tokens = _Tokens(OBJECT_BURST, 1 / OBJECT_SECONDS, now)
            _remember(self._objects, uid, tokens)
        if self._all is None:
            self._all = _Tokens(ALL_BURST, ALL_PER_SECOND, now)
        return tokens.take(now) and self._all.take(now)

    def _name(self, name: str) -> str:
        # Chosen here and not by the API, so that sending it again after a lost answer makes no second Event.
        return f"{name[:200]}.{self._randomness.getrandbits(64):016x}"

    def _document(self, resource: Resource, type_: _Type, reason: str, message: str, series: _Series) -> dict[str, Any]:
        metadata = resource.metadata
        regarding = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.name,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": _micro_time(self._now()),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "type": type_,
            "reason": reason[:128],
            "note": _cut(message),
            "regarding": {field: value for field, value in regarding.items() if value},
        }

    async def _send(self, series: _Series) -> str:
        """Send one Event; gives what became of it."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._send_once(series)
            except (errors.NoAnswer, errors.Unavailable, errors.Unauthorized) as error:
                if attempt == ATTEMPTS:
                    self._log.debug("Sending an event failed", error=str(error))
            except errors.KubeError as error:
                # A namespace at its end takes none (M-12), nor does an API that does not allow it: not worth a line.
                self._log.debug("An event was refused", error=str(error))
                return "refused"
            await asyncio.sleep(2**attempt * (0.5 + self._randomness.random() / 2))
        return "dropped"

    async def _send_once(self, series: _Series) -> str:
        if not series.is_new:
            repeated = {"count": series.count, "lastObservedTime": _micro_time(self._now())}
            try:
                await self._kube.patch(EVENTS, series.namespace, series.name, {"series": repeated})
            except errors.NotFound:
                # It has outlived its hour; what is said now is news again.
                series.document["eventTime"] = _micro_time(self._now())
                series.count = 1
            else:
                return "sent"
        with contextlib.suppress(errors.AlreadyExists):  # an earlier attempt, whose answer was lost
            await self._kube.create(EVENTS, series.namespace, series.document)
        series.is_new = False
        return "sent"


def _remember(memory: collections.OrderedDict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED_MAX:
        memory.popitem(last=False)


def _micro_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= NOTE_BYTES_MAX:
        return message
    return encoded[: NOTE_BYTES_MAX - 4].decode(errors="ignore") + " ..."
