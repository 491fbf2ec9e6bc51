"""Is there a live apiserver at an address? Asked without credentials, of an address that may be anybody's.

Nothing is sent but one request without a body, no certificate is trusted or needed, no proxy is used, and what comes
back is read up to its first line.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import Final

__all__ = ["probe"]

DEADLINE_SECONDS: Final = 5.0
"""How long an apiserver may take to answer, from the look-up of its name to the first line."""

LINE_BYTES_MAX: Final = 1024
"""How much of an answer is read at most."""

ALIVE: Final = frozenset({b"200", b"401", b"403"})
"""Statuses of a live apiserver. Where anonymous requests are not allowed, it says so; a proxy before it says 502."""

_HAPPY_EYEBALLS_SECONDS: Final = 0.25


async def probe(host: str, port: int, *, deadline_seconds: float = DEADLINE_SECONDS) -> bool:
    """Tell whether an apiserver answers here and is ready (M-29). It raises nothing, other than when it is cancelled.

    Args:
        host: A name, or an address of either family.
        port: The port.
        deadline_seconds: How long it may take.
    """
    if not 0 < port < 65536 or not host.isprintable() or not host or " " in host:
        return False
    try:
        async with asyncio.timeout(deadline_seconds):
            return await _ask(host, port)
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        # No such name, nobody there, no TLS, no HTTP, no time: each of them is no.
        return False


async def _ask(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(
        host, port, ssl=_context(), limit=LINE_BYTES_MAX, happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS
    )
    try:
        name = f"[{host}]" if ":" in host else host
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n".encode("ascii"))
        line = await reader.readuntil(b"\r\n")
    finally:
        # Without the courtesies of a TLS end, which the other side may never answer.
        writer.transport.abort()
    version, _, rest = line.partition(b" ")
    return version.startswith(b"HTTP/1.") and rest[:3] in ALIVE


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # The endpoint's certificate is of the workload cluster's authority, which nobody here knows; no secret is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
