"""The work queue's promises, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import capture_logs

from capox.kube import errors
from capox.kube.metrics import OUTCOMES, QueueMetrics, Registry
from capox.kube.workqueue import BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS, DONE, Request, Result, Workqueue
from tests.sim.loop import simulate, simulated, simulation_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

A, B, C = Request("team", "a"), Request("team", "b"), Request("team", "c")


class Work:
    """A reconciler that does what it is told, and remembers.

    Attributes:
        begun: Each pass as (time, key), in order.
        ended: The keys of the passes that have ended, in order.
        behaviour: What a pass does and wants; a pass takes no time and wants nothing until a test says otherwise.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[float, Request]] = []
        self.ended: list[Request] = []
        self.behaviour: Callable[[Request], Awaitable[Result]] = self.nothing

    @staticmethod
    async def nothing(_: Request) -> Result:
        """A pass that takes no time and wants nothing."""
        return DONE

    async def reconcile(self, request: Request) -> Result:
        """A pass, as the queue calls it."""
        self.begun.append((simulation_loop().time(), request))
        result = await self.behaviour(request)
        self.ended.append(request)
        return result

    def times(self, request: Request) -> list[float]:
        """When the passes over a key began."""
        return [time for time, key in self.begun if key == request]


def taking(seconds: float, result: Result = DONE) -> Callable[[Request], Awaitable[Result]]:
    """Give the behaviour of a pass that takes its time."""

    async def behaviour(_: Request) -> Result:
        await asyncio.sleep(seconds)
        return result

    return behaviour


async def failing(_: Request) -> Result:
    """A pass that fails as the weather makes them fail."""
    raise errors.NoAnswer("nobody is there")


@contextlib.asynccontextmanager
async def running(
    work: Work, *, concurrency: int = 1, registry: Registry | None = None, seed: int = 0
) -> AsyncIterator[Workqueue]:
    """Run a queue, and cancel it in the end."""
    queue = Workqueue(
        "test",
        work.reconcile,
        concurrency=concurrency,
        randomness=random.Random(seed),
        metrics=QueueMetrics(registry or Registry()),
    )
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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


@simulated
async def test_each_pass_has_an_id_and_its_key_in_the_logs() -> None:
    """Whatever is logged during a pass carries reconcileID, namespace and name; two passes have two ids."""
    work = Work()
    seen: list[dict[str, object]] = []

    async def remember(_: Request) -> Result:
        seen.append(dict(structlog.contextvars.get_contextvars()))
        return DONE

    work.behaviour = remember
    async with running(work) as queue:
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(1)

    assert [(context["namespace"], context["name"]) for context in seen] == [("team", "a"), ("team", "b")]
    assert len({context["reconcileID"] for context in seen}) == 2


@simulated
async def test_weather_is_logged_in_a_line_and_a_mistake_with_its_traceback() -> None:
    """A Kubernetes error is said; an error that nobody expected shows where it came from."""
    work = Work()

    async def mistaken(_: Request) -> Result:
        raise ZeroDivisionError("a mistake")

    with capture_logs() as logs:
        async with running(work) as queue:
            work.behaviour = failing
            queue.add(A)
            await asyncio.sleep(0.1)
            work.behaviour = mistaken
            queue.add(B)
            await asyncio.sleep(0.1)

    assert [(log["event"], log["errorType"], bool(log["exc_info"])) for log in logs] == [
        ("Reconciling failed", "NoAnswer", False),
        ("Reconciling failed", "ZeroDivisionError", True),
    ]


@simulated
async def test_every_series_is_there_from_the_start() -> None:
    """A counter that has not counted yet says 0."""
    registry = Registry()
    async with running(Work(), registry=registry, concurrency=7):
        for outcome in OUTCOMES:
            assert registry.value("controller_runtime_reconcile_total", controller="test", result=outcome) == 0
        for name in ("workqueue_adds_total", "workqueue_retries_total", "workqueue_depth"):
            assert registry.value(name, name="test") == 0
        assert registry.value("controller_runtime_reconcile_errors_total", controller="test") == 0
        assert registry.value("controller_runtime_active_workers", controller="test") == 0
        assert registry.value("controller_runtime_max_concurrent_reconciles", controller="test") == 7
        assert registry.value("workqueue_longest_running_processor_seconds", name="test") == 0


@simulated
async def test_metrics_tell_what_the_queue_does() -> None:
    """Depth, active workers, age of passes and waits, and how passes ended."""
    registry, work = Registry(), Work()

    value = registry.value
    async with running(work, registry=registry) as queue:
        work.behaviour = taking(10)
        queue.add(A)
        await asyncio.sleep(1)
        queue.add(B)
        queue.add(C)
        await asyncio.sleep(3)
        assert value("workqueue_depth", name="test") == 2
        assert value("controller_runtime_active_workers", controller="test") == 1
        assert value("workqueue_longest_running_processor_seconds", name="test") == 4
        assert queue.longest_waiting_seconds() == 3

        await asyncio.sleep(40)
        assert value("workqueue_depth", name="test") == 0
        assert value("controller_runtime_active_workers", controller="test") == 0
        assert value("workqueue_longest_running_processor_seconds", name="test") == 0
        assert queue.longest_waiting_seconds() == 0

        work.behaviour = failing
        queue.add(A)
        work_before = len(work.begun)
        await asyncio.sleep(0.1)
        work.behaviour = taking(0, Result(requeue_after_seconds=1000))
        await asyncio.sleep(10)
        assert len(work.begun) == work_before + 2

    assert value("controller_runtime_reconcile_total", controller="test", result="success") == 3
    assert value("controller_runtime_reconcile_total", controller="test", result="error") == 1
    assert value("controller_runtime_reconcile_total", controller="test", result="requeue_after") == 1
    assert value("controller_runtime_reconcile_errors_total", controller="test") == 1
    assert value("workqueue_retries_total", name="test") == 1
    assert value("workqueue_adds_total", name="test") == 5
    assert value("controller_runtime_reconcile_time_seconds_sum", controller="test") == 30
    assert value("workqueue_queue_duration_seconds_sum", name="test") == 9 + 19


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_order_no_addition_is_lost_and_no_key_has_two_workers(seed: int) -> None:
    """Under random additions, failures and waits each addition is followed by a pass, one worker a key."""
    dice = random.Random(seed)
    keys = [Request("team", str(number)) for number in range(5)]
    at_work: set[Request] = set()
    last_begun: dict[Request, float] = {}
    last_added: dict[Request, float] = {}

    async def behaviour(request: Request) -> Result:
        assert request not in at_work
        at_work.add(request)
        last_begun[request] = simulation_loop().time()
        await asyncio.sleep(dice.uniform(0, 3))
        at_work.discard(request)
        if dice.random() < 0.3:
            raise errors.NoAnswer("nobody is there")
        return Result(requeue_after_seconds=dice.uniform(0, 9)) if dice.random() < 0.3 else DONE

    async def story() -> None:
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
