"""The probe of an apiserver, against whoever else may be at an address."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from capox.kube.probe import LINE_BYTES_MAX, probe
from hack.controlplane.pki import CertificateAuthority
from tests.unit.kube.api_server import serving

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Endpoint:
    """Somebody at an address.

    Attributes:
        port: Where.
        received: What was sent to it, by connection.
    """

    def __init__(self) -> None:
        self.port = 0
        self.received: list[bytes] = []


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """TLS with a certificate of an authority that nobody knows."""
    CertificateAuthority("nobody's").serving("nobody").write(tmp_path, "serving")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "serving.crt", tmp_path / "serving.key")
    return context


@contextlib.asynccontextmanager
async def endpoint(
    behaviour: Behaviour, context: ssl.SSLContext | None, address: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    """Serve a behaviour."""
    built = Endpoint()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            if context is not None:
                built.received.append(await reader.readuntil(b"\r\n\r\n"))
            await behaviour(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(accept, address, 0, ssl=context)
    built.port = server.sockets[0].getsockname()[1]
    try:
        yield built
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(text: bytes) -> Behaviour:
    """Give the behaviour that says something and ends."""

    async def behaviour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say it."""
        writer.write(text)
        await writer.drain()

    return behaviour


async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Say nothing."""
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("line", "is_alive"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 401 Unauthorized\r\n", True),
        (b"HTTP/1.1 403 Forbidden\r\n", True),
        (b"HTTP/1.0 200 OK\r\n", True),
        (b"HTTP/1.1 500 Internal Server Error\r\n", False),
        (b"HTTP/1.1 502 Bad Gateway\r\n", False),
        (b"HTTP/1.1 503 Service Unavailable\r\n", False),
        (b"HTTP/1.1 404 Not Found\r\n", False),
        (b"HTTP/1.1 301 Moved Permanently\r\n", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (b"200\r\n", False),
        (b"\r\n", False),
        (b"HTTP/1.1 200 OK", False),
        (b"", False),
    ],
    ids=repr,
)
async def test_the_first_line_decides(context: ssl.SSLContext, line: bytes, is_alive: bool) -> None:
    """Only an apiserver that is there and ready is alive."""
    async with endpoint(saying(line), context) as somebody:
        assert await probe("127.0.0.1", somebody.port) is is_alive


async def test_nothing_is_sent_but_a_question(context: ssl.SSLContext) -> None:
    """No credentials, no cookies."""
    async with endpoint(saying(b"HTTP/1.1 200 OK\r\n"), context) as somebody:
        await probe("127.0.0.1", somebody.port)

    host = f"127.0.0.1:{somebody.port}".encode()
    assert somebody.received == [b"GET /readyz HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"]


async def test_both_families_and_names_are_asked(context: ssl.SSLContext) -> None:
    """An IPv6 address, and a name."""
    async with endpoint(saying(b"HTTP/1.1 200 OK\r\n"), context, "127.0.0.1") as somebody:
        assert await probe("localhost", somebody.port)
    async with endpoint(saying(b"HTTP/1.1 200 OK\r\n"), context, "::1") as somebody:
        assert await probe("::1", somebody.port)

    assert somebody.received[0].splitlines()[1] == f"Host: [::1]:{somebody.port}".encode()


async def test_proxies_of_the_environment_are_not_used(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is whether *we* reach it."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with endpoint(saying(b"HTTP/1.1 200 OK\r\n"), context) as somebody:
        assert await probe("127.0.0.1", somebody.port)


async def test_an_endless_line_is_not_read(context: ssl.SSLContext) -> None:
    """Memory is not for whoever is there."""
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write a line without an end."""
        nonlocal sent
        while True:
            writer.write(b"x" * LINE_BYTES_MAX)
            await writer.drain()
            sent += LINE_BYTES_MAX

    async with endpoint(endless, context) as somebody:
        assert not await probe("127.0.0.1", somebody.port)


async def test_silence_is_no(context: ssl.SSLContext) -> None:
    """After the deadline: of one who speaks TLS and says nothing, and of one who does not even speak TLS."""
    async with endpoint(silent, context) as somebody:
        assert not await probe("127.0.0.1", somebody.port, deadline_seconds=0.2)
    async with endpoint(silent, None) as somebody:
        assert not await probe("127.0.0.1", somebody.port, deadline_seconds=0.2)


async def test_one_without_tls_is_no() -> None:
    """An apiserver has it."""
    async with serving() as server:
        assert not await probe("127.0.0.1", server.port)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 1),
        ("127.0.0.1", 0),
        ("127.0.0.1", 70000),
        ("127.0.0.1", -1),
        ("", 6443),
        ("not a name", 6443),
        ("a" * 300, 6443),
        ("ex\x00ample", 6443),
        ("127.0.0.1\r\nX-Injected: yes", 1),
    ],
)
async def test_what_is_no_address_is_no(host: str, port: int) -> None:
    """It is said, not raised."""
    assert not await probe(host, port, deadline_seconds=2)


async def test_it_can_be_cancelled(context: ssl.SSLContext) -> None:
    """At once."""
    async with endpoint(silent, context) as somebody:
        task = asyncio.create_task(probe("127.0.0.1", somebody.port, deadline_seconds=3600))
        for _ in range(1000):
            if somebody.received:
                break
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
