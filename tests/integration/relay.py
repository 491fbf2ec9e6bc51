"""A relay of TCP connections on loopback that can be away; the apiserver behind it knows nothing of that."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

__all__ = ["Relay"]


class Relay:
    """Passes connections on to a port of loopback.

    Args:
        port: Where to.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def server(self) -> str:
        """Its own address, as that of an apiserver."""
        return f"https://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._flowing.set()
        await self._close()

    async def begin_outage(self, *, is_silent: bool) -> None:
        """Be away.

        Args:
            is_silent: Connections stay and new ones are taken, but nothing comes through: a half-open line. Otherwise
                they are cut, and new ones refused.
        """
        if is_silent:
            self._flowing.clear()
        else:
            await self._close()

    async def end_outage(self) -> None:
        """Be there again. What was sent into a half-open line is lost with its connections."""
        if not self._flowing.is_set():
            for task in self._tasks:
                task.cancel()
            self._flowing.set()
        else:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                onwards_reader, onwards_writer = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pass_on(reader, onwards_writer))
                        group.create_task(self._pass_on(onwards_reader, writer))
                finally:
                    onwards_writer.transport.abort()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
