"""kopf as a source of watch events, and as nothing else.

It runs in a thread with an event loop of its own. When a kopf operator ends, it cancels every task that its loop has
got since it began (K-45); in a loop of its own that is its own business, and it can be begun again while the work
queues go on.

Its only handlers are `on.event`, for exact versions; they hand the event over and return. With these kopf writes
nothing to any object (K-0, section 3.5), provided that the finalizer that it takes for its own is nobody's (K-4).
Nothing is scanned for: neither CRDs nor namespaces have to be readable. A kind that comes later is noticed by the
manager, which begins the watches again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import kopf
import structlog

from capox.kube.client import KubeClient
from capox.kube.kind import Kind
from capox.kube.manager import EventType

__all__ = ["EndlessBackoff", "KopfSource", "kopf_settings"]

UNUSED_FINALIZER: Final = "capox.invalid/unused"
"""What kopf takes for its own finalizer. It takes that one off objects, so it must be nobody's (K-4)."""

FIRST_PAUSE_SECONDS: Final = 1.0
"""The first pause after an attempt to reach the API has failed."""

BACKOFF_CAP_SECONDS: Final = 30.0
"""The longest pause between two attempts to reach the API."""

BEAT_SECONDS: Final = 1.0
"""How often the watches that live are told of."""

STOP_SECONDS: Final = 5.0
"""How long the thread may take to end before it is left to itself."""

CHUNK: Final = 200
"""How many objects a page of the first list holds: it bounds the memory of a beginning (K-32)."""

_TLS_END_SECONDS: Final = 0.25
_SERVER_TIMEOUT_SECONDS: Final = 300
_CLIENT_TIMEOUT_SECONDS: Final = 330.0
_CONNECT_TIMEOUT_SECONDS: Final = 10.0
_REQUEST_TIMEOUT_SECONDS: Final = 60.0


class EndlessBackoff:
    """Pauses that grow to a cap and never end, begun anew for each request: kopf gives up when they end (K-30).

    Args:
        first_seconds: The first pause.
    """

    def __init__(self, first_seconds: float = FIRST_PAUSE_SECONDS) -> None:
        self._first_seconds = first_seconds

    def __iter__(self) -> Iterator[float]:
        pause_seconds = self._first_seconds
        while True:
            yield pause_seconds
            pause_seconds = min(BACKOFF_CAP_SECONDS, 2 * pause_seconds)


def kopf_settings(backoff: EndlessBackoff) -> kopf.OperatorSettings:
    """Give kopf's settings as every process of ours has them."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.finalizer = UNUSED_FINALIZER
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = _SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = _CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = _CONNECT_TIMEOUT_SECONDS
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = CHUNK
    settings.networking.request_timeout = _REQUEST_TIMEOUT_SECONDS
    settings.networking.connect_timeout = _CONNECT_TIMEOUT_SECONDS
    settings.networking.error_backoffs = backoff
    # A worker holds its last event until it ends; handlers only pass events on, so there is nothing to wait for.
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 0.1
    # It would kill the whole process ten minutes after one operator in it has ended.
    settings.process.ultimate_exiting_timeout = None
    return settings


class KopfSource:
    """Watches kinds with kopf; a `WatchSource`. It can be started once.

    Args:
        client: Where the API is and how to log in.
        kinds: The kinds that are watched.
        namespace: The one namespace that is looked at; None for all.
        backoff: The pauses between attempts.
    """

    def __init__(
        self,
        client: KubeClient,
        kinds: Sequence[Kind[Any]],
        namespace: str | None,
        *,
        backoff: EndlessBackoff | None = None,
    ) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._namespace = namespace
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)
        # What is used from both threads is set before the thread begins, or only called thread-safely.
        self._owner: asyncio.AbstractEventLoop | None = None
        self._sink: Callable[[Kind[Any], EventType, dict[str, Any]], None] | None = None
        self._beat: Callable[[set[str]], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._operator: asyncio.Task[None] | None = None
        self._pause: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._logins = 0
        self._sessions: list[contextlib.AbstractAsyncContextManager[Any]] = []
        self._backoff = backoff or EndlessBackoff()
        self._log = structlog.get_logger()

    def start(
        self, sink: Callable[[Kind[Any], EventType, dict[str, Any]], None], beat: Callable[[set[str]], None]
    ) -> None:
        """Begin to watch; `sink` and `beat` are called in the loop that runs now."""
        assert self._owner is None, "a source is started once"
        # kopf logs every event of every object, with bodies at debug level (K-43).
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger(kopf.operator.__module__).addFilter(_is_news)
        self._owner, self._sink, self._beat = asyncio.get_running_loop(), sink, beat
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def restart(self) -> None:
        """Begin all watches again."""
        self._call(self._end)

    async def stop(self) -> None:
        """End all watches."""
        if self._owner is None:
            return
        self._is_stopping = True
        self._call(self._end)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    # In the owner's thread and in ours.

    def _call(self, function: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has what was to be ended
            self._loop.call_soon_threadsafe(function)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._owner is not None
        with contextlib.suppress(RuntimeError):  # the process is at its end
            self._owner.call_soon_threadsafe(function, *arguments)

    # In our thread.

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._watch(loop))

    async def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        beating = asyncio.create_task(self._beat_for_ever(), name="beat")
        pauses = iter(self._backoff)
        try:
            while not self._is_stopping:
                began = loop.time()
                await self._operate()
                if loop.time() - began > 2 * BACKOFF_CAP_SECONDS:
                    pauses = iter(self._backoff)
                if not self._is_stopping:
                    self._pause = asyncio.create_task(asyncio.sleep(next(pauses)), name="pause")
                    await asyncio.wait((self._pause,))
        finally:
            beating.cancel()
            # TLS connections end by an exchange, for which nobody else waits; without it sockets would be left open.
            await asyncio.sleep(_TLS_END_SECONDS)

    async def _operate(self) -> None:
        """Run one operator to its end, whatever ends it."""
        scope: dict[str, Any] = {"clusterwide": True} if self._namespace is None else {"namespaces": [self._namespace]}
        # Without a name of its own kopf would make one, for which it looks the host up in DNS and waits for the answer.
        scope["identity"] = "capox"
        operator = kopf.operator(
            registry=self._registry(), settings=kopf_settings(self._backoff), standalone=True, **scope
        )
        self._operator = asyncio.create_task(operator, name="operator")
        try:
            await asyncio.wait((self._operator,))
            if not self._operator.cancelled() and (error := self._operator.exception()) is not None:
                self._log.warning("Watches ended", error=str(error), errorType=type(error).__name__)
        finally:
            self._operator.cancel()
            # An operator that fails or is cancelled does not close what it was given.
            while self._sessions:
                await self._sessions.pop().__aexit__(None, None, None)

    def _end(self) -> None:
        """End the operator at once: it has nothing to finish, and asked politely it waits for seconds."""
        for task in (self._operator, self._pause):
            if task is not None:
                task.cancel()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        for kind in self._kinds:
            kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id="seen")(self._handler(kind))
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """Give kopf a session. It asks once, and again whenever the API has answered 401."""
        self._logins += 1
        if self._logins > 1:
            # Without a pause a token that is not accepted would be tried as fast as the network allows.
            await asyncio.sleep(next(itertools.islice(self._backoff, min(self._logins - 2, 100), None)))
        session = self._client.watch_session()
        self._sessions.append(session)
        return kopf.AiohttpSession(server=self._client.server, aiohttp_session=session)

    def _handler(self, kind: Kind[Any]) -> Callable[..., Any]:
        async def seen(event: Any, **_: Any) -> None:
            document = event["object"]
            document["metadata"].pop("managedFields", None)
            self._logins = 1
            assert self._sink is not None
            self._tell(self._sink, kind, event["type"] or "ADDED", dict(document))

        return seen

    async def _beat_for_ever(self) -> None:
        assert self._beat is not None
        while True:
            names = {task.get_name() for task in asyncio.all_tasks() if not task.done()}
            self._tell(self._beat, {str(kind) for kind in self._kinds if self._is_watched(kind, names)})
            await asyncio.sleep(BEAT_SECONDS)

    def _is_watched(self, kind: Kind[Any], names: set[str]) -> bool:
        # The name of the task is not kopf's promise; a test holds it to it.
        resource = ".".join(part for part in (kind.plural, kind.version, kind.group) if part)
        return f"watcher for {resource}@{self._namespace}" in names


def _is_news(record: logging.LogRecord) -> bool:
    """Drop what kopf says of being in a thread, which is what we want of it."""
    return "OS signals are ignored" not in str(record.msg)
