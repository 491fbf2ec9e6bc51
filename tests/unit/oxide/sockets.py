"""A server on a loopback socket that says its bytes and no more: for what an HTTP server would never let one do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the server does with one request.

    Attributes:
        pieces: Bytes to write, one piece after the other.
        pause_seconds: Between the pieces.
        closes: Whether it closes the connection afterwards.
        resets: Whether it resets the connection instead of answering.
    """

    pieces: Sequence[bytes] = ()
    pause_seconds: float = 0.0
    closes: bool = False
    resets: bool = False


@dataclass
class SocketRack:
    """The server.

    Attributes:
        port: Where it listens.
        requests: The head of every request, with the number of its connection.
    """

    port: int = 0
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    _script: list[Said] = field(default_factory=list)
    _connections: int = 0

    def follow(self, *script: Said) -> None:
        """Follow another script from now on."""
        self._script = list(script)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._connections += 1
        connection = self._connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append((connection, head))
                said = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                if said.resets:
                    writer.transport.abort()
                    return
                for piece in said.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(said.pause_seconds)
                if said.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def socket_rack(*script: Said, tls: ssl.SSLContext | None = None) -> AsyncIterator[SocketRack]:
    """Run a server that follows a script, the last line of it again and again."""
    rack = SocketRack(_script=list(script))
    connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep account of the connections."""
        task = asyncio.current_task()
        assert task is not None
        connections[writer] = task
        await rack.serve(reader, writer)
        del connections[writer]

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    rack.port = server.sockets[0].getsockname()[1]
    try:
        yield rack
    finally:
        server.close()
        tasks = list(connections.values())
        for connection in list(connections):
            connection.transport.abort()
        await asyncio.gather(*tasks)
        await server.wait_closed()


def http(status: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    """Write an HTTP answer."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {size}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
