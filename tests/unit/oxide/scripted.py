"""A rack that answers from a script: for what neither a real nor the simulated rack can be made to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx
from pydantic import SecretStr

from capox.oxide import OxideClient

TOKEN: Final = "oxide-token-0123456789abcdef"

REQUEST_ID: Final = "5e8d1fbc-0c2b-4b53-9b6f-0d3a6a0a5a11"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of the script.

    Attributes:
        body: Bytes as they are, or anything else as JSON.
        delay_seconds: How long the rack thinks before it.
        fails: Raised by the transport in place of an answer.
    """

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    fails: Exception | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request that arrived."""

    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    seconds: float


class ScriptedRack:
    """An ASGI application that gives the replies of its script one after the other, the last one again and again.

    Attributes:
        asked: Every request, in order.
        cancelled: How many of them were given up by their client before they were answered.
    """

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.asked: list[Asked] = []
        self.cancelled = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = (await receive()).get("body", b"")
        self.asked.append(
            Asked(
                verb=scope["method"],
                path=scope["raw_path"].decode(),
                query=dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True)),
                headers={name.decode(): value.decode() for name, value in scope["headers"]},
                body=body,
                seconds=asyncio.get_running_loop().time(),
            )
        )
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        try:
            await asyncio.sleep(reply.delay_seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if reply.fails is not None:
            raise reply.fails
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        headers = {"content-type": "application/json", "x-request-id": REQUEST_ID, **reply.headers}
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": content})

    def client(self, **options: Any) -> OxideClient:
        """Make a client of this rack."""
        options = {"host": "http://rack.example", "token": SecretStr(TOKEN), **options}
        return OxideClient(transport=httpx.ASGITransport(self), **options)


def refusal(status: int, error_code: str | None = None, message: str = "no", **more: Any) -> Reply:
    """Make an error answer as the rack makes it."""
    body = {"message": message, "request_id": REQUEST_ID}
    return Reply(status=status, body=body if error_code is None else {**body, "error_code": error_code}, **more)
