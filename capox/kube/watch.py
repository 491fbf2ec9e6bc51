"""What is watched, and the way from something seen to the keys that have to be looked at.

Watches lose events (K-16, K-31), so whatever matters must also come by the periodic list: it asks for every key of the
kinds that have a controller, shows every object to the map functions again, and notices what has vanished unseen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import structlog

from capox.kube.client import Document, Labels
from capox.kube.kind import Kind
from capox.kube.metrics import WatchMetrics
from capox.kube.workqueue import Request, Workqueue

__all__ = ["Dispatcher", "Lister", "MapFunction", "Wakeup", "Watch", "WatchEvent"]

Wakeup: TypeAlias = tuple[str, Request]
"""A controller, and the key that it has to look at."""

_Key: TypeAlias = tuple[str, str]

_log = structlog.get_logger()


@dataclasses.dataclass(frozen=True, slots=True)
class WatchEvent:
    """Something seen of an object. What it was matters little: whoever is woken reads the present state.

    Attributes:
        type: What has happened. An object that was listed is ADDED.
        kind: The object's kind.
        document: The object, without its managedFields. When it has vanished unseen only its name and namespace are
            known. Nobody may change it, and nobody should keep it.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind[Any]
    document: Document


MapFunction: TypeAlias = Callable[[WatchEvent], Iterable[Wakeup]]
"""From something seen to the keys that it concerns. It does no input or output."""


@dataclasses.dataclass(frozen=True, slots=True)
class Watch:
    """One kind that is watched.

    Attributes:
        kind: The kind.
        map: Which keys an event concerns.
        controller: The controller whose keys are the objects of this kind; None for kinds that only wake others. The
            periodic list asks it for every object, whatever the map function thinks.
        is_remembered: Whether those whom an object concerned last are woken when it has vanished unseen. Not needed
            where the map function can tell by the name alone whom that concerns.
    """

    kind: Kind[Any]
    map: MapFunction
    controller: str | None = None
    is_remembered: bool = True


class Lister(Protocol):
    """Where the periodic list comes from; `KubeClient` is one."""

    def pages(
        self, kind: Kind[Any], namespace: str | None, labels: Labels | None = None
    ) -> AsyncIterator[Sequence[Document]]:
        """Read all objects of a kind, page by page."""
        ...


class Dispatcher:
    """Brings what is seen to the queues.

    Args:
        watches: What is watched.
        queues: The work queues by controller.
        metrics: Where events are counted.
    """

    def __init__(self, watches: Sequence[Watch], queues: Mapping[str, Workqueue], metrics: WatchMetrics) -> None:
        self.watches = tuple(watches)
        self._queues = queues
        self._metrics = metrics
        # For each object whom it concerned when it last concerned anybody, to be told when it has vanished unseen.
        self._seen: dict[str, dict[_Key, tuple[Wakeup, ...]]] = {str(watch.kind): {} for watch in watches}
        for watch in watches:
            metrics.register(str(watch.kind))

    def see(self, watch: Watch, type_: Literal["ADDED", "MODIFIED", "DELETED"], document: Document) -> None:
        """Take an event of a watch."""
        self._metrics.on_event(str(watch.kind))
        for wakeup in self._map(watch, WatchEvent(type_, watch.kind, document)):
            self._wake(wakeup)

    async def relist(self, watch: Watch, lister: Lister, namespace: str | None) -> int:
        """List all objects of a kind and wake whom they concern; gives how many there are.

        Raises:
            KubeError: The list cannot be read to its end. What was read has been taken.
        """
        seen = self._seen[str(watch.kind)]
        before = set(seen)
        listed: set[_Key] = set()
        async for documents in lister.pages(watch.kind, namespace):
            for document in documents:
                listed.add(_key(document))
                for wakeup in self._map(watch, WatchEvent("ADDED", watch.kind, document)):
                    self._wake(wakeup)
                if watch.controller is not None:
                    self._wake((watch.controller, Request(*_key(document))))
        for key in sorted(before - listed):
            self._vanish(watch, key)
        return len(listed)

    def _map(self, watch: Watch, event: WatchEvent) -> tuple[Wakeup, ...]:
        """Whom an event concerns. A mistake in a map function costs its one event, until the next list."""
        key = _key(event.document)
        try:
            wakeups = tuple(watch.map(event))
        except Exception:  # noqa: BLE001  # whatever it was, the watch has to go on
            _log.exception("Mapping an event failed", kind=str(watch.kind), namespace=key[0], name=key[1])
            wakeups = ()
        seen = self._seen[str(watch.kind)]
        if event.type == "DELETED":
            seen.pop(key, None)
        elif wakeups or key not in seen:
            seen[key] = wakeups if watch.is_remembered else ()
        return wakeups

    def _vanish(self, watch: Watch, key: _Key) -> None:
        """An object that is gone, and no watch has said so."""
        last = self._seen[str(watch.kind)].get(key, ())
        metadata = {"namespace": key[0], "name": key[1]}
        document = {"apiVersion": watch.kind.api_version, "kind": watch.kind.name, "metadata": metadata}
        for wakeup in (*last, *self._map(watch, WatchEvent("DELETED", watch.kind, document))):
            self._wake(wakeup)
        if watch.controller is not None:
            self._wake((watch.controller, Request(*key)))

    def _wake(self, wakeup: Wakeup) -> None:
        controller, request = wakeup
        self._queues[controller].add(request)


def _key(document: Document) -> _Key:
    metadata = document["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
