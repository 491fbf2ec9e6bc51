"""What the work queue tells of itself: logs and metrics, on virtual time."""

from __future__ import annotations

import asyncio

import structlog
from structlog.testing import capture_logs

from capox.kube.metrics import OUTCOMES, Registry
from capox.kube.workqueue import DONE, Request, Result
from tests.sim.loop import simulated
from tests.unit.kube.queue_work import A, B, C, Work, failing, running, taking


@simulated
async def test_each_pass_has_an_id_and_its_key_in_the_logs() -> None:
    """Whatever is logged during a pass carries reconcileID, namespace and name; two passes have two ids."""
    work = Work()
    seen: list[dict[str, object]] = []

    async def remember(_: Request) -> Result:
        """Keep what is bound for logs."""
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
        """Make a mistake."""
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
