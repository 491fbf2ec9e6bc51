"""The simulated store, where the real apiserver cannot be asked: hooks, garbage, weather, the end of a process."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from capox.kube import errors
from capox.kube.kind import SECRETS
from tests.contract.kube.stories import FINALIZER, MACHINES, machine, secret
from tests.sim.loop import EPOCH, simulate, simulated
from tests.sim.store import Store, merge_patch
from tests.sim.store_client import ProcessGoneError, SeededWeather, StoreClient


@pytest.fixture
def store() -> Store:
    """A store with one namespace more."""
    return Store((MACHINES, SECRETS), now=lambda: EPOCH, randomness=random.Random(0), namespaces=("default", "team"))


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "b"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ],
)
def test_patches_merge_as_the_rfc_says(target: Any, patch: Any, merged: Any) -> None:
    """The examples of RFC 7386, appendix A, as far as both sides are objects."""
    before = repr(target)

    assert merge_patch(target, patch) == merged
    assert repr(target) == before


def test_each_change_is_told_in_order(store: Store) -> None:
    """With rising versions, and the last state of what is gone; a write that changes nothing is not told."""
    told: list[tuple[str, str, int]] = []
    end = store.subscribe(
        lambda change: told.append((change.type, change.key[1], int(change.document["metadata"]["resourceVersion"])))
    )
    store.create(MACHINES, "team", machine("team", "one", finalizers=[FINALIZER]))
    store.patch(MACHINES, "team", "one", {"spec": {"nCPUs": 4}})
    store.patch(MACHINES, "team", "one", {"spec": {"nCPUs": 4}})
    store.delete(MACHINES, "team", "one")
    store.delete(MACHINES, "team", "one")
    store.patch(MACHINES, "team", "one", {"metadata": {"finalizers": None}})
    end()
    store.create(MACHINES, "team", machine("team", "two"))

    assert [(type_, name) for type_, name, _ in told] == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("MODIFIED", "one"),
        ("DELETED", "one"),
    ]
    assert [version for _, _, version in told] == sorted({version for _, _, version in told})


def test_what_was_handed_out_stays_as_it_was(store: Store) -> None:
    """A document is replaced, not changed."""
    first = store.create(MACHINES, "team", machine("team", "one", labels={"a": "1"}))
    kept = repr(first)
    store.patch(MACHINES, "team", "one", {"metadata": {"labels": {"a": "2"}}, "spec": {"nCPUs": 4}})
    store.patch(MACHINES, "team", "one", {"status": {"initialization": {"provisioned": True}}}, subresource="status")

    assert repr(first) == kept


def test_what_lost_all_its_owners_is_garbage(store: Store) -> None:
    """One owner left is enough to stay; finalizers hold garbage as they hold anything."""
    owners = [store.create(MACHINES, "team", machine("team", name))["metadata"] for name in ("a", "b")]
    references = [{"apiVersion": "v1", "kind": "X", "name": owner["name"], "uid": owner["uid"]} for owner in owners]
    store.create(MACHINES, "team", machine("team", "of-both", ownerReferences=references))
    store.create(MACHINES, "team", machine("team", "of-a", ownerReferences=references[:1], finalizers=[FINALIZER]))
    assert store.collect_garbage() == 0
    store.delete(MACHINES, "team", "a")

    assert store.collect_garbage() == 1
    assert store.get(MACHINES, "team", "of-a")["metadata"]["deletionTimestamp"]
    assert store.collect_garbage() == 0
    store.delete(MACHINES, "team", "b")
    assert store.collect_garbage() == 1
    with pytest.raises(errors.NotFound):
        store.get(MACHINES, "team", "of-both")


def test_a_namespace_ends_with_its_last_object(store: Store) -> None:
    """What is held keeps it; then it is gone, and nothing else is."""
    store.create(MACHINES, "team", machine("team", "held", finalizers=[FINALIZER]))
    store.create(SECRETS, "team", secret("team", "free"))
    store.create(SECRETS, "default", secret("default", "other"))
    store.delete_namespace("team")

    assert store.list(SECRETS, "team") == []
    assert store.has_namespace("team")
    store.patch(MACHINES, "team", "held", {"metadata": {"finalizers": None}})
    assert not store.has_namespace("team")
    assert len(store.list(SECRETS, None)) == 1


def test_a_kind_that_is_served_no_more_is_gone_with_its_objects(store: Store) -> None:
    """As when its CRD is deleted."""
    store.create(MACHINES, "team", machine("team", "one"))
    store.unserve(MACHINES)
    with pytest.raises(errors.KindNotServed):
        store.get(MACHINES, "team", "one")
    store.serve(MACHINES)

    assert store.list(MACHINES, None) == []


def weather(**rates: float) -> SeededWeather:
    """Give weather of seed 0."""
    return SeededWeather(
        random.Random(0),
        refused_rate=rates.get("refused", 0),
        lost_request_rate=rates.get("lost_request", 0),
        lost_answer_rate=rates.get("lost_answer", 0),
    )


@pytest.mark.parametrize(
    ("kind", "error", "is_done"),
    [
        ("refused", errors.Unavailable, False),
        ("lost_request", errors.NoAnswer, False),
        ("lost_answer", errors.NoAnswer, True),
    ],
)
def test_weather_loses_calls_before_or_after_they_are_done(
    store: Store, kind: str, error: type[errors.KubeError], *, is_done: bool
) -> None:
    """And fair weather loses none."""

    async def story() -> None:
        """What happens."""
        bad = weather(**{kind: 1.0})
        api = StoreClient(store, bad)
        with pytest.raises(error):
            await api.create(MACHINES, "team", machine("team", "one"))
        assert bool(store.list(MACHINES, "team")) is is_done
        bad.is_fair = True
        await api.create(MACHINES, "team", machine("team", "two"))

    simulate(story)


@simulated
async def test_a_dead_process_hears_and_says_nothing() -> None:
    """A call under way may be done, and is never answered; a new one is never made."""
    store = Store((MACHINES,), now=lambda: EPOCH, randomness=random.Random(0))
    api = StoreClient(store, weather())
    calls = [asyncio.create_task(api.create(MACHINES, "default", machine("default", f"m{n}"))) for n in range(50)]
    await asyncio.sleep(0.01)
    api.cut()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(ProcessGoneError):
        await api.get(MACHINES, "default", "m0")

    answered = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, ProcessGoneError) for outcome in outcomes if isinstance(outcome, BaseException))
    assert len(answered) < len(store.list(MACHINES, None)) < 50
