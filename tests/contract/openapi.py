"""The rack's OpenAPI document as a judge: validators of its schemas, and values that they allow.

It is read here anew, from the document itself, so that client and rack are judged by one text and not by each other.
"""

from __future__ import annotations

import base64
import datetime
import functools
import ipaddress
import json
import re
import string
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from hypothesis import strategies as st

import capox

_FILE: Final = Path(capox.__file__).parent / "rack" / "openapi" / "nexus-2026081901.0.0.json"

DOCUMENT: Final[dict[str, Any]] = json.loads(_FILE.read_text())

OPERATIONS: Final[dict[str, dict[str, Any]]] = {
    operation["operationId"]: {**operation, "verb": verb.upper(), "path": path}
    for path, verbs in DOCUMENT["paths"].items()
    for verb, operation in verbs.items()
    if verb != "parameters"
}
"""Every operation by its id, with its verb and path."""

_NAMES: Final = st.builds(
    lambda first, rest, last: first + rest + last,
    st.sampled_from(string.ascii_lowercase),
    st.text(string.ascii_lowercase + string.digits + "-", max_size=20),
    st.sampled_from(string.ascii_lowercase + string.digits),
).filter(lambda name: not re.fullmatch(r"[0-9a-f]{32}", name.replace("-", "")))
_UUIDS: Final = st.uuids().map(str)
_IPV4: Final = st.ip_addresses(v=4).map(str)
_IPV6: Final = st.ip_addresses(v=6).filter(lambda ip: not getattr(ip, "ipv4_mapped", None)).map(str)
_IPV4_NETS: Final = st.builds("{}/{}".format, _IPV4, st.integers(0, 32))
# The document's pattern does not know the form `::1.2.3.4` and others; the usual ones will do.
_IPV6_NETS: Final = st.builds(
    lambda first, size: f"{ipaddress.ip_address((0xFD00 << 112) + (first << 64))}/{size}",
    st.integers(1, 2**32),
    st.integers(0, 128),
)

_BY_SCHEMA: Final[dict[str, st.SearchStrategy[Any]]] = {
    # Where a rack is stricter than the document says (semantics 2.1).
    "Name": _NAMES,
    "NameOrId": st.one_of(_UUIDS, _NAMES),
    "Hostname": st.lists(_NAMES.map(lambda name: name[:20].rstrip("-")), min_size=1, max_size=3).map(".".join),
    "ByteCount": st.integers(0, 2**63 - 1),
    "L4PortRange": st.integers(1, 65535).map(str),
    "IcmpParamRange": st.integers(0, 255).map(str),
    "Ipv4Net": _IPV4_NETS,
    "Ipv6Net": _IPV6_NETS,
    "IpNet": st.one_of(_IPV4_NETS, _IPV6_NETS),
    "MacAddr": st.just("a8:40:25:f0:00:01"),
}

_BY_FORMAT: Final[dict[str, st.SearchStrategy[Any]]] = {
    "uuid": _UUIDS,
    "date-time": st.integers(0, 4 * 10**9).map(
        lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
    ),
    "ip": st.one_of(_IPV4, _IPV6),
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "byte": st.binary(max_size=64).map(lambda data: base64.b64encode(data).decode()),
}

_WIDTHS: Final = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1}


def schema_of(content: dict[str, Any]) -> dict[str, Any]:
    """Give the schema of a JSON body."""
    schema: dict[str, Any] = content["application/json"]["schema"]
    return schema


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, if it is one."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _json_schema(schema: Any) -> Any:
    """Turn OpenAPI 3.0 into JSON Schema: what may be null says so in the latter's words."""
    if isinstance(schema, list):
        return [_json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _json_schema(value) for key, value in schema.items() if key not in {"nullable", "example", "default"}}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


@functools.cache
def _components() -> Any:
    return _json_schema(DOCUMENT["components"])


@functools.cache
def _validator(reference: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": reference, "components": _components()}, validate_formats=True)


def complaints(schema: dict[str, Any], value: Any) -> list[str]:
    """Say what the document does not allow in a value; the schema is a reference, as all bodies and answers are."""
    found = _validator(schema["$ref"]).iter_errors(value)
    return [f"{list(error.instance_path)}: {error.message}" for error in found]


def values(schema: dict[str, Any], *, always: frozenset[str] = frozenset()) -> st.SearchStrategy[Any]:
    """Draw values that a schema allows.

    Args:
        schema: A schema of the document.
        always: Properties of the outermost object that are never left out, besides the required ones.
    """
    if schema.get("nullable") is True:
        rest = {key: value for key, value in schema.items() if key != "nullable"}
        return st.one_of(st.none(), values(rest))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _BY_SCHEMA[name] if name in _BY_SCHEMA else values(resolved(schema), always=always)
    if "oneOf" in schema:
        return st.one_of([values(each) for each in schema["oneOf"]])
    if "allOf" in schema:
        (only,) = schema["allOf"]
        return values(only)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    known = schema.get("format", "") in _BY_FORMAT
    return _BY_FORMAT[schema["format"]] if known else _of_type(schema, always)


def _of_type(schema: dict[str, Any], always: frozenset[str]) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "object":
            parts = {key: values(each) for key, each in schema.get("properties", {}).items()}
            needed = (set(schema.get("required", ())) | always) & parts.keys()
            return st.fixed_dictionaries(
                {key: part for key, part in parts.items() if key in needed},
                optional={key: part for key, part in parts.items() if key not in needed},
            )
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "integer":
            return st.integers(schema.get("minimum", 0), _WIDTHS.get(schema.get("format", ""), 2**63 - 1))
        case "boolean":
            return st.booleans()
        case "string":
            return st.text(max_size=40)
        case other:
            raise AssertionError(f"the document has a {other}, which no test has needed yet")
