"""Leader election, on virtual time: at most one leads, and somebody does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from capox.kube import errors
from capox.kube.lease import LEASES, LeaderElection, LeaseLostError, LeaseTimes
from capox.kube.metrics import LeaseMetrics, Registry
from capox.kube.workqueue import Request
from tests.sim.loop import simulate, simulated, simulation_loop
from tests.sim.store import Store
from tests.sim.store_client import Call, SeededWeather, StoreClient

OURS = Request("default", "capox-leader")
THEIRS = Request("default", "4c4262a8.cluster.x-k8s.io")


class Line(SeededWeather):
    """The way from one process to the API.

    Attributes:
        is_cut: Whether calls hang until it is not cut any more, and then fail.
        refusal: What calls end in, before they are done.
    """

    def __init__(self, seed: str, bad_rate: float) -> None:
        super().__init__(
            random.Random(seed), refused_rate=bad_rate, lost_request_rate=bad_rate, lost_answer_rate=bad_rate
        )
        self.is_cut = False
        self.refusal: errors.KubeError | None = None

    async def before(self, call: Call) -> None:
        """Hang, refuse, or pass on."""
        for _ in range(100_000):
            if not self.is_cut:
                break
            await asyncio.sleep(0.5)
        if self.refusal is not None:
            raise self.refusal
        await super().before(call)


class Replica:
    """A process that takes part.

    Attributes:
        leading: When it began and ended to lead, by virtual time; the end is None while it leads.
        lost: When it was told that a Lease is lost.
        stop: Ends its work.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        leases: tuple[Request, ...] = (OURS,),
        skew: timedelta = timedelta(),
        seed: int = 0,
        bad_rate: float = 0.0,
    ) -> None:
        loop = simulation_loop()
        self.name = name
        self.line = Line(f"{name} {seed}", bad_rate)
        self.registry = Registry()
        self.leading: list[tuple[float, float | None]] = []
        self.lost: list[float] = []
        self.stop = asyncio.Event()

        self.skew = skew

        def now() -> datetime:
            return loop.now() + self.skew

        self._election = LeaderElection(
            StoreClient(store, self.line),
            leases,
            identity=name,
            on_lost=lambda: self.lost.append(loop.time()),
            now=now,
            randomness=random.Random(f"{name} {seed}"),
            metrics=LeaseMetrics(self.registry),
        )
        self.task = asyncio.create_task(self._election.run(self._work))

    @property
    def is_leading(self) -> bool:
        """Whether it leads now."""
        return bool(self.leading) and self.leading[-1][1] is None

    def leads_surely(self) -> bool:
        """Whether it would write now."""
        return self._election.is_leading()

    async def _work(self) -> str:
        loop = simulation_loop()
        self.leading.append((loop.time(), None))
        try:
            await self.stop.wait()
        finally:
            self.leading[-1] = (self.leading[-1][0], loop.time())
        return "done"


@contextlib.asynccontextmanager
async def replicas(store: Store, *names: str, **options: Any) -> AsyncIterator[list[Replica]]:
    """Run some processes, and end them."""
    running = []
    for name in names:
        running.append(Replica(store, name, **options))
        await asyncio.sleep(0.1)
    yield running
    for replica in running:
        replica.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, LeaseLostError):
            await replica.task


def new_store() -> Store:
    """Give a store with Leases."""
    return Store((LEASES,), now=simulation_loop().now, randomness=random.Random(0))


def spec_of(store: Store, lease: Request = OURS) -> Any:
    """Give what is stored of a Lease."""
    return store.get(LEASES, lease.namespace, lease.name)["spec"]


@simulated
async def test_the_first_leads_and_the_others_wait() -> None:
    """The Lease says who, since when, and for how long."""
    store = new_store()
    async with replicas(store, "a", "b", "c") as (a, b, c):
        await asyncio.sleep(600)
        assert [replica.is_leading for replica in (a, b, c)] == [True, False, False]
        spec = spec_of(store)
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
        assert spec["acquireTime"].startswith("2026-01-01T00:00:00.")
        assert spec["renewTime"] > "2026-01-01T00:09:57"
        assert a.registry.value("leader_election_master_status", name=OURS.name) == 1
        assert b.registry.value("leader_election_master_status", name=OURS.name) == 0


@simulated
async def test_work_that_ends_gives_the_lease_up_at_once() -> None:
    """The result comes back, and the next one leads within seconds."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(60)
        a.stop.set()
        assert await a.task == "done"
        assert "holderIdentity" not in spec_of(store)
        await asyncio.sleep(5)
        assert b.is_leading
        spec = spec_of(store)

    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("b", 1, 15)
    assert a.lost == []


@simulated
async def test_a_process_that_dies_is_followed_after_its_lease() -> None:
    """Not before 15 s without a renewal, and not much later."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(60)
        a.line.is_cut = True
        died = simulation_loop().time()
        await asyncio.sleep(30)
        began = b.leading[0][0]

    assert 13 <= began - died <= 21


@simulated
async def test_a_holder_of_two_leases_is_waited_for_once() -> None:
    """Its silence counts for both Leases at once: taking the second one does not begin a wait of its own."""
    store = new_store()
    async with replicas(store, "a", "b", leases=(OURS, THEIRS)) as (a, b):
        await asyncio.sleep(60)
        a.line.is_cut = True
        died = simulation_loop().time()
        await asyncio.sleep(40)
        began = b.leading[0][0]

    assert 13 <= began - died <= 26


@simulated
async def test_a_cut_off_leader_stops_before_another_begins() -> None:
    """At the renew deadline, and the callback is called first."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(60)
        a.line.is_cut = True
        cut = simulation_loop().time()
        await asyncio.sleep(60)
        with pytest.raises(LeaseLostError, match="not renewed for 10 s"):
            await a.task
        (_, ended), (began, _) = a.leading[0], b.leading[0]

    assert ended is not None
    assert 8 <= ended - cut <= 10
    assert a.lost == [ended]
    assert ended < began


@simulated
async def test_a_short_outage_changes_nothing() -> None:
    """Of the whole API, for less than the deadline."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(60)
        for replica in (a, b):
            replica.line.refusal = errors.Unavailable(503, "ServiceUnavailable", "away")
        await asyncio.sleep(5)
        for replica in (a, b):
            replica.line.refusal = None
        await asyncio.sleep(60)

        assert a.is_leading
        assert not b.leading


@simulated
async def test_a_lease_that_was_taken_from_us_is_lost_at_once() -> None:
    """Somebody has written his name into it."""
    store = new_store()
    async with replicas(store, "a") as (a,):
        await asyncio.sleep(60)
        store.patch(LEASES, "default", OURS.name, {"spec": {"holderIdentity": "robber"}})
        taken = simulation_loop().time()
        with pytest.raises(LeaseLostError, match="held by robber"):
            await a.task

    assert a.lost[0] - taken < 2.5
    assert spec_of(store)["holderIdentity"] == "robber"


@simulated
async def test_a_lease_that_others_label_is_kept() -> None:
    """A conflict is not a loss: the Lease is read, is still ours, and is renewed."""
    store = new_store()
    async with replicas(store, "a") as (a,):
        for number in range(100):
            await asyncio.sleep(0.9)
            store.patch(LEASES, "default", OURS.name, {"metadata": {"labels": {"n": str(number)}}})

        assert a.is_leading
        assert spec_of(store)["leaseTransitions"] == 0


@simulated
async def test_a_lease_that_is_deleted_is_made_again() -> None:
    """By its holder."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(60)
        store.delete(LEASES, "default", OURS.name)
        await asyncio.sleep(60)

        assert [a.is_leading, b.is_leading].count(True) == 1
        assert spec_of(store)["holderIdentity"] == ("a" if a.is_leading else "b")


@pytest.mark.parametrize("skew_hours", [-5, 5])
def test_clocks_that_differ_do_no_harm(skew_hours: int) -> None:
    """What counts is when we saw it change, not which time is written in it."""

    async def story() -> None:
        """What happens."""
        store = new_store()
        a = Replica(store, "a")
        b = Replica(store, "b", skew=timedelta(hours=skew_hours))
        await asyncio.sleep(600)
        assert (a.is_leading, b.is_leading) == (True, False)
        a.line.is_cut = True
        await asyncio.sleep(60)
        assert (a.is_leading, b.is_leading) == (False, True)
        for replica in (a, b):
            replica.task.cancel()
        await asyncio.gather(a.task, b.task, return_exceptions=True)

    simulate(story)


@simulated
async def test_the_lease_of_another_program_is_waited_for() -> None:
    """Ours is held and renewed meanwhile; work begins when both are held; losing either ends it."""
    store = new_store()
    theirs = Replica(store, "go-provider", leases=(THEIRS,))
    await asyncio.sleep(1)
    both = Replica(store, "a", leases=(OURS, THEIRS))
    await asyncio.sleep(600)
    assert (theirs.is_leading, both.is_leading) == (True, False)
    assert spec_of(store)["holderIdentity"] == "a"

    theirs.stop.set()
    await asyncio.sleep(6)
    assert both.is_leading
    assert spec_of(store, THEIRS)["holderIdentity"] == "a"

    store.patch(LEASES, "default", THEIRS.name, {"spec": {"holderIdentity": "go-provider"}})
    with pytest.raises(LeaseLostError, match=THEIRS.name):
        await both.task
    await theirs.task


@simulated
async def test_cancelled_while_it_waits_it_gives_up_what_it_holds() -> None:
    """The first of two."""
    store = new_store()
    theirs = Replica(store, "go-provider", leases=(THEIRS,))
    await asyncio.sleep(1)
    both = Replica(store, "a", leases=(OURS, THEIRS))
    await asyncio.sleep(60)
    both.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both.task

    assert "holderIdentity" not in spec_of(store)
    theirs.stop.set()
    await theirs.task


@simulated
async def test_an_error_of_the_work_gives_the_lease_up() -> None:
    """And comes through."""
    store = new_store()

    async def failing() -> None:
        """Work, and fail."""
        await asyncio.sleep(5)
        raise ZeroDivisionError

    election = LeaderElection(
        StoreClient(store),
        (OURS,),
        identity="a",
        on_lost=lambda: None,
        now=simulation_loop().now,
        randomness=random.Random(0),
        metrics=LeaseMetrics(Registry()),
    )
    with pytest.raises(ZeroDivisionError):
        await election.run(failing)

    assert "holderIdentity" not in spec_of(store)


@pytest.mark.parametrize("seed", range(20))
def test_never_two_lead_and_never_nobody_for_long(seed: int) -> None:
    """With lost requests and answers, refusals, and lines that are cut and mended at random."""
    dice = random.Random(seed)

    async def story() -> None:
        """What happens."""
        store = new_store()
        running: dict[str, Replica] = {}
        everyone: list[Replica] = []
        number = 0

        def start(name: str) -> None:
            """Begin a process under a name of its own."""
            running[name] = Replica(store, f"{name}{number}", leases=(OURS, THEIRS), seed=seed, bad_rate=0.1)
            everyone.append(running[name])

        for name in ("a", "b", "c"):
            start(name)
        for _ in range(3000):
            await asyncio.sleep(0.5)
            assert [replica.is_leading for replica in everyone].count(True) <= 1
            name = dice.choice("abc")
            if running[name].task.done():
                number += 1
                start(name)
            elif dice.random() < 0.02:
                running[name].line.is_cut = not running[name].line.is_cut
        for name, replica in running.items():
            replica.line.is_cut, replica.line.is_fair = False, True
            if replica.task.done():
                start(name)
        await asyncio.sleep(60)
        assert [replica.is_leading for replica in everyone].count(True) == 1
        for replica in everyone:
            replica.task.cancel()
        await asyncio.gather(*(replica.task for replica in everyone), return_exceptions=True)

    simulate(story, seed=seed)


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_times_that_make_no_sense_are_refused(times: tuple[float, float, float]) -> None:
    """A deadline has to end before the Lease, and to leave room for a second attempt."""
    with pytest.raises(ValueError, match="longer than the next"):
        LeaseTimes(*times)


@simulated
async def test_whoever_cannot_renew_does_not_lead_surely() -> None:
    """R1: before the loss is noticed, a holder that may have lost its Lease says that it does not lead."""
    store = new_store()
    async with replicas(store, "a", "b") as (a, b):
        await asyncio.sleep(30)
        assert [a.leads_surely(), b.leads_surely()] == [True, False]
        a.line.is_cut = True
        await asyncio.sleep(7)
        assert a.leads_surely()
        await asyncio.sleep(5)
        assert not a.leads_surely()


@simulated
async def test_a_machine_that_slept_does_not_lead_surely() -> None:
    """R1: the steady clock stands still while a machine is paused; the wall clock tells, until the next renewal."""
    store = new_store()
    async with replicas(store, "a") as (a,):
        await asyncio.sleep(30)
        a.skew = timedelta(minutes=5)
        assert not a.leads_surely()
        await asyncio.sleep(3)
        assert a.leads_surely()
