"""Oxide's OpenAPI document, read once: the operations, their parameters, and validators for what goes in and out.

The document is the contract. Requests are decoded by it (see `decode`), and every answer is checked against it before
it leaves the rack, so the
rack cannot say what a real one could not.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import Any, TypeVar

import jsonschema_rs

from capox.rack import names
from capox.rack.json import JSON

T = TypeVar("T")

DOCUMENT = "nexus-2026081901.0.0.json"

_INTEGER_BOUNDS = {
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "uint": (0, 2**64 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

# What a request must hold beyond the document, because a rack's own parser is stricter. The formats are defined in
# `names`.
_STRICTER_IN_REQUESTS: dict[str, JSON] = {
    "Name": {"type": "string", "format": "oxide-name"},
    "NameOrId": {"type": "string", "format": "oxide-name-or-id"},
    "Hostname": {"type": "string", "format": "oxide-hostname"},
    "ByteCount": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "L4PortRange": {"type": "string", "format": "oxide-port-range"},
    "Ipv4Net": {"type": "string", "format": "oxide-ipv4-net"},
    "Ipv6Net": {"type": "string", "format": "oxide-ipv6-net"},
    "IpNet": {"type": "string", "format": "oxide-ip-net"},
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of the path or the query.

    Attributes:
        name: as the document spells it.
        place: `path` or `query`.
        schema: its schema, still with references.
        required: whether the request is refused without it.
    """

    name: str
    place: str
    schema: JSON
    required: bool


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of the API.

    Attributes:
        id: the operationId.
        method: the HTTP method, upper case.
        path: the path template, such as `/v1/instances/{instance}`.
        parameters: of path and query.
        request_schema: the schema of the JSON body; None when there is no body or it is not JSON.
        takes_body: whether the operation has a body at all.
        success_status: the status of a successful answer.
        answer_schema: the schema of its body; None when it has none.
        required_on_first_page: query parameters without which a list is refused unless it is continued by a page token.
    """

    id: str
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    request_schema: JSON | None
    takes_body: bool
    success_status: int
    answer_schema: JSON | None
    required_on_first_page: frozenset[str]

    def in_place(self, place: str) -> tuple[Parameter, ...]:
        """The parameters of the path or of the query."""
        return tuple(parameter for parameter in self.parameters if parameter.place == place)


class Document:
    """The document and what is compiled from it.

    Args:
        text: the OpenAPI document.
    """

    def __init__(self, text: JSON) -> None:
        self.version: str = text["info"]["version"]
        self.schemas: dict[str, JSON] = text["components"]["schemas"]
        self.operations = {
            operation.id: operation
            for path, methods in text["paths"].items()
            for method, raw in methods.items()
            if (operation := _operation(path, method, raw)) is not None
        }
        self._routes = _Routes(self.operations.values())
        self._plain = {name: _json_schema(schema) for name, schema in self.schemas.items()}
        counted_later = {name: _without_counts(schema) for name, schema in self._plain.items()}
        self._strict = counted_later | _STRICTER_IN_REQUESTS
        self._derived: dict[tuple[str, int], tuple[JSON, Any]] = {}

    def route(self, path: str) -> tuple[dict[str, Operation], dict[str, str]]:
        """The operations at a path by method, and the values of the path's variables; both empty when there is none."""
        return self._routes.match(path)

    def request_validator(self, schema: JSON) -> jsonschema_rs.Validator:
        """A validator for what comes in."""
        return self.derived("request validator", schema, lambda found: self._compile(self._strict, found))

    def answer_validator(self, schema: JSON) -> jsonschema_rs.Validator:
        """A validator for what goes out."""
        return self.derived("answer validator", schema, lambda found: self._compile(self._plain, found))

    def resolve(self, schema: JSON) -> JSON:
        """Follow references and single-member `allOf`s to the schema that says something."""
        while True:
            if "$ref" in schema:
                schema = self.schemas[_referent(schema)]
            elif len(schema.get("allOf", ())) == 1:
                schema = schema["allOf"][0]
            else:
                return schema

    def derived(self, what: str, schema: JSON, derive: Callable[[JSON], T]) -> T:
        """What follows from a part of the document, worked out once.

        Args:
            what: what kind of thing it is.
            schema: the very part of the document, since its identity is what is remembered.
            derive: works it out.
        """
        key = (what, id(schema))
        known = self._derived.get(key)
        if known is None:
            # The part is kept beside the result, so that nothing else can come to have its identity.
            known = self._derived[key] = schema, derive(schema)
        found: T = known[1]
        return found

    def _compile(self, components: dict[str, JSON], schema: JSON) -> jsonschema_rs.Validator:
        root = {**_json_schema(schema), "components": {"schemas": _reachable(components, schema)}}
        return jsonschema_rs.Draft202012Validator(root, validate_formats=True, formats=names.FORMATS, offline=True)


@functools.cache
def load() -> Document:
    """The document that this rack speaks."""
    return Document(json.loads(resources.files("capox.rack.openapi").joinpath(DOCUMENT).read_text()))


class _Routes:
    """A tree of path segments; a variable matches any one segment, and a literal wins over it."""

    def __init__(self, operations: Any) -> None:
        self._root: dict[str, Any] = {}
        for operation in operations:
            node = self._root
            for segment in operation.path.strip("/").split("/"):
                node = node.setdefault("{}" if segment.startswith("{") else segment, {})
            node.setdefault("", {})[operation.method] = operation

    def match(self, path: str) -> tuple[dict[str, Operation], dict[str, str]]:
        segments = path.strip("/").split("/")
        found = self._descend(self._root, segments)
        if not found:
            return {}, {}
        template = next(iter(found.values())).path.strip("/").split("/")
        pairs = zip(template, segments, strict=True)
        return found, {name[1:-1]: value for name, value in pairs if name.startswith("{")}

    def _descend(self, node: dict[str, Any], segments: list[str]) -> dict[str, Operation]:
        if not segments:
            found: dict[str, Operation] = node.get("", {})
            return found
        first, rest = segments[0], segments[1:]
        if first == "":
            return {}
        for key in (first, "{}"):
            if key in node and (found := self._descend(node[key], rest)):
                return found
        return {}


def _operation(path: str, method: str, raw: JSON) -> Operation | None:
    if "operationId" not in raw:
        return None
    body = raw.get("requestBody", {}).get("content", {})
    answers: dict[str, JSON] = {status: answer for status, answer in raw["responses"].items() if status.isdigit()}
    status = min(answers, default="200")
    answer = answers.get(status, {})
    return Operation(
        id=raw["operationId"],
        method=method.upper(),
        path=path,
        parameters=tuple(
            Parameter(p["name"], p["in"], p["schema"], p.get("required", False)) for p in raw.get("parameters", ())
        ),
        request_schema=body.get("application/json", {}).get("schema"),
        takes_body=bool(body),
        success_status=int(status),
        answer_schema=answer.get("content", {}).get("application/json", {}).get("schema"),
        required_on_first_page=frozenset(raw.get("x-dropshot-pagination", {}).get("required", ())),
    )


def _json_schema(schema: JSON) -> JSON:
    """An OpenAPI 3.0 schema as JSON Schema: `nullable` and the integer formats become assertions."""
    if isinstance(schema, list):
        return [_json_schema(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {
        key: {name: _json_schema(member) for name, member in value.items()}
        if key == "properties"
        else _json_schema(value)
        for key, value in schema.items()
        if key not in {"nullable", "description", "title", "example", "default", "discriminator"}
    }
    if out.get("type") == "integer" and out.get("format") in _INTEGER_BOUNDS:
        minimum, maximum = _INTEGER_BOUNDS[out["format"]]
        out["minimum"] = max(minimum, out.get("minimum", minimum))
        out["maximum"] = min(maximum, out.get("maximum", maximum))
    if schema.get("nullable") is True:
        return {"anyOf": [{"type": "null"}, out]}
    return out


def _without_counts(schema: JSON) -> JSON:
    """A schema without upper limits on the length of lists, which a rack checks after parsing, in words of its own."""
    if isinstance(schema, list):
        return [_without_counts(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_counts(member) for key, member in schema.items() if key != "maxItems"}


def _referent(schema: JSON) -> str:
    name: str = schema["$ref"].removeprefix("#/components/schemas/")
    return name


def _reachable(components: dict[str, JSON], schema: JSON) -> dict[str, JSON]:
    """The components that a schema refers to, directly or not, so that a validator compiles no more than it needs."""
    found: dict[str, JSON] = {}
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "$ref" in node and (name := _referent(node)) not in found:
                found[name] = components[name]
                waiting.append(components[name])
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found
