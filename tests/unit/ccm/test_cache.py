"""What the watches have told: nothing before the first list, and no older state after a newer one (R9)."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from capox.ccm.cache import Cache
from capox.ccm.kinds import NODES, PODS
from capox.kube.core_objects import Node
from capox.kube.errors import Unavailable
from capox.kube.watch import WatchEvent


def document(name: str, version: int, uid: str = "1") -> dict[str, Any]:
    """A Node."""
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def event(type_: Literal["ADDED", "MODIFIED", "DELETED"], name: str, version: int, uid: str = "1") -> WatchEvent:
    """Something seen of a Node."""
    return WatchEvent(type_, NODES, document(name, version, uid))


class Lists:
    """Answers lists, and lets something happen while one is under way."""

    def __init__(self, *documents: dict[str, Any], meanwhile: list[WatchEvent] | None = None) -> None:
        self.documents = documents
        self.meanwhile = meanwhile or []
        self.cache: Cache[Node] | None = None
        self.is_away = False

    async def list(self, kind: Any, namespace: str | None) -> list[Any]:
        """Answer."""
        del namespace
        if self.is_away:
            raise Unavailable(503, "", "away")
        for each in self.meanwhile:
            assert self.cache is not None
            self.cache.see(each)
        return [kind.parse(each) for each in self.documents]


def versions(cache: Cache[Node]) -> dict[str, str]:
    """What is known."""
    return {each.metadata.name: each.metadata.resource_version for each in cache}


async def test_nothing_is_known_before_the_first_list() -> None:
    """R9: events alone, or a list that failed, do not make it whole."""
    cache: Cache[Node] = Cache(NODES)
    lists = Lists(document("a", 1))
    lists.is_away = True
    with pytest.raises(Unavailable):
        await cache.relist(lists)
    cache.see(event("ADDED", "b", 2))
    synced = [cache.is_synced]

    lists.is_away = False
    await cache.relist(lists)
    assert [*synced, cache.is_synced] == [False, True]
    assert set(versions(cache)) == {"a"}


async def test_what_a_list_lacks_is_forgotten_unless_it_is_newer() -> None:
    """A Node that came while the list was read stays; one that was there before and is not in it goes."""
    cache: Cache[Node] = Cache(NODES)
    await cache.relist(Lists(document("a", 1), document("b", 2)))
    lists = Lists(document("a", 1), meanwhile=[event("ADDED", "c", 5, "3"), event("MODIFIED", "a", 6)])
    lists.cache = cache
    await cache.relist(lists)

    assert versions(cache) == {"a": "6", "c": "5"}


async def test_a_list_does_not_bring_back_what_was_deleted_meanwhile() -> None:
    """The list is older than the event."""
    cache: Cache[Node] = Cache(NODES)
    await cache.relist(Lists(document("a", 1)))
    lists = Lists(document("a", 1), meanwhile=[event("DELETED", "a", 7)])
    lists.cache = cache
    await cache.relist(lists)

    assert versions(cache) == {}


def test_an_older_state_does_not_replace_a_newer_one() -> None:
    """Events of a watch that begins anew repeat what was."""
    cache: Cache[Node] = Cache(NODES)
    cache.see(event("ADDED", "a", 10))
    cache.see(event("ADDED", "a", 9))

    assert versions(cache) == {"a": "10"}


def test_the_end_of_a_predecessor_is_not_that_of_its_successor() -> None:
    """UIDs are compared: a Node that was made again under its name stays (5.4)."""
    cache: Cache[Node] = Cache(NODES)
    cache.see(event("ADDED", "a", 10, "new"))
    cache.see(event("DELETED", "a", 9, "old"))

    assert versions(cache) == {"a": "10"}


def test_what_nobody_can_read_is_left_out() -> None:
    """One object that does not fit its model costs nothing but itself."""
    cache: Cache[Node] = Cache(NODES)
    broken = document("a", 1) | {"spec": {"taints": "none"}}

    assert cache.see(WatchEvent("ADDED", NODES, broken)) is None
    assert len(cache) == 0


def test_only_what_is_asked_for_is_kept() -> None:
    """A Pod that gives up its ports is dropped."""
    cache = Cache(PODS, lambda pod: bool(pod.spec.host_network))
    metadata = {"name": "p", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"hostNetwork": True}}
    cache.see(WatchEvent("ADDED", PODS, pod))
    assert cache.get("default", "p") is not None

    later = pod | {"metadata": metadata | {"resourceVersion": "2"}, "spec": {}}
    cache.see(WatchEvent("MODIFIED", PODS, later))
    assert cache.get("default", "p") is None
