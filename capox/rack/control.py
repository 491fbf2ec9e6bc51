"""The control endpoint: what an operator, a test or misfortune does to a rack, and what can be seen of it from behind.

It is an application of its own, to be served on a port of its own and with a token of its own, so that nothing under
test can reach it by the API's credentials. docs/reference/rack-control.md describes it for its users.
"""

from __future__ import annotations

import base64
import collections
import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import pydantic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from capox.rack import instance_states, inventory, names, pace, records
from capox.rack.app import RackApp
from capox.rack.clock import CommandedClock
from capox.rack.faults import ActiveRule, FaultRule
from capox.rack.json import JSON, encode

MAXIMUM_BODY_BYTES = 64 * 1024
LONGEST_ADVANCE_SECONDS = 366 * 86_400

B = TypeVar("B", bound=pydantic.BaseModel)


class Refused(Exception):
    """A command that is not carried out.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Command(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Nothing(_Command):
    """The body of a command that needs no words."""


class _Advance(_Command):
    seconds: Annotated[float, pydantic.Field(ge=0, le=LONGEST_ADVANCE_SECONDS)]


class _Settle(_Command):
    within_seconds: Annotated[float, pydantic.Field(ge=0, le=LONGEST_ADVANCE_SECONDS)] = 3600.0


class _Restore(_Command):
    rebooted: bool = False


class _Version(_Command):
    api_version: Annotated[str, pydantic.Field(pattern=r"^[0-9]{10}\.[0-9]{1,9}\.[0-9]{1,9}$")]


class Control:
    """The commands, on one rack.

    Args:
        app: the application whose rack is commanded.
    """

    def __init__(self, app: RackApp) -> None:
        self._app = app
        self._rack = app.rack

    async def time(self, request: Request) -> JSON:
        """`GET /time`."""
        del request
        return self._time()

    async def advance(self, request: Request) -> JSON:
        """`POST /time/advance`: let time pass."""
        command = await _body(request, _Advance)
        await pace.advance(self._rack, command.seconds)
        return self._time()

    async def settle(self, request: Request) -> JSON:
        """`POST /time/settle`: let time pass until nothing waits for it."""
        command = await _body(request, _Settle)
        if not await pace.finish_all(self._rack, command.within_seconds):
            raise Refused(
                HTTPStatus.CONFLICT,
                f"not everything came to its end within {command.within_seconds} seconds; still waiting: "
                f"{len(self._rack.agenda)} acts. Give a larger within_seconds, or look at GET /time",
            )
        return self._time()

    async def faults(self, request: Request) -> JSON:
        """`GET /faults`."""
        del request
        return {"items": [_fault(active) for active in self._app.faults.rules]}

    async def add_fault(self, request: Request) -> JSON:
        """`POST /faults`: put a rule to work."""
        return _fault(self._app.faults.add(await _body(request, FaultRule)))

    async def remove_fault(self, request: Request) -> JSON:
        """`DELETE /faults/{fault}`."""
        identity = request.path_params["fault"]
        if not self._app.faults.remove(identity):
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no fault {identity}; GET /faults lists them")

    async def clear_faults(self, request: Request) -> JSON:
        """`DELETE /faults`: take all rules out."""
        del request
        self._app.faults.clear()

    async def fail_instance(self, request: Request) -> JSON:
        """`POST /instances/{instance}/fail`: the rack finds now that the VMM is gone."""
        await _body(request, _Nothing)
        return self._on_instance(request, instance_states.fail)

    async def crash_guest(self, request: Request) -> JSON:
        """`POST /instances/{instance}/crash`: the VMM is gone, and the rack notices later."""
        await _body(request, _Nothing)
        return self._on_instance(request, instance_states.crash_guest)

    async def power_off_guest(self, request: Request) -> JSON:
        """`POST /instances/{instance}/power-off`: the guest powers itself off."""
        await _body(request, _Nothing)
        return self._on_instance(request, instance_states.power_off_guest)

    async def user_data(self, request: Request) -> JSON:
        """`POST /instances/{instance}/user-data`: hand out the user data of one instance; the call log tells of it."""
        await _body(request, _Nothing)
        instance = self._instance(request)
        entry = self._app.log.begin(
            time=self._rack.now(), request_id=self._rack.new_id(), method="POST", path=request.url.path, query=""
        )
        entry.operation, entry.objects = "control_user_data", (instance.name, instance.id)
        entry.status, entry.seconds = HTTPStatus.OK, 0.0
        return {"user_data": base64.b64encode(instance.user_data).decode(), **inventory.digest(instance.user_data)}

    async def sleds(self, request: Request) -> JSON:
        """`GET /sleds`."""
        del request
        return {"items": inventory.dump_sleds(self._rack)}

    async def lose_sled(self, request: Request) -> JSON:
        """`POST /sleds/{sled}/lose`: it does not answer any more."""
        await _body(request, _Nothing)
        sled = self._sled(request)
        instance_states.lose_sled(self._rack, sled)
        return inventory.record(sled)

    async def restore_sled(self, request: Request) -> JSON:
        """`POST /sleds/{sled}/restore`: it answers again, with its instances or without them."""
        command = await _body(request, _Restore)
        sled = self._sled(request)
        _act(lambda: instance_states.restore_sled(self._rack, sled, rebooted=command.rebooted))
        return inventory.record(sled)

    async def expunge_sled(self, request: Request) -> JSON:
        """`POST /sleds/{sled}/expunge`: it never comes back."""
        await _body(request, _Nothing)
        sled = self._sled(request)
        _act(lambda: instance_states.expunge_sled(self._rack, sled))
        return inventory.record(sled)

    async def version(self, request: Request) -> JSON:
        """`GET /version`."""
        del request
        return {"api_version": self._rack.latest_version, "document": self._rack.document.version}

    async def set_version(self, request: Request) -> JSON:
        """`PUT /version`: be an older or a newer rack from now on."""
        self._rack.latest_version = (await _body(request, _Version)).api_version
        return await self.version(request)

    async def inventory(self, request: Request) -> JSON:
        """`GET /inventory`."""
        del request
        return inventory.dump(self._rack)

    async def calls(self, request: Request) -> JSON:
        """`GET /calls`: the log, from behind a number on."""
        after, limit = _number(request, "after", 0), _number(request, "limit", 10_000)
        found = self._app.log.entries(after)[:limit]
        return {"items": [entry.dump() for entry in found], "last": found[-1].number if found else after}

    async def count_calls(self, request: Request) -> JSON:
        """`GET /calls/counts`: how often each operation was called, by status; `none` stands for no answer."""
        found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for entry in self._app.log.entries(_number(request, "after", 0)):
            found[entry.operation or "none"][str(entry.status or "none")] += 1
        return {operation: dict(sorted(counts.items())) for operation, counts in sorted(found.items())}

    async def clear_calls(self, request: Request) -> JSON:
        """`DELETE /calls`: forget the log; numbers go on."""
        del request
        self._app.log.clear()

    async def violations(self, request: Request) -> JSON:
        """`GET /violations`: where the rack itself left its document, which it should never do."""
        del request
        return {"items": list(self._app.violations)}

    def routes(self) -> list[Route]:
        """The commands by method and path."""
        commands: list[tuple[str, str, Callable[[Request], Awaitable[JSON]]]] = [
            ("GET", "/time", self.time),
            ("POST", "/time/advance", self.advance),
            ("POST", "/time/settle", self.settle),
            ("GET", "/faults", self.faults),
            ("POST", "/faults", self.add_fault),
            ("DELETE", "/faults", self.clear_faults),
            ("DELETE", "/faults/{fault}", self.remove_fault),
            ("POST", "/instances/{instance}/fail", self.fail_instance),
            ("POST", "/instances/{instance}/crash", self.crash_guest),
            ("POST", "/instances/{instance}/power-off", self.power_off_guest),
            ("POST", "/instances/{instance}/user-data", self.user_data),
            ("GET", "/sleds", self.sleds),
            ("POST", "/sleds/{sled}/lose", self.lose_sled),
            ("POST", "/sleds/{sled}/restore", self.restore_sled),
            ("POST", "/sleds/{sled}/expunge", self.expunge_sled),
            ("GET", "/version", self.version),
            ("PUT", "/version", self.set_version),
            ("GET", "/inventory", self.inventory),
            ("GET", "/calls", self.calls),
            ("GET", "/calls/counts", self.count_calls),
            ("DELETE", "/calls", self.clear_calls),
            ("GET", "/violations", self.violations),
        ]
        return [Route(path, self._endpoint(command), methods=[method]) for method, path, command in commands]

    def _endpoint(self, command: Callable[[Request], Awaitable[JSON]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self._rack.settle()
            result = await command(request)
            if result is None:
                return Response(status_code=HTTPStatus.NO_CONTENT)
            status = HTTPStatus.CREATED if command == self.add_fault else HTTPStatus.OK
            return _json(status, result)

        return answer

    def _time(self) -> JSON:
        due = self._rack.agenda.next_due()
        return {
            "now": self._rack.now().isoformat(),
            "mode": "commanded" if isinstance(self._rack.clock, CommandedClock) else "auto",
            "waiting": len(self._rack.agenda),
            "next_due": due.isoformat() if due is not None else None,
        }

    def _on_instance(self, request: Request, act: Callable[[Any, records.Instance], None]) -> JSON:
        instance = self._instance(request)
        _act(lambda: act(self._rack, instance))
        return inventory.instance(self._rack, instance)

    def _instance(self, request: Request) -> records.Instance:
        """The instance of an id, or of a name that no two projects share."""
        reference = request.path_params["instance"]
        if names.is_uuid(reference):
            by_id = self._rack.instances.by_id(names.parse_uuid(reference))
            found = [] if by_id is None else [by_id]
        else:
            named = (self._rack.instances.by_name(project.id, reference) for project in self._rack.projects)
            found = [instance for instance in named if instance is not None]
        if len(found) > 1:
            ids = ", ".join(instance.id for instance in found)
            raise Refused(
                HTTPStatus.CONFLICT, f"{len(found)} projects have an instance {reference}; give its id: {ids}"
            )
        if not found:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no instance {reference} in any project")
        return found[0]

    def _sled(self, request: Request) -> records.Sled:
        reference = request.path_params["sled"]
        for sled in self._rack.sleds.values():
            if reference in {sled.id, sled.name}:
                return sled
        known = ", ".join(sorted(sled.name for sled in self._rack.sleds.values()))
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no sled {reference}; there are: {known or 'none'}")


def build_control(app: RackApp, token: str) -> ASGIApp:
    """The control endpoint of an application, open to those who bear the token."""
    handlers: Any = {Refused: _on_refused, HTTPException: _on_http_exception}
    return _Guarded(Starlette(routes=Control(app).routes(), exception_handlers=handlers), token)


class _Guarded:
    """Lets only requests through that bear the token."""

    def __init__(self, inner: ASGIApp, token: str) -> None:
        self._inner = inner
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                message = "the control endpoint asks for its own token: Authorization: Bearer <control token>"
                await _json(HTTPStatus.UNAUTHORIZED, {"error": message})(scope, receive, send)
                return
        await self._inner(scope, receive, send)


async def _body(request: Request, model: type[B]) -> B:
    """The command in a request's body; an empty one stands for the defaults.

    Raises:
        Refused: 400, it is not JSON or not this command.
    """
    raw = await request.body()
    if len(raw) > MAXIMUM_BODY_BYTES:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body has {len(raw)} bytes; at most {MAXIMUM_BODY_BYTES}")
    try:
        return model.model_validate_json(raw or b"{}")
    except pydantic.ValidationError as error:
        complaints = [
            f"{'.'.join(map(str, detail['loc'])) or 'body'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        known = ", ".join(model.model_fields) or "none"
        raise Refused(HTTPStatus.BAD_REQUEST, f"{'; '.join(complaints)} (fields: {known})") from None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name}: a whole number of at least 0 is needed")
    return int(text)


def _act(act: Callable[[], None]) -> None:
    """Do something to the rack that its state may not allow.

    Raises:
        Refused: 409, with the reason.
    """
    try:
        act()
    except ValueError as error:
        raise Refused(HTTPStatus.CONFLICT, str(error)) from None


def _fault(active: ActiveRule) -> JSON:
    return {"id": active.id, "hits": active.hits, **active.rule.model_dump()}


def _json(status: int, value: JSON) -> Response:
    return Response(encode(value), status_code=status, media_type="application/json")


async def _on_refused(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Refused)
    return _json(error.status, {"error": str(error)})


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = "see docs/reference/rack-control.md for the commands"
    return _json(error.status_code, {"error": f"{request.method} {request.url.path}: {error.detail}; {known}"})
