"""The work queue's promises, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from capox.kube import errors
from capox.kube.workqueue import BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS, DONE, Request, Result
from tests.sim.loop import simulate, simulated, simulation_loop
from tests.unit.kube.queue_work import A, B, C, Work, failing, running, taking


@simulated
async def test_a_key_waits_once_however_often_it_is_added() -> None:
    """Ten additions of a key that waits are one pass."""
    work = Work()
    async with running(work) as queue:
        for _ in range(10):
            queue.add(A)
        assert len(queue) == 1
        await asyncio.sleep(1)

    assert [key for _, key in work.begun] == [A]


@simulated
async def test_keys_are_taken_in_the_order_in_which_they_came() -> None:
    """A key that was added first is worked on first."""
    work = Work()
    async with running(work) as queue:
        for key in (C, A, B):
            queue.add(key)
        await asyncio.sleep(1)

    assert [key for _, key in work.begun] == [C, A, B]


@simulated
async def test_a_key_added_during_its_pass_comes_once_more_and_not_at_the_same_time() -> None:
    """What happens during a pass is seen by a second one, which waits for the first, though a worker is free."""
    work = Work()
    work.behaviour = taking(5)
    async with running(work, concurrency=3) as queue:
        queue.add(A)
        await asyncio.sleep(1)
        for _ in range(3):
            queue.add(A)
        assert len(queue) == 0
        await asyncio.sleep(20)

    assert work.times(A) == [0, 5]


@simulated
async def test_different_keys_are_worked_on_at_once_up_to_the_concurrency() -> None:
    """With two workers the third key waits for the first to end."""
    work = Work()
    work.behaviour = taking(5)
    async with running(work, concurrency=2) as queue:
        for key in (A, B, C):
            queue.add(key)
        await asyncio.sleep(20)

    assert work.begun == [(0, A), (0, B), (5, C)]


@simulated
async def test_a_result_brings_the_key_back_after_its_time() -> None:
    """`requeue_after_seconds` counts from the end of the pass."""
    work = Work()
    work.behaviour = taking(2, Result(requeue_after_seconds=30))
    async with running(work) as queue:
        queue.add(A)
        await asyncio.sleep(70)

    assert work.times(A) == [0, 32, 64]


@pytest.mark.parametrize("times", [(30, 10, 20), (10, 30, 20), (20, 30, 10)])
def test_of_several_times_the_earliest_counts(times: tuple[int, ...]) -> None:
    """However the times come in, the key is looked at once, at the first of them."""
    work = Work()

    async def story() -> None:
        """What happens."""
        async with running(work) as queue:
            for seconds in times:
                queue.add_after(A, seconds)
            await asyncio.sleep(100)

    simulate(story)

    assert work.times(A) == [10]


@simulated
async def test_a_pass_drops_the_time_that_was_set_before_it() -> None:
    """What a pass decides replaces what an earlier one had planned; a time set during the pass stays."""
    work = Work()
    async with running(work) as queue:
        queue.add_after(A, 10)
        queue.add(A)
        await asyncio.sleep(20)
        assert work.times(A) == [0]

        work.behaviour = taking(1)
        queue.add(A)
        await asyncio.sleep(0.5)
        queue.add_after(A, 10)
        await asyncio.sleep(20)

    assert work.times(A) == [0, 20, 30.5]


@simulated
async def test_a_time_in_the_past_is_now() -> None:
    """A negative delay does not move the key before those that wait."""
    work = Work()
    async with running(work) as queue:
        queue.add_after(A, -5)
        await asyncio.sleep(1)

    assert work.times(A) == [0]


@pytest.mark.parametrize("seed", range(20))
def test_failures_come_back_with_growing_waits_within_their_bounds(seed: int) -> None:
    """Each wait is between half of the doubled step and all of it, and no step is longer than the cap."""
    work = Work()
    work.behaviour = failing

    async def story() -> None:
        """What happens."""
        async with running(work, seed=seed) as queue:
            queue.add(A)
            await asyncio.sleep(4000)

    simulate(story)

    times = work.times(A)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(waits) > 12
    for failures, wait in enumerate(waits):
        step = min(BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS * 2**failures)
        assert step / 2 <= wait <= step


def test_many_failing_keys_do_not_come_back_as_one() -> None:
    """The jitter spreads a hundred keys that fail in one moment over the whole of their window."""
    work = Work()
    work.behaviour = failing
    keys = [Request("team", str(number)) for number in range(100)]

    async def story() -> None:
        """What happens."""
        async with running(work, concurrency=100) as queue:
            for key in keys:
                queue.add(key)
            await asyncio.sleep(1.01)

    simulate(story)

    second = [work.times(key)[1] for key in keys]
    assert min(second) < 0.55
    assert max(second) > 0.95
    assert len(set(second)) == 100


@simulated
async def test_a_success_forgets_the_failures() -> None:
    """After a success the next failure waits as the first one did."""
    work = Work()
    async with running(work) as queue:
        work.behaviour = failing
        queue.add(A)
        await asyncio.sleep(100)
        work.behaviour = work.nothing
        await asyncio.sleep(BACKOFF_CAP_SECONDS)
        work.behaviour = failing
        before = len(work.begun)
        queue.add(A)
        await asyncio.sleep(BACKOFF_FIRST_SECONDS)

    assert len(work.begun) >= before + 2


@simulated
async def test_an_event_does_not_wait_for_the_backoff() -> None:
    """A failing key that is added is looked at now, and only then waits again."""
    work = Work()
    work.behaviour = failing
    async with running(work) as queue:
        queue.add(A)
        await asyncio.sleep(1000)
        passes = len(work.begun)
        queue.add(A)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert len(work.begun) == passes + 1


@simulated
async def test_a_cancellation_inside_a_pass_is_a_failure_of_that_pass() -> None:
    """A pass that ends as cancelled, although nobody cancelled the worker, leaves the worker at work."""
    work = Work()

    async def cancelled(_: Request) -> Result:
        """End as cancelled."""
        raise asyncio.CancelledError

    work.behaviour = cancelled
    async with running(work) as queue:
        queue.add(A)
        await asyncio.sleep(0.1)
        work.behaviour = work.nothing
        queue.add(B)
        await asyncio.sleep(10)

    assert [key for _, key in work.begun] == [A, B, A]
    assert work.ended == [B, A]


@simulated
async def test_draining_lets_passes_finish_and_begins_no_other() -> None:
    """Who is at work finishes; who waits, has a time, or comes now is not begun any more (K-35)."""
    work = Work()
    work.behaviour = taking(5)
    async with running(work) as queue:
        queue.add(A)
        queue.add(B)
        queue.add_after(C, 1)
        await asyncio.sleep(1)
        queue.add(A)
        drained = asyncio.create_task(queue.drain(20))
        await asyncio.sleep(0)
        queue.add(C)
        queue.add_after(C, 0)

        assert await drained
        assert simulation_loop().time() == 5
        assert queue.is_idle
        await asyncio.sleep(100)

    assert work.ended == [A]


@simulated
async def test_draining_gives_up_in_time() -> None:
    """A pass that does not end holds nobody longer than was said."""
    work = Work()
    work.behaviour = taking(1000)
    async with running(work) as queue:
        queue.add(A)
        await asyncio.sleep(1)

        assert not await queue.drain(20)
        assert simulation_loop().time() == 21


@simulated
async def test_cancelling_ends_the_passes_where_they_are() -> None:
    """A cancelled queue leaves no task behind."""
    work = Work()
    work.behaviour = taking(1000)
    async with running(work, concurrency=4) as queue:
        for key in (A, B, C):
            queue.add(key)
        await asyncio.sleep(1)

    assert len(work.begun) == 3
    assert work.ended == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_order_no_addition_is_lost_and_no_key_has_two_workers(seed: int) -> None:
    """Under random additions, failures and waits each addition is followed by a pass, one worker a key."""
    dice = random.Random(seed)
    keys = [Request("team", str(number)) for number in range(5)]
    at_work: set[Request] = set()
    last_begun: dict[Request, float] = {}
    last_added: dict[Request, float] = {}

    async def behaviour(request: Request) -> Result:
        """Take some time, then fail, come back or be done."""
        assert request not in at_work
        at_work.add(request)
        last_begun[request] = simulation_loop().time()
        await asyncio.sleep(dice.uniform(0, 3))
        at_work.discard(request)
        if dice.random() < 0.3:
            raise errors.NoAnswer("nobody is there")
        return Result(requeue_after_seconds=dice.uniform(0, 9)) if dice.random() < 0.3 else DONE

    async def story() -> None:
        """What happens."""
        work = Work()
        work.behaviour = behaviour
        async with running(work, concurrency=3, seed=seed) as queue:
            for _ in range(300):
                await asyncio.sleep(dice.uniform(0, 0.5))
                key = dice.choice(keys)
                last_added[key] = simulation_loop().time()
                queue.add(key)
            await asyncio.sleep(100)
            assert queue.is_idle

    simulate(story, seed=seed)

    for key, added in last_added.items():
        assert last_begun[key] >= added
