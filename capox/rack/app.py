"""The rack's API as an ASGI application.

A request goes one way: route, version, faults, decode, authenticate, operate, check the answer. Whatever refuses it on
the way raises a `RackError`,
which is turned into an answer in one place. An operation runs to its end even when its client has gone (semantics 1.3).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from typing import Any

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from capox.rack import access, calls, decode, errors, operations, paging, versions
from capox.rack.call import HANDLERS, OPEN_OPERATIONS, Call
from capox.rack.document import Operation
from capox.rack.faults import FaultRule, Faults
from capox.rack.json import JSON, encode, encode_pretty
from capox.rack.state import Rack

# The name under which the transport offers to cut a connection; see `serving`.
HANG_UP = "capox.hang_up"

_REFUSALS: dict[str, Callable[[], errors.RackError]] = {
    "unavailable": errors.service_unavailable,
    "insufficient_capacity": lambda: errors.insufficient_capacity("No room is left (fault)"),
    "internal_error": errors.internal_error,
    "unauthorized": errors.unauthorized,
    "not_found_page": lambda: errors.FrameworkError(HTTPStatus.NOT_FOUND, "Not Found"),
}

_READING = frozenset({"GET", "HEAD"})

_logger = structlog.get_logger()


class HungUp(ConnectionError):
    """The connection was cut on purpose. It reaches a client that calls the application within one process."""


@dataclasses.dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    headers: dict[str, str]


class RackApp:
    """The application.

    Args:
        rack: the state that it serves.
        faults: the faults that it plays.
        log: where it enters each request.
        on_call: told of each request when it is over.
    """

    def __init__(
        self,
        rack: Rack,
        faults: Faults | None = None,
        log: calls.CallLog | None = None,
        on_call: Callable[[calls.LoggedCall], None] = lambda _: None,
    ) -> None:
        self.rack = rack
        self.faults = faults if faults is not None else Faults()
        self.log = log if log is not None else calls.CallLog()
        self.on_call = on_call
        # What an answer had that the document does not allow; always empty unless the rack itself is wrong.
        self.violations: list[str] = []
        self._running: set[asyncio.Task[_Answer | None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request (ASGI)."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await operations.serial_console.stream(self.rack, scope, receive, send)
            return
        request = Request(scope, receive)
        self.rack.settle()
        entry = self.log.begin(
            time=self.rack.now(),
            request_id=self.rack.new_id(),
            method=request.method,
            path=request.url.path,
            query=request.url.query,
        )
        try:
            raw = await _read(request)
        except ClientDisconnect:
            self._finish_entry(entry)
            return
        answer = await self._detached(self._answer(request, raw, entry))
        if answer is None:
            _hang_up(scope)
        else:
            await _send(send, answer)

    async def _detached(self, work: Coroutine[Any, Any, _Answer | None]) -> _Answer | None:
        """Do all the work of a request, also when its client has gone meanwhile (semantics 1.3)."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _finish_entry(self, entry: calls.LoggedCall) -> None:
        entry.seconds = (self.rack.now() - entry.time).total_seconds()
        self.on_call(entry)

    async def _answer(self, request: Request, raw: bytes, entry: calls.LoggedCall) -> _Answer | None:
        """The answer to a request; None when there will be none."""
        fault: FaultRule | None = None
        try:
            operation, path = self._route(request, entry)
            entry.body_sha256 = calls.sha256(raw)
            entry.objects = tuple(_objects(path, request, raw))
            fault = self.faults.on_request(operation.id, entry.objects)
            entry.fault = fault.kind if fault is not None else None
            if not await self._before(fault):
                return None
            result = await self._operate(request, entry, operation, path, raw)
            if not await self._after(fault):
                return None
            body = b"" if result is None else encode(result)
            entry.status = operation.success_status
            return _Answer(operation.success_status, body, {"x-request-id": entry.request_id})
        except errors.RackError as error:
            if fault is not None and fault.kind == "lost_reply":
                return None
            entry.status, entry.error_code, entry.message = error.status, error.error_code, error.message
            headers = {"x-request-id": entry.request_id, **error.headers}
            return _Answer(error.status, encode_pretty(error.body(entry.request_id)), headers)
        except Exception as error:
            self.violations.append(f"{entry.operation}: {type(error).__name__}")
            _logger.exception("Failing by a mistake of the rack", operation=entry.operation)
            broken = errors.internal_error()
            entry.status, entry.error_code, entry.message = broken.status, broken.error_code, broken.message
            return _Answer(
                broken.status, encode_pretty(broken.body(entry.request_id)), {"x-request-id": entry.request_id}
            )
        finally:
            self._finish_entry(entry)

    def _route(self, request: Request, entry: calls.LoggedCall) -> tuple[Operation, dict[str, str]]:
        header = request.headers.get("api-version")
        entry.api_version, entry.user_agent = header, request.headers.get("user-agent")
        version = versions.parse(header, self.rack.latest_version)
        found, path = self.rack.document.route(request.url.path)
        found = {
            method: operation
            for method, operation in found.items()
            if operation.id in HANDLERS and versions.has_operation(version, operation.id)
        }
        if not found:
            raise errors.FrameworkError(HTTPStatus.NOT_FOUND, "Not Found")
        if request.method not in found:
            allowed = {"Allow": ", ".join(sorted(found))}
            raise errors.FrameworkError(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed", headers=allowed)
        operation = found[request.method]
        entry.operation = operation.id
        return operation, path

    async def _before(self, fault: FaultRule | None) -> bool:
        """Play a fault that comes before the operation. False when the connection is to be cut."""
        if fault is None:
            return True
        if fault.kind == "hidden":
            raise errors.not_found_text("object (hidden)")
        if fault.kind in _REFUSALS:
            refuse = _REFUSALS[fault.kind]
            raise refuse()
        if fault.kind == "slow":
            await self.rack.clock.sleep(fault.seconds)
            self.rack.settle()
        return fault.kind != "lost_request"

    async def _after(self, fault: FaultRule | None) -> bool:
        """Play a fault that comes after the operation. False when the connection is to be cut."""
        if fault is None:
            return True
        if fault.kind == "internal_error_after":
            raise errors.internal_error()
        if fault.kind == "slow_answer":
            await self.rack.clock.sleep(fault.seconds)
        return fault.kind != "lost_reply"

    async def _operate(
        self, request: Request, entry: calls.LoggedCall, operation: Operation, path: dict[str, str], raw: bytes
    ) -> JSON:
        document = self.rack.document
        version = versions.parse(entry.api_version, self.rack.latest_version)
        path = decode.path(document, operation, path)
        query = decode.query(document, operation, request.query_params.multi_items())
        body = decode.body(
            document,
            operation,
            request.headers.get("content-type"),
            raw,
            lambda value: versions.translate(version, operation.id, value),
        )
        at, query = paging.position(query, default_order=_default_order(document, operation))
        if "page_token" in query:
            # The filters that a token brings are judged like those of a query.
            query |= decode.query(document, operation, at.selector.items())
        if operation.id in OPEN_OPERATIONS:
            actor = access.NOBODY
        else:
            actor = access.authenticate(self.rack, request.headers.get("authorization"))
            entry.user = actor.user.name
        call = Call(
            rack=self.rack,
            operation=operation.id,
            actor=actor,
            path=path,
            query=query,
            body=body,
            at=at,
            faults=self.faults,
        )
        outcome = HANDLERS[operation.id](call)
        result = await outcome if inspect.isawaitable(outcome) else outcome
        if request.method not in _READING:
            # An attach, or a new set of firewall rules, is answered when it holds (semantics 6).
            await self.rack.guests.addresses()
        self._check_answer(operation, result)
        return result

    def _forget(self, task: asyncio.Task[_Answer | None]) -> None:
        self._running.discard(task)
        # Looked at, so that a refusal that nobody waited for is not reported as never retrieved.
        if not task.cancelled():
            task.exception()

    async def finish(self) -> None:
        """Wait for the operations whose clients have gone."""
        while self._running:
            await asyncio.wait(list(self._running))

    def _check_answer(self, operation: Operation, result: JSON) -> None:
        if operation.answer_schema is None:
            complaint = None if result is None else "a body where there is none"
        else:
            validator = self.rack.document.answer_validator(operation.answer_schema)
            error = None if validator.is_valid(result) else next(validator.iter_errors(result), None)
            complaint = None if error is None else f"{list(error.instance_path)}: {error.kind.name}"
        if complaint is not None:
            self.violations.append(f"{operation.id}: {complaint}")
            _logger.error("Answering outside the document", operation=operation.id, complaint=complaint)
            raise errors.internal_error()


def _default_order(document: Any, operation: Operation) -> str:
    """`name_ascending` where a list can be sorted by name, else `id_ascending`."""
    for parameter in operation.in_place("query"):
        if parameter.name == "sort_by":
            schema = document.resolve(parameter.schema)
            modes = [mode for part in (schema, *schema.get("oneOf", ())) for mode in part.get("enum", ())]
            return paging.NAME_ASCENDING if paging.NAME_ASCENDING in modes else paging.ID_ASCENDING
    return paging.NAME_ASCENDING


async def _read(request: Request) -> bytes:
    """The body, up to one byte more than any operation takes, so that a larger one is refused without being kept."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= decode.MAXIMUM_BULK_WRITE_BYTES + 1:
            chunks.append(chunk)
        else:
            chunks = [b"\0" * (decode.MAXIMUM_BULK_WRITE_BYTES + 1)]
    return b"".join(chunks)


def _objects(path: dict[str, str], request: Request, raw: bytes) -> Iterator[str]:
    """The names and ids that a request is about: of its path, its query, and the body's fields that name something."""
    yield from path.values()
    for key, value in request.query_params.multi_items():
        if key not in {"limit", "page_token", "sort_by"}:
            yield value
    body: JSON = None
    with contextlib.suppress(errors.RackError):
        body = decode.parse_json(raw) if raw and len(raw) <= decode.MAXIMUM_BODY_BYTES else None
    if isinstance(body, dict):
        for key in ("name", "disk", "parent", "instance"):
            if isinstance(body.get(key), str):
                yield body[key][:64]


async def _send(send: Send, answer: _Answer) -> None:
    headers = [(key.lower().encode(), value.encode()) for key, value in answer.headers.items()]
    if answer.body:
        headers.append((b"content-type", b"application/json"))
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _hang_up(scope: Scope) -> None:
    hang_up = scope.get("extensions", {}).get(HANG_UP)
    if hang_up is None:
        raise HungUp("the rack has cut the connection")
    hang_up()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
