"""The manager: lists, watchdog, start and end, on virtual time and with a source of watches that does as told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import pytest

from capox.kube import errors
from capox.kube.client import Document, Labels
from capox.kube.kind import SECRETS, Kind
from capox.kube.manager import GRACE_SECONDS, RESTARTS_MAX, EventType, Manager, WatchesLostError, stop_on_signals
from capox.kube.metrics import QueueMetrics, Registry, WatchMetrics
from capox.kube.watch import Dispatcher, Wakeup, Watch, WatchEvent
from capox.kube.workqueue import DONE, Request, Result, Workqueue
from tests.contract.kube.stories import MACHINES, machine, secret
from tests.sim.loop import simulate, simulated, simulation_loop
from tests.sim.store import Change, Store

SYNC_PERIOD_SECONDS = 600.0
NAME = str(MACHINES)


class StoreSource:
    """A source of watches over the store.

    Attributes:
        restarts: How often it was asked to begin again.
        live: The kinds whose watches live.
        is_silent: Whether it says nothing of its watches.
        is_deaf: Whether it loses what happens.
        mends: Whether beginning again brings the watches back.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sink: Callable[[Kind[Any], EventType, dict[str, Any]], None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self.restarts = 0
        self.live = {str(MACHINES), str(SECRETS)}
        self.is_silent = False
        self.is_deaf = False
        self.mends = True
        store.subscribe(self._on_change)

    def start(
        self, sink: Callable[[Kind[Any], EventType, dict[str, Any]], None], beat: Callable[[set[str]], None]
    ) -> None:
        """Begin."""
        self._sink = sink
        self._beating = asyncio.create_task(self._beat_for_ever(beat))
        for kind in self._store.kinds():
            for document in self._store.list(kind, None):
                sink(kind, "ADDED", dict(document))

    def restart(self) -> None:
        """Begin again."""
        self.restarts += 1
        if self.mends:
            self.live = {str(MACHINES), str(SECRETS)}

    async def stop(self) -> None:
        """End."""
        if self._beating is not None:
            self._beating.cancel()

    def _on_change(self, change: Change) -> None:
        if self._sink is not None and not self.is_deaf:
            self._sink(change.kind, change.type, dict(change.document))

    async def _beat_for_ever(self, beat: Callable[[set[str]], None]) -> None:
        while True:
            if not self.is_silent:
                beat(set(self.live))
            await asyncio.sleep(1)


class StoreLister:
    """Lists of the store.

    Attributes:
        error: What every list ends in, when it is set.
        lists: When each whole list was asked for.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.error: errors.KubeError | None = None
        self.lists: list[float] = []

    async def pages(
        self, kind: Kind[Any], namespace: str | None, labels: Labels | None = None
    ) -> AsyncIterator[Sequence[Document]]:
        """Give pages of two."""
        if labels is None and kind == MACHINES:
            self.lists.append(simulation_loop().time())
        if self.error is not None:
            raise self.error
        documents = self._store.list(kind, namespace, labels)
        for start in range(0, max(1, len(documents)), 2):
            await asyncio.sleep(0.1)
            yield documents[start : start + 2]


class Scene:
    """A manager with everything around it.

    Attributes:
        passes: Each pass as (time, key), in order.
        pass_seconds: How long a pass takes.
        mapped: What the map function was shown, as (type, name).
    """

    def __init__(
        self, map_function: Callable[[WatchEvent], Iterable[Wakeup]] | None = None, *, is_remembered: bool = True
    ) -> None:
        self.store = Store((MACHINES, SECRETS), now=simulation_loop().now, randomness=random.Random(0))
        self.source = StoreSource(self.store)
        self.lister = StoreLister(self.store)
        self.registry = Registry()
        self.passes: list[tuple[float, str]] = []
        self.finished: list[str] = []
        self.pass_seconds = 0.0
        self.mapped: list[tuple[str, str]] = []
        self._map_function = map_function or self._own_key
        queue = Workqueue(
            "machine",
            self._reconcile,
            concurrency=4,
            randomness=random.Random(0),
            metrics=QueueMetrics(self.registry),
        )
        metrics = WatchMetrics(self.registry)
        watches = [
            Watch(MACHINES, self._map, "machine"),
            Watch(SECRETS, self._owner_of_secret, is_remembered=is_remembered),
        ]
        self.manager = Manager(
            source=self.source,
            lister=self.lister,
            dispatcher=Dispatcher(watches, {"machine": queue}, metrics),
            queues={"machine": queue},
            namespace=None,
            sync_period_seconds=SYNC_PERIOD_SECONDS,
            randomness=random.Random(0),
            metrics=metrics,
        )
        self.stop = asyncio.Event()

    async def _reconcile(self, request: Request) -> Result:
        self.passes.append((simulation_loop().time(), request.name))
        await asyncio.sleep(self.pass_seconds)
        self.finished.append(request.name)
        return DONE

    def _map(self, event: WatchEvent) -> Iterable[Wakeup]:
        self.mapped.append((event.type, event.document["metadata"]["name"]))
        return self._map_function(event)

    @staticmethod
    def _own_key(event: WatchEvent) -> Iterable[Wakeup]:
        metadata = event.document["metadata"]
        yield "machine", Request(metadata["namespace"], metadata["name"])

    @staticmethod
    def _owner_of_secret(event: WatchEvent) -> Iterable[Wakeup]:
        for owner in event.document["metadata"].get("ownerReferences") or ():
            yield "machine", Request("default", owner["name"])

    def make(self, *names: str) -> None:
        """Make OxideMachines."""
        for name in names:
            self.store.create(MACHINES, "default", machine("default", name))

    def woken(self) -> list[str]:
        """Give the keys that were looked at since the last time, in order of names."""
        names = sorted(name for _, name in self.passes)
        self.passes.clear()
        return names


@contextlib.asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
    """Run a manager, and cancel it in the end."""
    task = asyncio.create_task(scene.manager.run(scene.stop))
    await asyncio.sleep(1)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, WatchesLostError):
            await task


@simulated
async def test_events_wake_the_keys_that_they_concern() -> None:
    """What is there at the start, and what comes."""
    scene = Scene()
    scene.make("a")
    async with running(scene):
        assert scene.woken() == ["a"]
        scene.make("b")
        await asyncio.sleep(1)
        assert scene.woken() == ["b"]
        owned = secret("default", "of-a")
        owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "a", "uid": "u"}]
        scene.store.create(SECRETS, "default", owned)
        await asyncio.sleep(1)
        assert scene.woken() == ["a"]


@simulated
async def test_a_mistake_in_a_map_function_costs_one_event() -> None:
    """The watch goes on, and the list asks for the key whatever the map function does."""

    def mistaken(_: WatchEvent) -> Iterable[Wakeup]:
        """Make a mistake."""
        raise ZeroDivisionError("a mistake")

    scene = Scene(mistaken)
    async with running(scene):
        scene.make("a")
        await asyncio.sleep(1)
        assert scene.woken() == []
        await asyncio.sleep(2 * SYNC_PERIOD_SECONDS)
        assert "a" in scene.woken()


@simulated
async def test_the_list_asks_for_every_key_of_a_controller() -> None:
    """Once a sync period, with jitter, for what the watch has lost; page by page."""
    scene = Scene()
    scene.source.is_deaf = True
    async with running(scene):
        scene.make("a", "b", "c", "d", "e")
        await asyncio.sleep(5 * SYNC_PERIOD_SECONDS)

    assert {name for _, name in scene.passes} == {"a", "b", "c", "d", "e"}
    assert len(scene.lister.lists) in (4, 5)
    pauses = [later - sooner for sooner, later in zip(scene.lister.lists, scene.lister.lists[1:], strict=False)]
    assert all(0.8 * SYNC_PERIOD_SECONDS <= pause <= 1.2 * SYNC_PERIOD_SECONDS + 1 for pause in pauses)
    assert len(set(pauses)) == len(pauses)
    assert scene.registry.value("capox_relists_total", kind=NAME, result="success") == len(scene.lister.lists)


@simulated
async def test_what_vanished_unseen_wakes_whom_it_concerned() -> None:
    """The watch has lost a deletion: the next list misses the object, tells the map function, and wakes its key."""
    scene = Scene()
    scene.make("goes", "stays")
    async with running(scene):
        scene.source.is_deaf = True
        scene.store.delete(MACHINES, "default", "goes")
        scene.woken()
        scene.mapped.clear()
        await asyncio.sleep(1.3 * SYNC_PERIOD_SECONDS)

        assert scene.woken() == ["goes", "stays"]
        assert ("DELETED", "goes") in scene.mapped
        await asyncio.sleep(1.3 * SYNC_PERIOD_SECONDS)
        assert scene.woken() == ["stays"]


@simulated
@pytest.mark.parametrize(("is_remembered", "woken"), [(True, ["a"]), (False, [])])
async def test_a_vanished_object_wakes_whom_it_concerned_last(is_remembered: bool, woken: list[str]) -> None:
    """Of what has vanished only the name is known, so who has to be told is remembered from before, where asked for."""
    scene = Scene(is_remembered=is_remembered)
    owned = secret("default", "of-a")
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "a", "uid": "u"}]
    scene.store.create(SECRETS, "default", owned)
    async with running(scene):
        scene.source.is_deaf = True
        scene.store.delete(SECRETS, "default", "of-a")
        scene.woken()
        await asyncio.sleep(1.3 * SYNC_PERIOD_SECONDS)

        assert scene.woken() == woken


@simulated
async def test_a_list_that_fails_is_tried_sooner() -> None:
    """After a minute instead of ten, and counted."""
    scene = Scene()
    scene.lister.error = errors.Unavailable(503, "ServiceUnavailable", "away")
    async with running(scene):
        await asyncio.sleep(2 * SYNC_PERIOD_SECONDS)
        failed = len(scene.lister.lists)
        assert failed > 6
        scene.lister.error = None
        scene.source.is_deaf = True
        scene.make("a")
        await asyncio.sleep(80)
        assert scene.woken() == ["a"]

    assert scene.registry.value("capox_relists_total", kind=NAME, result="error") == failed


@simulated
async def test_a_watch_that_is_missing_is_begun_again() -> None:
    """After a grace in which it could have come back by itself."""
    scene = Scene()
    missing: list[tuple[str, ...]] = []
    restarts: list[int] = []
    async with running(scene):
        for seconds in (10, 10, GRACE_SECONDS, 10):
            await asyncio.sleep(seconds)
            missing.append(scene.manager.missing)
            restarts.append(scene.source.restarts)
            if len(missing) == 1:
                scene.source.live.discard(NAME)

    assert [missing[0], missing[1], missing[3]] == [(), (NAME,), ()]
    assert restarts == [0, 0, 1, 1]
    assert scene.registry.value("capox_watch_restarts_total") == 1
    assert scene.registry.value("capox_watch_live", kind=NAME) == 1


@simulated
async def test_a_kind_that_is_not_served_is_waited_for() -> None:
    """No restart while its CRD is missing; when it comes, the watches are begun again (K-37)."""
    scene = Scene()
    scene.store.unserve(MACHINES)
    scene.source.live.discard(NAME)
    async with running(scene):
        await asyncio.sleep(3600)
        assert scene.source.restarts == 0
        assert scene.manager.missing == ()
        scene.store.serve(MACHINES)
        await asyncio.sleep(2 * GRACE_SECONDS)
        assert scene.source.restarts == 1


@simulated
async def test_an_apiserver_that_is_away_is_no_reason_to_begin_again() -> None:
    """Nobody can tell then whether a watch should live."""
    scene = Scene()
    scene.lister.error = errors.NoAnswer("away")
    scene.source.live.clear()
    async with running(scene):
        await asyncio.sleep(3600)

    assert scene.source.restarts == 0


def test_watches_that_do_not_come_back_end_the_process() -> None:
    """After some attempts, and with running passes finished."""

    async def story() -> Scene:
        """What happens."""
        scene = Scene()
        scene.source.live.clear()
        scene.source.mends = False
        with pytest.raises(WatchesLostError, match="no watch for"):
            await scene.manager.run(scene.stop)
        return scene

    assert simulate(story).source.restarts == RESTARTS_MAX


def test_a_source_that_says_nothing_ends_the_process() -> None:
    """Its thread is stuck or dead, and nothing here can mend that."""

    async def story() -> float:
        """What happens."""
        scene = Scene()
        scene.source.is_silent = True
        with pytest.raises(WatchesLostError, match="said nothing"):
            await scene.manager.run(scene.stop)
        return simulation_loop().time()

    assert simulate(story) < 120


@simulated
async def test_asked_to_stop_it_lets_passes_finish() -> None:
    """Whoever is at work finishes, nobody begins, and `run` returns (K-35)."""
    scene = Scene()
    async with running(scene) as task:
        scene.pass_seconds = 15
        scene.make("a", "b", "c", "d", "waits")
        await asyncio.sleep(1)
        scene.stop.set()
        await asyncio.sleep(1)
        scene.make("late")
        await task

        assert simulation_loop().time() == 16
        assert sorted(scene.finished) == ["a", "b", "c", "d"]
        assert asyncio.all_tasks() == {asyncio.current_task()}


@simulated
async def test_it_does_not_wait_for_passes_for_ever() -> None:
    """After 20 s what still runs is cut off."""
    scene = Scene()
    async with running(scene) as task:
        scene.pass_seconds = 1000
        scene.make("a")
        await asyncio.sleep(1)
        scene.stop.set()
        await task

        assert simulation_loop().time() == 22
        assert scene.finished == []


@simulated
async def test_cancelled_it_ends_at_once() -> None:
    """A lost Lease leaves no time for anything."""
    scene = Scene()
    async with running(scene) as task:
        scene.pass_seconds = 10
        scene.make("a")
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert simulation_loop().time() == 2
        assert scene.finished == []


async def test_signals_ask_to_stop() -> None:
    """SIGTERM and SIGINT set the event; outside of the block they are the process's own again."""
    before = signal.getsignal(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT):
        stop = asyncio.Event()
        with stop_on_signals(stop):
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 10)

    assert signal.getsignal(signal.SIGTERM) == before
