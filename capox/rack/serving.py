"""Serving a rack over TCP: its API over HTTP and HTTPS, and its control endpoint, in one event loop.

A fault that loses a request or a reply needs more than ASGI offers: the connection has to end without an answer. So the
protocol below offers `app.HANG_UP` to the application, which closes the connection at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from capox.rack.app import HANG_UP
from capox.rack.endpoint import Endpoint

# A rack keeps idle connections open; a client must not be surprised by a server that does not.
KEEP_ALIVE_SECONDS = 3600
_BACKLOG = 2048


class ServingError(Exception):
    """The rack cannot listen where it was told to; the message says why."""


@dataclasses.dataclass(frozen=True)
class Site:
    """An application and where it is served.

    Attributes:
        name: how the announcement calls it.
        app: the ASGI application.
        endpoint: where to listen.
        certificate: for HTTPS, a PEM file; absent, HTTP.
        key: the certificate's private key, a PEM file.
    """

    name: str
    app: ASGIApp
    endpoint: Endpoint
    certificate: Path | None = None
    key: Path | None = None


class HangUpProtocol(H11Protocol):
    """HTTP/1.1, with a connection that the application can end without an answer."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._inner: Any = self.app
        self._ended = asyncio.Event()
        self.app = self._serve

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        super().connection_lost(exc)
        self._ended.set()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        has_hung_up = False

        def hang_up() -> None:
            nonlocal has_hung_up
            has_hung_up = True
            self.transport.abort()

        scope.setdefault("extensions", {})[HANG_UP] = hang_up
        try:
            await self._inner(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the rack cancels a request, after its grace; the client gets no answer then.
            hang_up()
        if has_hung_up:
            # Otherwise uvicorn would take the missing answer for a mistake and write one.
            await self._ended.wait()


class _Server(uvicorn.Server):
    """A server among several: signals are handled once, for all of them, by who runs them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class Serving:
    """Applications that are being served, from `start` to `stop`.

    Args:
        sites: what to serve, and where.
        grace_seconds: how long running requests may take to end after `stop`.

    Attributes:
        urls: by the site's name, where it is reached; known after `start`.
    """

    def __init__(self, sites: Sequence[Site], grace_seconds: int) -> None:
        self._sites = sites
        self._grace_seconds = grace_seconds
        self._servers: list[_Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.urls: dict[str, str] = {}

    async def start(self) -> None:
        """Listen everywhere.

        Raises:
            ServingError: an address cannot be had, or a certificate cannot be used. Nothing is left listening then.
        """
        sockets: list[socket.socket] = []
        try:
            for site in self._sites:
                sockets.append(_listen(site))
                self._servers.append(_server(site, self._grace_seconds))
        except ServingError:
            for listening in sockets:
                listening.close()
            raise
        for site, server, listening in zip(self._sites, self._servers, sockets, strict=True):
            port = listening.getsockname()[1]
            scheme = "https" if site.certificate is not None else "http"
            self.urls[site.name] = f"{scheme}://{Endpoint(site.endpoint.host, port)}"
            self._tasks.append(asyncio.create_task(server.serve(sockets=[listening])))
        while not all(server.started for server in self._servers):
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.001)

    async def wait(self) -> None:
        """Return when a server has ended; normally that is never before `stop`."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """Listen no more, let running requests end within the grace, and close every connection."""
        for server in self._servers:
            server.should_exit = True
        await asyncio.gather(*self._tasks)


def _server(site: Site, grace_seconds: int) -> _Server:
    config = uvicorn.Config(
        site.app,
        http=HangUpProtocol,
        ws="websockets-sansio",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
        ssl_certfile=site.certificate,
        ssl_keyfile=site.key,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
        raise ServingError(f"{site.name}: certificate {site.certificate} with key {site.key}: {reason}") from None
    return _Server(config)


def _listen(site: Site) -> socket.socket:
    host, port = site.endpoint.host, site.endpoint.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        hint = "; choose another port, or 0 for a free one" if port else ""
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise ServingError(f"{site.name}: cannot listen on {site.endpoint}: {reason}{hint}") from None
