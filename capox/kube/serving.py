"""What a process tells of itself over HTTP: /healthz and /readyz for the kubelet, /metrics for Prometheus.

Health is what a restart would mend: a loop that does not turn, a queue that does not move, watches that say nothing.
Readiness is what a rollout waits for: everything that is served is watched.

Without a certificate all of it is plain HTTP, and whoever can reach the port may read it: there is nothing secret in
it. A route with a guard asks who it is that asks, as the API's own components do with /metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from aiohttp import web

from capox.kube.manager import Manager
from capox.kube.metrics import LoopMetrics, Registry
from capox.kube.workqueue import Workqueue

__all__ = [
    "Address",
    "Check",
    "Guard",
    "LoopWatch",
    "Route",
    "health_routes",
    "manager_health",
    "manager_readiness",
    "metrics_route",
    "queue_health",
    "serve",
]

Check: TypeAlias = Callable[[], str | None]
"""Gives what is wrong, in words for people, or None when all is well."""

Guard: TypeAlias = Callable[[str | None, str], Awaitable[int | None]]
"""Judges a request by its Authorization header and path: the HTTP status that refuses it, or None."""

QUEUE_STILL_SECONDS: Final = 900.0
"""How long keys may wait without any pass beginning or ending. Every call that a pass makes has a deadline."""

SILENCE_SECONDS: Final = 120.0
"""How long the watches may say nothing."""

LAG_SECONDS: Final = 30.0
"""By how much the event loop may be late. One that does not turn at all answers nothing, which the kubelet hears."""

_LOOK_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where to listen.

    Attributes:
        host: The address; empty for all.
        port: The port; 0 for any that is free.
    """

    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """What is answered under a path.

    Attributes:
        path: The path.
        answer: Gives status, media type and body.
        guard: Judges who asks; None lets everybody.
    """

    path: str
    answer: Callable[[], tuple[int, str, bytes]]
    guard: Guard | None = None


def health_routes(health: Mapping[str, Check], readiness: Mapping[str, Check]) -> tuple[Route, ...]:
    """Give /healthz and /readyz.

    Args:
        health: Checks by name; one that fails makes the process be restarted.
        readiness: Further checks by name; one that fails makes the process be not ready.
    """
    return (
        Route("/healthz", lambda: _judge(health)),
        Route("/readyz", lambda: _judge({**health, **readiness})),
    )


def metrics_route(registry: Registry, guard: Guard | None = None) -> Route:
    """Give /metrics, to those whom the guard lets."""
    return Route("/metrics", lambda: (200, registry.content_type, registry.render()), guard)


def queue_health(queue: Workqueue) -> Check:
    """Check that a queue moves."""

    def check() -> str | None:
        seconds = queue.still_seconds()
        if seconds < QUEUE_STILL_SECONDS:
            return None
        return f"{len(queue)} keys wait, and nothing has moved for {seconds:.0f} s"

    return check


def manager_health(manager: Manager) -> Check:
    """Check that the watches say something."""

    def check() -> str | None:
        seconds = manager.silence_seconds()
        return None if seconds < SILENCE_SECONDS else f"the watches have said nothing for {seconds:.0f} s"

    return check


def manager_readiness(manager: Manager) -> Check:
    """Check that every kind that is served is watched."""

    def check() -> str | None:
        return f"not watched: {', '.join(manager.missing)}" if manager.missing else None

    return check


class LoopWatch:
    """Sees how late the event loop is.

    Args:
        metrics: Where it is told.
    """

    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics
        self._lag_seconds = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self._lag_seconds = loop.time() - due
            self._metrics.on_lag(self._lag_seconds)

    def check(self) -> str | None:
        """Check that the loop turns."""
        return None if self._lag_seconds < LAG_SECONDS else f"the event loop was {self._lag_seconds:.0f} s late"


@contextlib.asynccontextmanager
async def serve(address: Address, routes: Iterable[Route], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answer until the block is left, over HTTPS where TLS is given; gives the port.

    Raises:
        OSError: The address cannot be listened at.
    """
    application = web.Application()
    for route in routes:
        application.router.add_get(route.path, _handler(route))
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host or None, address.port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        refusal = None if route.guard is None else await route.guard(request.headers.get("Authorization"), route.path)
        if refusal is not None:
            return web.Response(status=refusal, text=f"{http.HTTPStatus(refusal).phrase}\n")
        status, media_type, body = route.answer()
        return web.Response(status=status, body=body, headers={"Content-Type": media_type})

    return handle


def _judge(checks: Mapping[str, Check]) -> tuple[int, str, bytes]:
    wrong = [f"{name}: {said}" for name, check in checks.items() if (said := check()) is not None]
    text = "\n".join(wrong) if wrong else "ok"
    return (500 if wrong else 200), "text/plain; charset=utf-8", f"{text}\n".encode()
