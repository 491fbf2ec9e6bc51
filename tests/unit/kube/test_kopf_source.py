"""Watches by kopf on the bad days of an apiserver. Real time and real connections, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from capox.kube.kind import Kind
from capox.kube.kopf_source import EndlessBackoff, KopfSource, kopf_settings
from tests.contract.kube.stories import FINALIZER, MACHINES, machine
from tests.sim.store import Store
from tests.unit.kube.api_server import FakeAPIServer, serving
from tests.unit.kube.store_server import StoreServer

BOUND_SECONDS = 30.0


class Seen:
    """What a source has told, in this loop.

    Attributes:
        events: Type and name of each event, in order.
        documents: The last document of each name.
        live: The kinds whose watches were alive at the last beat; None before the first.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.documents: dict[str, dict[str, Any]] = {}
        self.live: set[str] | None = None

    def sink(self, _: Kind[Any], type_: str, document: dict[str, Any]) -> None:
        """Take an event."""
        name = document["metadata"]["name"]
        self.events.append((type_, name))
        self.documents[name] = document

    def beat(self, live: set[str]) -> None:
        """Take a beat."""
        self.live = live


class Scene:
    """A store, its server, and a source that watches it.

    Attributes:
        store: The cluster.
        server: Its HTTP face.
        http: What it has been asked.
        source: The source.
        seen: What the source has told.
    """

    def __init__(self, store: Store, http: FakeAPIServer, source: KopfSource) -> None:
        self.store = store
        self.http = http
        self.server = StoreServer(store, http)
        self.source = source
        self.seen = Seen()

    def make(self, name: str, **metadata: Any) -> None:
        """Make an OxideMachine."""
        self.store.create(MACHINES, "default", machine("default", name, **metadata))

    async def until(self, state: Callable[[], bool]) -> None:
        """Wait for a state."""
        for _ in range(round(BOUND_SECONDS / 0.01)):
            if state():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within {BOUND_SECONDS:g} s; seen were {self.seen.events[-10:]}")

    async def until_seen(self, type_: str, name: str) -> None:
        """Wait for an event."""
        await self.until(lambda: (type_, name) in self.seen.events)

    async def until_watched(self) -> None:
        """Wait until the watch is open."""
        await self.until(lambda: self.server.watches.get("oxidemachines", 0) == 1)


@contextlib.asynccontextmanager
async def scene(namespace: str | None = None, *, is_served: bool = True) -> AsyncIterator[Scene]:
    """Run a source against a store."""
    store = Store(now=lambda: datetime.now(UTC), randomness=random.Random(0), namespaces=("default", "other"))
    if is_served:
        store.serve(MACHINES)
    async with serving() as http, http.client() as client:
        built = Scene(store, http, KopfSource(client, [MACHINES], namespace, backoff=EndlessBackoff(0.1)))
        yield built
        await built.source.stop()


@pytest.fixture
async def watched() -> AsyncIterator[Scene]:
    """A scene whose watch is open."""
    async with scene() as built:
        built.source.start(built.seen.sink, built.seen.beat)
        await built.until_watched()
        yield built


async def test_what_is_there_and_what_comes_is_seen() -> None:
    """Objects of the first list are ADDED, whatever their number; then each change; no managedFields."""
    async with scene() as built:
        for number in range(450):
            built.make(f"m{number}", managedFields=[{"manager": "somebody"}])
        built.source.start(built.seen.sink, built.seen.beat)
        await built.until(lambda: len(built.seen.events) == 450)
        assert {type_ for type_, _ in built.seen.events} == {"ADDED"}
        assert all("managedFields" not in document["metadata"] for document in built.seen.documents.values())
        lists = [request.path for request in built.http.arrived if "limit=" in request.path]
        assert len(lists) == 3

        await built.until_watched()
        built.make("new")
        await built.until_seen("ADDED", "new")
        built.store.patch(MACHINES, "default", "new", {"metadata": {"labels": {"a": "1"}}})
        await built.until_seen("MODIFIED", "new")
        built.store.delete(MACHINES, "default", "new")
        await built.until_seen("DELETED", "new")


async def test_kopf_writes_nothing(watched: Scene) -> None:
    """Not to an object that lives, changes, is deleted and held by our finalizer (K-0, K-4, section 3.5)."""
    watched.make("held", finalizers=[FINALIZER], annotations={"kopf.zalando.org/last-handled-configuration": "{}"})
    watched.store.patch(MACHINES, "default", "held", {"spec": {"nCPUs": 4}})
    watched.store.delete(MACHINES, "default", "held")
    await watched.until_seen("MODIFIED", "held")
    watched.make("last")
    await watched.until_seen("ADDED", "last")

    assert {request.method for request in watched.http.arrived} == {"GET"}
    assert watched.store.get(MACHINES, "default", "held")["metadata"]["finalizers"] == [FINALIZER]


async def test_neither_crds_nor_namespaces_are_asked_for(watched: Scene) -> None:
    """The rights to read them are not needed; and the kind is asked for in its exact version (K-37)."""
    watched.make("one")
    await watched.until_seen("ADDED", "one")
    paths = {request.path.partition("?")[0] for request in watched.http.arrived}

    assert not [path for path in paths if path.endswith(("/customresourcedefinitions", "/namespaces"))]
    assert MACHINES.path() in paths


async def test_one_namespace_is_watched_alone() -> None:
    """With a namespace, nothing is listed or watched elsewhere."""
    async with scene("other") as built:
        built.source.start(built.seen.sink, built.seen.beat)
        await built.until_watched()
        built.make("elsewhere")
        built.store.create(MACHINES, "other", machine("other", "here"))
        await built.until_seen("ADDED", "here")

        assert built.seen.events == [("ADDED", "here")]
        assert all("/namespaces/other/" in r.path for r in built.http.arrived if "oxidemachines" in r.path)


async def test_the_beat_names_the_kinds_that_are_watched(watched: Scene) -> None:
    """The name of kopf's task is what the watchdog goes by."""
    await watched.until(lambda: watched.seen.live == {str(MACHINES)})


async def test_a_watch_that_is_closed_goes_on(watched: Scene) -> None:
    """As the apiserver does every few minutes: nothing is lost, nothing comes twice."""
    watched.make("before")
    await watched.until_seen("ADDED", "before")
    await watched.server.end_watches()
    watched.make("between")
    await watched.until_watched()
    watched.make("after")
    await watched.until_seen("ADDED", "after")

    assert watched.seen.events == [("ADDED", "before"), ("ADDED", "between"), ("ADDED", "after")]


@pytest.mark.parametrize(("code", "reason"), [(500, "InternalError"), (403, "Forbidden")])
async def test_an_error_in_the_stream_is_survived(watched: Scene, code: int, reason: str) -> None:
    """The watch of kopf ends by it (K-30); it is begun again, and what came in between is seen."""
    watched.make("before")
    await watched.until_seen("ADDED", "before")
    await watched.server.end_watches(code, reason)
    watched.make("between")
    await watched.until_seen("ADDED", "between")
    await watched.until_watched()
    watched.make("after")
    await watched.until_seen("ADDED", "after")


async def test_a_forgotten_history_is_survived(watched: Scene) -> None:
    """After 410 all that is there is seen again; what has vanished meanwhile is not told of (K-31)."""
    watched.make("stays")
    watched.make("goes")
    await watched.until_seen("ADDED", "goes")
    watched.seen.events.clear()
    watched.store.delete(MACHINES, "default", "goes")
    watched.server._forgotten_until = watched.server._version
    watched.seen.events.clear()
    await watched.server.forget_history()
    await watched.until_seen("ADDED", "stays")
    await watched.until_watched()

    assert ("ADDED", "goes") not in watched.seen.events


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (500, "InternalError"), (429, "TooManyRequests")])
async def test_an_api_that_refuses_for_a_while_is_waited_out(watched: Scene, code: int, reason: str) -> None:
    """Also while it lists; the watch is not given up."""
    watched.server.refusal = (code, reason)
    await watched.server.forget_history()
    count = len(watched.http.arrived)
    await watched.until(lambda: len(watched.http.arrived) >= count + 3)
    watched.server.refusal = None
    watched.make("after")
    await watched.until_seen("ADDED", "after")


async def test_a_token_that_is_not_accepted_is_not_tried_at_full_speed(watched: Scene) -> None:
    """401 makes kopf log in again at once; the pauses between that grow, and when it is accepted again all goes on."""
    watched.server.refusal = (401, "Unauthorized")
    await watched.server.end_watches()
    count = len(watched.http.arrived)
    began = asyncio.get_running_loop().time()
    await watched.until(lambda: len(watched.http.arrived) > count + 4)
    assert asyncio.get_running_loop().time() - began > 0.1 + 0.2 + 0.4
    watched.server.refusal = None
    watched.make("after")
    await watched.until_seen("ADDED", "after")


async def test_a_kind_that_comes_later_is_seen_after_a_restart() -> None:
    """Nothing is watched while it is not served, and nothing fails; the manager asks for the restart (K-37)."""
    async with scene(is_served=False) as built:
        built.source.start(built.seen.sink, built.seen.beat)
        await built.until(lambda: built.seen.live == set())
        built.store.serve(MACHINES)
        built.make("one")
        built.source.restart()
        await built.until_seen("ADDED", "one")


async def test_a_restart_sees_everything_again(watched: Scene) -> None:
    """It is a new beginning."""
    watched.make("one")
    await watched.until_seen("ADDED", "one")
    watched.seen.events.clear()
    watched.source.restart()
    await watched.until_seen("ADDED", "one")


async def test_a_stopped_source_has_no_thread_and_says_nothing(watched: Scene) -> None:
    """Also when it is stopped twice."""
    await watched.source.stop()
    watched.make("late")
    await watched.source.stop()
    await watched.until(lambda: watched.server.watches.get("oxidemachines", 0) == 0)

    assert not watched.source._thread.is_alive()
    assert watched.seen.events == []


async def test_a_source_that_never_began_can_be_stopped() -> None:
    """A standby that is told to end."""
    async with scene() as built:
        await built.source.stop()


def test_the_pauses_have_no_end_and_a_cap() -> None:
    """Each request begins them anew."""
    backoff = EndlessBackoff()
    for _ in range(2):
        pauses = iter(backoff)
        first = [next(pauses) for _ in range(1000)]
        assert first[:6] == [1, 2, 4, 8, 16, 30]
        assert set(first[6:]) == {30}


def test_kopf_is_set_up_to_keep_its_hands_off() -> None:
    """The settings that keep it from writing, from giving up and from killing."""
    settings = kopf_settings(EndlessBackoff())

    assert settings.posting.enabled is False
    assert settings.persistence.finalizer == "capox.invalid/unused"
    assert settings.peering.standalone is True
    assert settings.scanning.disabled is True
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.watching.server_timeout is not None
    assert settings.watching.client_timeout is not None
    assert settings.watching.client_timeout > settings.watching.server_timeout
    assert settings.watching.chunk_size is not None
