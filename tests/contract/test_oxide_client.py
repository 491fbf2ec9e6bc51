"""The Oxide client against the OpenAPI document, operation by operation, and against the simulated rack."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import pkgutil
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, TypeAdapter

import capox.oxide.operations
from capox.oxide import OxideClient, models
from capox.oxide.operation import Operation, Paged
from tests.contract import openapi
from tests.sim.loop import simulated

if TYPE_CHECKING:
    from collections.abc import Callable


def _operations() -> dict[str, Operation[Any]]:
    found = {}
    package = capox.oxide.operations
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Operation):
                found[value.operation_id] = value
    return found


OPERATIONS = _operations()

# What the document has and our models do not send, because nothing in use needs it.
NOT_SENT = {
    ("instance_create", "multicast_groups"),
    ("instance_update", "multicast_groups"),
}

# Query parameters that the document has and we do not send: these came after the version that we speak, 2026060800.0.0.
NEWER_THAN_OUR_VERSION = {("ip_pool_list", "ip_version"), ("ip_pool_list", "pool_type")}

every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def _success(operation: Operation[Any]) -> tuple[int, dict[str, Any] | None]:
    """Give the document's status of success and the schema of its answer."""
    responses = openapi.OPERATIONS[operation.operation_id]["responses"]
    ((status, response),) = [(status, response) for status, response in responses.items() if status.startswith("2")]
    return int(status), openapi.schema_of(response["content"]) if "content" in response else None


def _query(operation: Operation[Any]) -> dict[str, bool]:
    """Give the document's query parameters, and whether they are required."""
    parameters = openapi.OPERATIONS[operation.operation_id].get("parameters", [])
    return {each["name"]: each.get("required", False) for each in parameters if each["in"] == "query"}


def _body_schema(operation: Operation[Any]) -> dict[str, Any] | None:
    body = openapi.OPERATIONS[operation.operation_id].get("requestBody")
    return openapi.schema_of(body["content"]) if body is not None else None


def test_every_operation_has_its_method_and_every_method_its_operation() -> None:
    """The client's methods are the operations in use, under their own names; nothing else asks the rack."""
    methods = {
        name
        for name, _ in inspect.getmembers(OxideClient, inspect.isfunction)
        if not name.startswith("_") and name not in {"aclose", "call"}
    }

    assert methods == OPERATIONS.keys()
    assert OPERATIONS.keys() <= openapi.OPERATIONS.keys()


@every_operation
def test_an_operation_is_what_the_document_says(operation: Operation[Any]) -> None:
    """Verb, path, query, status of success, whether there is a body and an answer."""
    documented = openapi.OPERATIONS[operation.operation_id]
    status, answer = _success(operation)
    query = _query(operation)

    assert (operation.verb, operation.path) == (documented["verb"], documented["path"])
    assert operation.status == status
    assert (operation.answer is None) == (answer is None)
    assert (operation.body is None) == ("requestBody" not in documented)
    assert {name for name, required in query.items() if required} <= operation.query
    left_out = {(operation.operation_id, name) for name in query.keys() ^ operation.query}
    assert left_out <= NEWER_THAN_OUR_VERSION
    assert inspect.getdoc(getattr(OxideClient, operation.operation_id))


@every_operation
def test_a_paged_list_can_be_read_in_the_order_of_ids(operation: Operation[Any]) -> None:
    """Every list that has pages takes the order that nothing can change."""
    if "sort_by" not in operation.query:
        return
    parameters = openapi.OPERATIONS[operation.operation_id]["parameters"]
    (sort_by,) = [openapi.resolved(each["schema"]) for each in parameters if each["name"] == "sort_by"]
    modes = [mode for part in (sort_by, *sort_by.get("oneOf", ())) for mode in part.get("enum", ())]

    assert "id_ascending" in modes


@every_operation
def test_the_body_has_every_documented_field(operation: Operation[Any]) -> None:
    """Nothing is left out of a request's model, and nothing made up, save what is named above."""
    schema = _body_schema(operation)
    if schema is None or operation.body is None:
        return
    documented = openapi.resolved(schema)["properties"].keys()

    assert operation.body.model_fields.keys() <= documented
    left_out = {(operation.operation_id, field) for field in documented - operation.body.model_fields.keys()}
    assert left_out <= NOT_SENT


def _bodies(operation: Operation[Any]) -> st.SearchStrategy[dict[str, Any] | None]:
    """Draw bodies that the document allows, as far as our models send them."""
    schema, model = _body_schema(operation), operation.body
    if schema is None or model is None:
        return st.none()
    # Some fields are optional for the rack and must be said in our models.
    always = frozenset(name for name, field in model.model_fields.items() if field.is_required())
    drawn = openapi.values(schema, always=always)
    return drawn.map(lambda body: {key: value for key, value in body.items() if key in model.model_fields})


def _model(operation: Operation[Any], body: dict[str, Any]) -> models.WriteModel:
    assert operation.body is not None
    if "user_data" in body:
        body = {**body, "user_data": base64.b64decode(body["user_data"])}
    return operation.body.model_validate(body)


def _arguments(operation: Operation[Any], draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, Any]:
    """Draw a call's arguments by the names of its method's parameters."""
    reference = openapi.values({"$ref": "#/components/schemas/NameOrId"})
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(getattr(OxideClient, operation.operation_id)).parameters.items():
        match name:
            case "self" | "body":
                continue
            case "limit":
                drawn: Any = st.integers(1, 10_000)
            case "ip_version":
                drawn = st.sampled_from(models.IpVersion)
            case _:
                drawn = reference
        arguments[name] = draw(drawn if parameter.default is parameter.empty else st.none() | drawn)
    return {name: value for name, value in arguments.items() if value is not None}


class _Recorder(httpx.AsyncBaseTransport):
    """Answers with what it was given, later pages empty, and keeps the requests."""

    def __init__(self, status: int, answer: Any) -> None:
        self._status = status
        self._answer = answer
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        if self._answer is None:
            return httpx.Response(self._status)
        is_first = len(self.requests) == 1
        return httpx.Response(self._status, json=self._answer if is_first else {"items": [], "next_page": None})


def _differences(read: Any, sent: Any, place: str = "") -> list[str]:
    """Say where something that was read is not what was sent. Fields that were not read do not count."""
    match read, sent:
        case dict(), dict():
            return [
                difference
                for key, value in read.items()
                if not (value is None and key not in sent)
                for difference in _differences(value, sent.get(key), f"{place}.{key}")
            ]
        case list(), list() if len(read) == len(sent):
            pairs = enumerate(zip(read, sent, strict=True))
            return [each for at, (one, other) in pairs for each in _differences(one, other, f"{place}[{at}]")]
        case str(), str() if place.endswith(("_created", "_modified", "_updated", "_restarted", "_expiration")):
            times = TypeAdapter(models.Time)
            return [] if times.validate_python(read) == times.validate_python(sent) else [f"{place}: {read} != {sent}"]
        case _:
            return [] if read == sent else [f"{place}: {read!r} != {sent!r}"]


@every_operation
def test_a_call_is_sent_and_read_as_the_document_says(operation: Operation[Any]) -> None:
    """What the document allows in a request arrives as it was meant, and what it allows in an answer is read."""
    status, answer_schema = _success(operation)
    answers = openapi.values(answer_schema) if answer_schema is not None else st.none()

    @settings(max_examples=25, phases=[Phase.generate])
    @given(st.data(), _bodies(operation), answers)
    def check(data: st.DataObject, body: dict[str, Any] | None, answer: Any) -> None:
        @simulated
        async def call() -> None:
            """Call, and judge what was sent and read."""
            arguments = _arguments(operation, data.draw)
            transport = _Recorder(status, answer)
            async with OxideClient(host="rack", token=SecretStr("t"), transport=transport) as oxide:
                method = getattr(oxide, operation.operation_id)
                called = method(**arguments) if body is None else method(body=_model(operation, body), **arguments)
                read = await called.all() if isinstance(called, Paged) else await called

            _judge_request(operation, transport.requests[0], arguments, body)
            _judge_answer(operation, read, answer)

        call()

    check()


def _judge_request(
    operation: Operation[Any], request: httpx.Request, arguments: dict[str, Any], body: dict[str, Any] | None
) -> None:
    documented = openapi.OPERATIONS[operation.operation_id]
    template = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", documented["path"])
    path = re.fullmatch(template, request.url.path)
    assert path is not None
    assert request.method == documented["verb"]
    query = dict(request.url.params)
    assert query.keys() <= _query(operation).keys()
    assert {name for name, required in _query(operation).items() if required} <= query.keys()
    sent = {**path.groupdict(), **query}
    assert {name: sent.get(name) for name in arguments} == {name: str(value) for name, value in arguments.items()}
    if body is None:
        assert request.content == b""
        return
    wire = json.loads(request.content)
    schema = _body_schema(operation)
    assert schema is not None
    assert openapi.complaints(schema, wire) == []
    assert _differences(body, wire) == []


def _judge_answer(operation: Operation[Any], read: Any, answer: Any) -> None:
    _, schema = _success(operation)
    if schema is None:
        assert read is None
        return
    assert openapi.complaints(schema, answer) == [], "the test's own answer is wrong"
    if isinstance(read, list):
        read, answer = {"items": read}, {"items": answer["items"]}
    assert _differences(TypeAdapter(Any).dump_python(read, mode="json"), answer) == []
