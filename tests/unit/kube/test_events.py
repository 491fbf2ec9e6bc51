"""Events: few, bounded, and never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from capox.kube import errors
from capox.kube.events import EVENTS, NOTE_BYTES_MAX, OBJECT_BURST, QUEUE_MAX, REMEMBERED_MAX, EventRecorder
from capox.kube.metrics import EventMetrics, Registry
from capox.kube.objects import Resource
from tests.contract.kube.stories import MACHINES, machine
from tests.sim.loop import simulated, simulation_loop
from tests.sim.store import Store
from tests.sim.store_client import Call, FairWeather, StoreClient


class Weather(FairWeather):
    """Weather that a test makes.

    Attributes:
        before_error: What calls end in before they are done.
        after_error: What calls end in after they were done.
    """

    def __init__(self) -> None:
        self.before_error: errors.KubeError | None = None
        self.after_error: errors.KubeError | None = None

    async def before(self, call: Call) -> None:
        """Raise the error of before."""
        await super().before(call)
        if self.before_error is not None:
            raise self.before_error

    async def after(self, call: Call) -> None:
        """Raise the error of after."""
        await super().after(call)
        if self.after_error is not None:
            raise self.after_error


class Scene:
    """A recorder over a store."""

    def __init__(self) -> None:
        self.store = Store((MACHINES, EVENTS), now=simulation_loop().now, randomness=random.Random(0))
        self.weather = Weather()
        self.kube = StoreClient(self.store, self.weather)
        self.registry = Registry()
        self.recorder = EventRecorder(
            self.kube,
            component="capox-controller",
            instance="capox-controller-7d4-x2",
            now=simulation_loop().now,
            randomness=random.Random(0),
            metrics=EventMetrics(self.registry),
        )

    def resource(self, name: str = "one") -> Resource:
        """Make an OxideMachine and give it."""
        return MACHINES.parse(self.store.create(MACHINES, "default", machine("default", name)))

    def events(self) -> list[Any]:
        """Give the Events that are stored, in order of making."""
        events = self.store.list(EVENTS, None)
        return sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def count(self, result: str) -> float | None:
        """Give how many Events came to an end."""
        return self.registry.value("capox_events_total", result=result)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Scene]:
    """Run a recorder's sender."""
    scene = Scene()
    task = asyncio.create_task(scene.recorder.run())
    yield scene
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@simulated
async def test_an_event_says_what_happened_to_what() -> None:
    """All that `kubectl describe` needs, in the object's namespace."""
    async with running() as scene:
        resource = scene.resource()
        scene.recorder.warning(resource, "NameConflict", "an instance of this name is there")
        await asyncio.sleep(1)
        (event,) = scene.events()

    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("one.")
    assert (event["type"], event["reason"], event["note"]) == (
        "Warning",
        "NameConflict",
        "an instance of this name is there",
    )
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert (event["reportingController"], event["reportingInstance"]) == ("capox-controller", "capox-controller-7d4-x2")
    assert event["regarding"] == {
        "apiVersion": MACHINES.api_version,
        "kind": "OxideMachine",
        "name": "one",
        "namespace": "default",
        "uid": resource.metadata.uid,
        "resourceVersion": resource.metadata.resource_version,
    }
    assert scene.count("sent") == 1


@simulated
async def test_the_same_said_again_is_a_count() -> None:
    """One Event; its count is raised at most every five minutes, however often it is said."""
    async with running() as scene:
        resource = scene.resource()
        for _ in range(3600):
            scene.recorder.warning(resource, "InstanceFailed", "the rack is full")
            await asyncio.sleep(1)
        (event,) = scene.events()
        writes = len([call for call in scene.kube.calls if call.is_write])

    assert writes <= 12
    assert 3300 <= event["series"]["count"] <= 3600
    assert event["series"]["lastObservedTime"] > "2026-01-01T00:54"
    assert (scene.count("sent") or 0) + (scene.count("repeated") or 0) == 3600


@simulated
async def test_what_differs_is_another_event() -> None:
    """By object, type, reason or message."""
    async with running() as scene:
        one, two = scene.resource("one"), scene.resource("two")
        scene.recorder.normal(one, "A", "a")
        scene.recorder.normal(two, "A", "a")
        scene.recorder.warning(one, "A", "a")
        scene.recorder.normal(one, "B", "a")
        scene.recorder.normal(one, "A", "b")
        await asyncio.sleep(1)

        assert len(scene.events()) == 5


@simulated
async def test_an_object_that_never_rests_has_few_events() -> None:
    """A message that differs each time is bounded by the object's own tokens; other objects have theirs."""
    async with running() as scene:
        noisy, quiet = scene.resource("noisy"), scene.resource("quiet")
        for number in range(3600):
            scene.recorder.warning(noisy, "Failed", f"attempt {number}")
            await asyncio.sleep(1)
        scene.recorder.warning(quiet, "Failed", "once")
        await asyncio.sleep(1)
        names = [event["regarding"]["name"] for event in scene.events()]

    assert OBJECT_BURST + 10 <= names.count("noisy") <= OBJECT_BURST + 12
    assert names.count("quiet") == 1
    assert scene.count("dropped") == 3600 - names.count("noisy")


@simulated
async def test_all_objects_together_have_a_limit() -> None:
    """A thousand objects that fail at once fill neither memory nor etcd."""
    async with running() as scene:
        for number in range(3000):
            scene.recorder.warning(scene.resource(f"m{number}"), "Failed", "the rack is away")
        await asyncio.sleep(60)

        assert len(scene.events()) == 300
        assert scene.count("dropped") == 2700


@simulated
async def test_what_waits_and_what_is_remembered_is_bounded() -> None:
    """Also while the API is away for hours."""
    scene = Scene()
    for number in range(3 * REMEMBERED_MAX):
        scene.recorder.warning(scene.resource(f"m{number}"), "Failed", "x")
        await asyncio.sleep(1)

    assert len(scene.recorder._queue) == QUEUE_MAX
    assert len(scene.recorder._series) <= REMEMBERED_MAX
    assert len(scene.recorder._objects) <= REMEMBERED_MAX


@simulated
async def test_a_long_message_is_cut() -> None:
    """To the API's limit, in bytes, and between characters."""
    async with running() as scene:
        scene.recorder.normal(scene.resource(), "Long", "ü" * 2000)
        scene.recorder.normal(scene.resource("two"), "Fits", "u" * NOTE_BYTES_MAX)
        await asyncio.sleep(1)
        long, fits = scene.events()

    assert NOTE_BYTES_MAX - 2 <= len(long["note"].encode()) <= NOTE_BYTES_MAX
    assert long["note"].endswith("ü ...")
    assert fits["note"] == "u" * NOTE_BYTES_MAX


@simulated
async def test_a_lost_answer_makes_no_second_event() -> None:
    """It is sent again under the same name."""
    async with running() as scene:
        scene.weather.after_error = errors.NoAnswer("lost")
        scene.recorder.normal(scene.resource(), "A", "a")
        await asyncio.sleep(1)
        scene.weather.after_error = None
        await asyncio.sleep(60)

        assert len(scene.events()) == 1
        assert scene.count("sent") == 1


@simulated
async def test_an_api_that_is_away_is_tried_a_few_times() -> None:
    """Then the Event is dropped, and the next ones have their turn."""
    async with running() as scene:
        scene.weather.before_error = errors.Unavailable(503, "ServiceUnavailable", "away")
        scene.recorder.normal(scene.resource(), "A", "a")
        await asyncio.sleep(60)
        assert scene.count("dropped") == 1
        scene.weather.before_error = None
        scene.recorder.normal(scene.resource("two"), "B", "b")
        await asyncio.sleep(60)

        assert [event["reason"] for event in scene.events()] == ["B"]


@pytest.mark.parametrize(
    "error",
    [
        errors.Forbidden(403, "Forbidden", "being terminated", ("NamespaceTerminating",)),
        errors.Forbidden(403, "Forbidden", "no right"),
        errors.Invalid(422, "Invalid", "no"),
        errors.KindNotServed(404, "NotFound", "no"),
    ],
    ids=lambda error: error.message,
)
@simulated
async def test_a_refusal_is_not_tried_again(error: errors.KubeError) -> None:
    """Nothing is raised, and the sender lives (M-12)."""
    async with running() as scene:
        scene.weather.before_error = error
        scene.recorder.normal(scene.resource(), "A", "a")
        await asyncio.sleep(60)
        assert scene.count("refused") == 1
        scene.weather.before_error = None
        scene.recorder.normal(scene.resource("two"), "B", "b")
        await asyncio.sleep(1)

        assert [event["reason"] for event in scene.events()] == ["B"]


@simulated
async def test_an_event_that_has_outlived_its_hour_is_made_anew() -> None:
    """Its count begins again."""
    async with running() as scene:
        resource = scene.resource()
        scene.recorder.warning(resource, "A", "a")
        await asyncio.sleep(4000)
        for event in scene.events():
            scene.store.delete(EVENTS, "default", event["metadata"]["name"])
        scene.recorder.warning(resource, "A", "a")
        await asyncio.sleep(1)
        (event,) = scene.events()

    assert event["eventTime"] > "2026-01-01T01:06"
    assert "series" not in event


@simulated
async def test_draining_sends_what_waits() -> None:
    """Within its time."""
    async with running() as scene:
        for number in range(10):
            scene.recorder.normal(scene.resource(f"m{number}"), "A", "a")
        assert await scene.recorder.drain(5)
        assert len(scene.events()) == 10

        scene.weather.before_error = errors.NoAnswer("away")
        scene.recorder.normal(scene.resource(), "B", "b")
        assert not await scene.recorder.drain(1)
