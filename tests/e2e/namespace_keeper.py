"""Keeps network namespaces, and what listens inside them, for as long as its standard input is open.

A program of its own, because the tests' process is kept on loopback, and because whatever ends the tests ends the
namespaces too: they have no names, this process alone holds them. Commands are lines of JSON, answered by lines of
JSON. It needs root, and nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

_CLONE_NEWNET: Final = 0x40000000
_LOOPBACK: Final = "127.0.0.1"
_BLOCK: Final = 65536
_libc = ctypes.CDLL(None, use_errno=True)


class Answerer(asyncio.DatagramProtocol):
    """Answers each datagram with its own name and the address that it came from.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        # asyncio's own transport is not of the class that it is documented to be.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer."""
        del data
        self._transport.sendto(f"{self._name} {addr[0]}\n".encode(), addr)


class Keeper:
    """The namespaces and their listeners."""

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._namespaces: dict[str, int] = {}
        self._listeners: list[object] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command: `make`, `answer` or `relay`."""
        name = command["namespace"]
        if command["op"] == "make":
            return {"path": self._make(name)}
        if command["op"] == "answer":
            await self._answer(name, command["port"])
        else:
            await self._relay(name, command["port"])
        return {}

    def _make(self, name: str) -> str:
        """A new namespace; returns the path by which others enter it."""
        _call(_libc.unshare, _CLONE_NEWNET)
        self._namespaces[name] = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _call(_libc.setns, self._home, _CLONE_NEWNET)
        return f"/proc/{os.getpid()}/fd/{self._namespaces[name]}"

    async def _answer(self, name: str, port: int) -> None:
        """Have whoever comes to a port, over TCP or UDP, be told the namespace's name and how it sees them."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen = writer.get_extra_info("peername")[0]
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(f"HTTP/1.0 200 OK\r\n\r\n{name} {seen}\n".encode())
                await writer.drain()
            writer.close()

        with self._inside(name):
            streams, datagrams = _bound(socket.SOCK_STREAM, port), _bound(socket.SOCK_DGRAM, port)
        self._listeners.append(await asyncio.start_server(answer, sock=streams))
        made = await asyncio.get_running_loop().create_datagram_endpoint(lambda: Answerer(name), sock=datagrams)
        self._listeners.append(made)

    async def _relay(self, name: str, port: int) -> None:
        """Have a port of this computer's loopback be there on the namespace's loopback, too."""

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                there_reader, there_writer = await asyncio.open_connection(_LOOPBACK, port)
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            writer.close()

        with self._inside(name):
            listening = _bound(socket.SOCK_STREAM, port, _LOOPBACK)
        self._listeners.append(await asyncio.start_server(carry, sock=listening))

    @contextlib.contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        """A socket belongs to the namespace in which it was made, wherever its process goes afterwards."""
        _call(_libc.setns, self._namespaces[name], _CLONE_NEWNET)
        try:
            yield
        finally:
            _call(_libc.setns, self._home, _CLONE_NEWNET)


def _call(function: Any, *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def _bound(kind: socket.SocketKind, port: int, address: str = "") -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.setblocking(False)
    return made


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    # Both directions end together: a half-open connection would be kept for ever.
    writer.close()


async def _main() -> None:
    keeper = Keeper()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        try:
            answer = await keeper.obey(json.loads(line))
        except OSError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main())
