"""What a process tells of itself over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import httpx
import pytest

from capox.kube.certificates import self_signed
from capox.kube.metrics import LoopMetrics, QueueMetrics, Registry
from capox.kube.serving import (
    QUEUE_STILL_SECONDS,
    Address,
    LoopWatch,
    health_routes,
    metrics_route,
    queue_health,
    serve,
)
from capox.kube.workqueue import DONE, Request, Result, Workqueue
from tests.sim.loop import simulated

LOOPBACK = Address("127.0.0.1", 0)


async def test_health_and_readiness_name_what_is_wrong() -> None:
    """What is not healthy is not ready either; what is only not ready is healthy."""
    wrong: dict[str, str | None] = {"queue": None, "watches": None}
    routes = health_routes({"queue": lambda: wrong["queue"]}, {"watches": lambda: wrong["watches"]})
    async with serve(LOOPBACK, routes) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

        async def ask(path: str) -> tuple[int, str]:
            """Give status and text of a path."""
            answer = await http.get(path)
            return answer.status_code, answer.text

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (200, "ok\n")
        wrong["watches"] = "not watched: machines"
        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (500, "watches: not watched: machines\n")
        wrong["queue"] = "nothing moves"
        assert await ask("/healthz") == (500, "queue: nothing moves\n")
        assert await ask("/readyz") == (500, "queue: nothing moves\nwatches: not watched: machines\n")


async def test_other_paths_and_methods_are_refused() -> None:
    """Metrics are not among the health routes, nor is anything written."""
    async with serve(LOOPBACK, health_routes({}, {})) as port, httpx.AsyncClient() as http:
        base = f"http://127.0.0.1:{port}"
        assert (await http.get(f"{base}/metrics")).status_code == 404
        assert (await http.get(base)).status_code == 404
        assert (await http.post(f"{base}/healthz")).status_code == 405
        assert (await http.head(f"{base}/healthz")).status_code == 200


async def test_metrics_are_served() -> None:
    """In Prometheus' text format, without the times at which series began."""
    registry = Registry()
    QueueMetrics(registry).register("oxidemachine", 10, lambda: 0.0)
    async with serve(LOOPBACK, [metrics_route(registry)]) as port, httpx.AsyncClient() as http:
        answer = await http.get(f"http://127.0.0.1:{port}/metrics")

    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    lines = answer.text.splitlines()
    assert 'controller_runtime_reconcile_total{controller="oxidemachine",result="error"} 0.0' in lines
    assert 'controller_runtime_max_concurrent_reconciles{controller="oxidemachine"} 10.0' in lines
    assert not [line for line in lines if "_created" in line]


async def test_an_address_that_is_taken_is_an_error() -> None:
    """At the start, not later."""
    async with serve(LOOPBACK, []) as port:
        with pytest.raises(OSError, match="address already in use"):
            async with serve(Address("127.0.0.1", port), []):
                pass


@simulated
async def test_a_queue_that_does_not_move_is_not_healthy() -> None:
    """Keys wait, and for a long time no pass has begun or ended; a long queue that moves is healthy."""
    seconds = {"pass": 10.0}

    async def reconcile(_: Request) -> Result:
        """Take the time that is set."""
        await asyncio.sleep(seconds["pass"])
        return DONE

    queue = Workqueue("test", reconcile, concurrency=1, randomness=random.Random(0), metrics=QueueMetrics(Registry()))
    check = queue_health(queue)
    task = asyncio.create_task(queue.run())
    for number in range(200):
        queue.add(Request("team", str(number)))
    for _ in range(19):
        await asyncio.sleep(100)
        assert check() is None
    seconds["pass"] = 10_000
    await asyncio.sleep(QUEUE_STILL_SECONDS - 100)
    assert check() is None
    await asyncio.sleep(200)
    assert "nothing has moved" in (check() or "")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_loop_that_was_late_is_seen() -> None:
    """Something has held it."""
    registry = Registry()
    watch = LoopWatch(LoopMetrics(registry))
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    time.sleep(1.3)  # noqa: ASYNC251  # the mistake that is looked for
    for _ in range(500):
        if (registry.value("capox_event_loop_lag_seconds") or 0) > 0.2:
            break
        await asyncio.sleep(0.01)
    task.cancel()

    assert (registry.value("capox_event_loop_lag_seconds") or 0) > 0.2
    assert watch.check() is None


async def test_a_certificate_of_its_own_serves_https() -> None:
    """The kubelet's probes verify none; the key is on no disk."""
    async with serve(LOOPBACK, health_routes({}, {}), await self_signed("pod-1")) as port:
        async with httpx.AsyncClient(verify=False) as http:  # noqa: S501  # there is nobody who would vouch for it
            assert (await http.get(f"https://127.0.0.1:{port}/healthz")).text == "ok\n"
        async with httpx.AsyncClient() as http:
            with pytest.raises(httpx.HTTPError):
                await http.get(f"http://127.0.0.1:{port}/healthz")


async def test_a_guarded_route_asks_who_it_is() -> None:
    """The guard sees header and path, and its word is the answer."""
    asked: list[tuple[str | None, str]] = []

    async def guard(authorization: str | None, path: str) -> int | None:
        """Let in who has the right."""
        asked.append((authorization, path))
        return None if authorization == "Bearer right" else 403

    async with serve(LOOPBACK, [metrics_route(Registry(), guard)]) as port, httpx.AsyncClient() as http:
        answers = [
            (
                await http.get(f"http://127.0.0.1:{port}/metrics", headers={"authorization": f"Bearer {word}"})
            ).status_code
            for word in ("wrong", "right")
        ]

    assert answers == [403, 200]
    assert asked == [("Bearer wrong", "/metrics"), ("Bearer right", "/metrics")]
