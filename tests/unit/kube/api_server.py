"""An HTTP server on loopback that answers as a test says: for what a real apiserver does only on bad days."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from capox.kube.client import KubeClient

__all__ = ["Arrived", "FakeAPIServer", "serving", "status"]

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclasses.dataclass(frozen=True, slots=True)
class Arrived:
    """A request as it arrived.

    Attributes:
        method: Its method.
        path: Its path, with the query.
        content_type: The media type of its body.
        body: Its body.
    """

    method: str
    path: str
    content_type: str
    body: bytes


def status(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None, **details: Any) -> Answer:
    """Give the behaviour that answers with a Status object."""

    async def answer(_: web.Request) -> web.StreamResponse:
        """Answer with the Status."""
        document = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
        return web.json_response(document, status=code, headers=headers)

    return answer


class FakeAPIServer:
    """The server's side.

    Attributes:
        arrived: All requests, in order.
        answer: What comes next; tests set it.
        port: Where it listens.
    """

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.answer: Answer = status(500, "InternalError", "no answer was set")
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Note a request and answer it."""
        self.arrived.append(
            Arrived(request.method, request.path_qs, request.headers.get("Content-Type", ""), await request.read())
        )
        return await self.answer(request)

    def client(self, **options: Any) -> KubeClient:
        """Give a client of this server."""
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self.port}"
        configuration.api_key["BearerToken"] = "Bearer t0ken"
        return KubeClient(configuration, **options)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[FakeAPIServer]:
    """Serve on a free port of loopback."""
    server = FakeAPIServer()
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
