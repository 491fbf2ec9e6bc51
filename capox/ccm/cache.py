"""What the watches and lists have told of one kind: for decisions about many objects, which no live read could serve.

A cache is empty until its first list has succeeded, and says so (`is_synced`): that a Node is not in it must never mean
that there is no such Node while nobody has looked (R9). Right before a write the object is read live all the same.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import structlog

from capox.kube.errors import Unreadable
from capox.kube.kind import Kind
from capox.kube.objects import Resource
from capox.kube.watch import WatchEvent

__all__ = ["Cache"]

R = TypeVar("R", bound=Resource)

GONE_REMEMBERED_MAX: Final = 4096
"""How many deleted objects are remembered, so that no older list brings them back."""


class _Lister(Protocol):
    async def list(self, kind: Kind[R], namespace: str | None) -> list[R]: ...


class Cache(Generic[R]):
    """The objects of a kind as they were last seen.

    Args:
        kind: The kind.
        keep: Which objects are kept; all of them when absent.
    """

    def __init__(self, kind: Kind[R], keep: Callable[[R], bool] | None = None) -> None:
        self.kind = kind
        self._keep = keep or (lambda _: True)
        self._objects: dict[tuple[str, str], R] = {}
        self._gone: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._is_synced = False
        self._log = structlog.get_logger()

    @property
    def is_synced(self) -> bool:
        """Whether a whole list was taken. Before that nothing may be concluded from what is not here (R9)."""
        return self._is_synced

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[R]:
        """The objects, in the order of their namespaces and names."""
        return iter([self._objects[key] for key in sorted(self._objects)])

    def get(self, namespace: str, name: str) -> R | None:
        """One object; None when it is not known."""
        return self._objects.get((namespace, name))

    async def relist(self, kube: _Lister) -> None:
        """Take a whole list, and forget what it does not have.

        Raises:
            KubeError: The list could not be read. Everything stays as it was.
        """
        before = {key: each.metadata.resource_version for key, each in self._objects.items()}
        listed = set()
        for each in await kube.list(self.kind, None):
            listed.add(_key(each))
            self._put(each)
        for key, version in before.items():
            # One that a watch has told of meanwhile is newer than the list.
            if key not in listed and key in self._objects and self._objects[key].metadata.resource_version == version:
                del self._objects[key]
        self._is_synced = True

    def see(self, event: WatchEvent) -> R | None:
        """Take an event of the watch; gives the object, None when it cannot be read or nothing is known but its name.

        What only a list has noticed to be gone is left to `relist`, which knows how old its list is.
        """
        if event.type == "DELETED" and not event.document["metadata"].get("uid"):
            return None
        try:
            seen = self.kind.parse(event.document)
        except Unreadable as error:
            self._log.warning("An object cannot be read", error=str(error))
            return None
        if event.type == "DELETED":
            self._drop(seen)
        else:
            self._put(seen)
        return seen

    def _put(self, seen: R) -> None:
        key = _key(seen)
        known = self._objects.get(key)
        if seen.metadata.uid in self._gone or (known is not None and _is_older(seen, known)):
            return
        if self._keep(seen):
            self._objects[key] = seen
        else:
            self._objects.pop(key, None)

    def _drop(self, seen: R) -> None:
        self._gone[seen.metadata.uid] = None
        if len(self._gone) > GONE_REMEMBERED_MAX:
            self._gone.popitem(last=False)
        known = self._objects.get(_key(seen))
        if known is not None and known.metadata.uid == seen.metadata.uid:
            del self._objects[_key(seen)]


def _key(resource: Resource) -> tuple[str, str]:
    return resource.metadata.namespace, resource.metadata.name


def _is_older(seen: Resource, known: Resource) -> bool:
    """Whether one state of an object came before another: versions are numbers of one sequence."""
    return _version(seen) < _version(known)


def _version(resource: Resource) -> int:
    text = resource.metadata.resource_version
    return int(text) if text.isdecimal() else 0
