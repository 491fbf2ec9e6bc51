"""The serial console (semantics 9.2)."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from capox.rack.state import Rack


async def stream(rack: Rack, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve `GET /v1/instances/{instance}/serial-console/stream` as a WebSocket."""
    del rack, scope
    await receive()
    await send({"type": "websocket.close", "code": 1008})
