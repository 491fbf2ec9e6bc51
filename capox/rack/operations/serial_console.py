"""The serial console, in pieces over HTTP and as a stream over a WebSocket (semantics 9.2).

Offsets count the bytes since the instance was started; a reboot does not begin anew. Only an instance that runs has a
console.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

import structlog
from starlette.types import Message, Receive, Scope, Send

from capox.rack import access, decode, errors, paging, records, select, versions
from capox.rack.access import Need
from capox.rack.call import Call, operation
from capox.rack.document import Operation
from capox.rack.faults import Faults
from capox.rack.json import JSON, encode_pretty
from capox.rack.state import Rack

_WITH_CONSOLE = frozenset({"running", "rebooting"})
_STREAM = "instance_serial_console_stream"

# How often a stream looks for something new; nothing in the rack wakes it.
_POLL_SECONDS = 0.1

_CLOSE_NORMAL = 1000
_CLOSE_ERROR = 1011
# A close frame has room for 125 bytes, of which two hold the code.
_MAXIMUM_REASON_BYTES = 123

_logger = structlog.get_logger()


@operation
def instance_serial_console(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/serial-console`: what is kept, from an offset or from so many bytes before the end.

    Exactly one of `from_start` and `most_recent` has to be given. A real rack answers anything else by 500, because
    its hypervisor refuses it; this one by 400.
    """
    query = call.query
    if ("from_start" in query) == ("most_recent" in query):
        raise errors.invalid_request("exactly one of from_start and most_recent has to be given")
    console = _connect(_instance(call, "read")).console
    offset = query["from_start"] if "from_start" in query else max(0, console.end - query["most_recent"])
    offset = min(max(offset, console.beginning), console.end)
    data = console.read(offset, query.get("max_bytes"))
    return {"data": list(data), "last_byte_offset": offset + len(data)}


async def stream(rack: Rack, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve `GET /v1/instances/{instance}/serial-console/stream` as a WebSocket (ASGI).

    Credentials and parameters are judged before the connection is upgraded, the instance after that: a refusal is then
    the reason of the close. What the client sends is for the guest; without one, nobody reads it.
    """
    rack.settle()
    message = await receive()
    if message["type"] != "websocket.connect":
        return
    try:
        call = _call(rack, scope)
    except errors.RackError as refusal:
        await _refuse_upgrade(rack, scope, send, refusal)
        return
    await send({"type": "websocket.accept"})
    try:
        instance = _connect(_instance(call, "compute"))
    except errors.RackError as refusal:
        await send(_close(_CLOSE_ERROR, refusal.message))
        return
    await _copy(call, instance, receive, send)


async def _copy(call: Call, instance: records.Instance, receive: Receive, send: Send) -> None:
    """Send what is kept and then what comes, until the client goes or the instance's VMM does."""
    console = instance.console
    start = console.starts
    offset = max(0, console.end - call.query["most_recent"]) if "most_recent" in call.query else 0
    gone = asyncio.ensure_future(_disconnection(receive))
    try:
        while not gone.done():
            call.rack.settle()
            data = console.read(offset) if console.starts == start else b""
            if data:
                await send({"type": "websocket.send", "bytes": data})
            offset = console.end
            if instance.state not in _WITH_CONSOLE or console.starts != start:
                await send(_close(_CLOSE_NORMAL, f"instance is {instance.state}"))
                return
            pause = asyncio.ensure_future(call.rack.clock.sleep(_POLL_SECONDS))
            await asyncio.wait({gone, pause}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
    except OSError as error:
        # The client has gone while it was being written to.
        _logger.debug("Losing the client of a serial console", instance=instance.id, error=str(error))
    finally:
        gone.cancel()
        await asyncio.wait({gone})


async def _disconnection(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    message: Message = {"type": "websocket.receive"}
    while message["type"] != "websocket.disconnect":
        message = await receive()


def _instance(call: Call, need: Need) -> records.Instance:
    return select.in_project(call, call.rack.instances, call.path["instance"], select.INSTANCE, need)


def _connect(instance: records.Instance) -> records.Instance:
    """The instance, if it has a console now.

    Raises:
        Refusal: 400.
    """
    if instance.state in {"starting", "stopping"}:
        text = f'cannot connect to serial console of instance in state "{instance.state}"'
        raise errors.invalid_request(text)
    if instance.state not in _WITH_CONSOLE:
        raise errors.invalid_request(f"instance is {instance.state} and has no active serial console server")
    return instance


def _call(rack: Rack, scope: Scope) -> Call:
    """A WebSocket's request, decoded and authenticated as any other.

    Raises:
        RackError: the path is another, or version, parameters or credentials are refused.
    """
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    versions.parse(headers.get("api-version"), rack.latest_version)
    found, path = rack.document.route(scope["path"])
    operation_found: Operation | None = found.get("GET")
    if operation_found is None or operation_found.id != _STREAM:
        raise errors.FrameworkError(404, "Not Found")
    path = decode.path(rack.document, operation_found, path)
    pairs = urllib.parse.parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = decode.query(rack.document, operation_found, pairs)
    return Call(
        rack=rack,
        operation=_STREAM,
        actor=access.authenticate(rack, headers.get("authorization")),
        path=path,
        query=query,
        body=None,
        at=paging.Position(paging.NAME_ASCENDING, None, 0),
        faults=Faults(),
    )


async def _refuse_upgrade(rack: Rack, scope: Scope, send: Send, refusal: errors.RackError) -> None:
    """Answer by an HTTP error instead of the upgrade, if the transport can, else by a bare 403."""
    request_id = rack.new_id()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send(_close(1008, refusal.message))
        return
    body = encode_pretty(refusal.body(request_id))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": int(refusal.status), "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _close(code: int, reason: str) -> dict[str, Any]:
    shortened = reason.encode()[:_MAXIMUM_REASON_BYTES].decode(errors="ignore")
    return {"type": "websocket.close", "code": code, "reason": shortened}
