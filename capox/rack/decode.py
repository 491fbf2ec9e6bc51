"""From the bytes of a request to values that fit the OpenAPI document.

The complaints are those of a real rack's parsers (semantics 1.3, 2.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import jsonschema_rs

from capox.rack import errors, names
from capox.rack.document import Document, Operation, Parameter
from capox.rack.json import JSON

MAXIMUM_BODY_BYTES = 1024 * 1024
MAXIMUM_BULK_WRITE_BYTES = 8 * 1024 * 1024

# Of a number in a query: more than any has that fits.
MAXIMUM_DIGITS = 20

_BODY = "unable to parse JSON body: "
_QUERY = "unable to parse query string: "


def path(document: Document, operation: Operation, raw: dict[str, str]) -> dict[str, str]:
    """The path's variables, checked.

    Raises:
        FrameworkError: one of them is neither a name nor an id, or not a UUID where one is asked for.
    """
    for parameter in operation.in_place("path"):
        if not document.request_validator(parameter.schema).is_valid(raw[parameter.name]):
            is_uuid = document.resolve(parameter.schema).get("format") == "uuid"
            complaint = "UUID parsing failed" if is_uuid else names.NAME_OR_ID_COMPLAINT
            raise errors.bad_request(f"bad parameter in URL path: {complaint}")
    return {name: names.parse_uuid(value) if names.is_uuid(value) else value for name, value in raw.items()}


def query(document: Document, operation: Operation, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The query's parameters that the operation knows, checked and converted; others are ignored.

    Raises:
        FrameworkError: one is missing, given twice, or not of its type.
    """
    known = {parameter.name: parameter for parameter in operation.in_place("query")}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            continue
        if name in values:
            raise errors.bad_request(f"{_QUERY}duplicate field `{name}`")
        values[name] = _query_value(document, known[name], text)
    missing = {name for name, parameter in known.items() if parameter.required}
    if "page_token" not in values:
        missing |= operation.required_on_first_page
    for name in sorted(missing - values.keys()):
        raise errors.bad_request(f"{_QUERY}missing field `{name}`")
    return values


def body(
    document: Document,
    operation: Operation,
    content_type: str | None,
    raw: bytes,
    translate: Callable[[JSON], JSON] = lambda value: value,
) -> JSON:
    """The JSON body, checked, with the document's defaults filled in.

    Args:
        document: what it is checked against.
        operation: whose body it is.
        content_type: the header; absent, JSON is assumed.
        raw: the bytes.
        translate: turns the form of an older version of the API into today's.

    Raises:
        FrameworkError: it is too large, of another content type, not JSON, or does not fit the schema.
    """
    bulk = operation.id == "disk_bulk_write_import"
    maximum_bytes = MAXIMUM_BULK_WRITE_BYTES if bulk else MAXIMUM_BODY_BYTES
    if len(raw) > maximum_bytes:
        raise errors.bad_request(f"request body exceeded maximum size of {maximum_bytes} bytes")
    if operation.request_schema is None:
        return None
    mime = (content_type or "application/json").split(";")[0].strip().lower()
    if mime != "application/json":
        raise errors.bad_request(f'expected content type "application/json", got "{mime}"')
    value = translate(parse_json(raw))
    complaint = body_complaint(document, operation.request_schema, value)
    if complaint is not None:
        raise errors.bad_request(f"{_BODY}{complaint} at line 1 column {len(raw)}")
    return fill_defaults(document, operation.request_schema, value)


def body_complaint(document: Document, schema: JSON, value: JSON) -> str | None:
    """The first thing in a body that does not fit, after the path of its field; None when everything fits."""
    found = _misfit(document, schema, value)
    if found is None:
        return None
    where, complaint = found
    path_text = ".".join(f"[{part}]" if isinstance(part, int) else part for part in where).replace(".[", "[")
    return f"{path_text}: {complaint}" if path_text else complaint


def fill_defaults(document: Document, schema: JSON, value: JSON) -> JSON:
    """The value with every absent property that has a default in the document; nullable properties become null."""
    if not isinstance(value, dict | list):
        return value
    schema = document.resolve(schema)
    if isinstance(value, list):
        return [fill_defaults(document, schema["items"], item) for item in value] if "items" in schema else value
    for variants in ("oneOf", "anyOf"):
        if variants in schema:
            chosen = _variant_for(document, schema[variants], value)
            return fill_defaults(document, chosen, value) if chosen is not None else value
    filled = document.derived("defaults", schema, _defaults) | value
    properties = schema.get("properties", {})
    for name, member in value.items():
        if isinstance(member, dict | list) and name in properties:
            filled[name] = fill_defaults(document, properties[name], member)
    return filled


def _defaults(schema: JSON) -> dict[str, JSON]:
    """What the properties of an object are when they are absent."""
    return {
        name: member.get("default")
        for name, member in schema.get("properties", {}).items()
        if "default" in member or member.get("nullable") is True
    }


def parse_json(raw: bytes) -> JSON:
    """The JSON value in these bytes.

    Raises:
        FrameworkError: there is none, or one that JSON proper does not know (`NaN`).
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\u" in raw:
            # Half of a surrogate pair is no text: it could be stored, and no answer could be written with it.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise errors.bad_request(f"{_BODY}{error.msg} at line {error.lineno} column {error.colno}") from None
    except (UnicodeError, RecursionError, ValueError):
        raise errors.bad_request(f"{_BODY}expected value at line 1 column 1") from None
    return value


def _query_value(document: Document, parameter: Parameter, text: str) -> Any:
    schema = document.resolve(parameter.schema)
    value: Any = text
    if schema.get("type") == "integer":
        if not (text.isascii() and text.isdigit()) or len(text) > MAXIMUM_DIGITS:
            raise errors.bad_request(f"{_QUERY}{parameter.name}: invalid digit found in string")
        value = int(text)
    elif schema.get("type") == "boolean":
        if text not in {"true", "false"}:
            raise errors.bad_request(f"{_QUERY}{parameter.name}: provided string was not `true` or `false`")
        value = text == "true"
    error = next(document.request_validator(parameter.schema).iter_errors(value), None)
    if error is not None:
        raise errors.bad_request(f"{_QUERY}{parameter.name}: {_complaint(error)}")
    return names.parse_uuid(value) if isinstance(value, str) and names.is_uuid(value) else value


def _misfit(document: Document, schema: JSON, value: JSON) -> tuple[list[str | int], str] | None:
    """Where a value does not fit, and why. Within a tagged union the variant that the tag names is looked into."""
    validator = document.request_validator(schema)
    # Most bodies fit, and to see that is quicker than to look for what does not.
    error = None if validator.is_valid(value) else next(validator.iter_errors(value), None)
    if error is None:
        return _broken_number(document, schema, value)
    where = list(error.instance_path)
    if error.kind.name in {"oneOf", "anyOf"}:
        variant = _tagged_variant(document, schema, value, where)
        if variant is not None and (inner := _misfit(document, *variant)) is not None:
            return where + inner[0], inner[1]
    return where, _complaint(error)


def _broken_number(document: Document, schema: JSON, value: JSON) -> tuple[list[str | int], str] | None:
    """Where an integer is asked for and a number with a fraction or an exponent was written, be the fraction 0.

    To JSON Schema `2.0` is an integer, to a rack's parser it is not.
    """
    if not isinstance(value, dict | list | float):
        return None
    schema = document.resolve(schema)
    if isinstance(value, float):
        is_asked_for = schema.get("type") == "integer"
        return ([], f"invalid type: {_serde_type(value)}, expected integer") if is_asked_for else None
    if isinstance(value, list):
        members: Iterable[tuple[str | int, JSON, JSON]] = (
            (at, schema.get("items", {}), each) for at, each in enumerate(value)
        )
    else:
        schema = _variant_for(document, schema.get("oneOf", schema.get("anyOf", ())), value) or schema
        properties = document.resolve(schema).get("properties", {})
        members = ((name, properties[name], member) for name, member in value.items() if name in properties)
    for part, member_schema, member in members:
        found = _broken_number(document, member_schema, member)
        if found is not None:
            return [part, *found[0]], found[1]
    return None


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def _complaint(error: jsonschema_rs.ValidationError) -> str:
    kind: Any = error.kind
    value = error.instance
    match kind.name:
        case "required":
            return f"missing field `{kind.property}`"
        case "format":
            check = names.COMPLAINTS.get(kind.format)
            complaint = check(value) if check is not None and isinstance(value, str) else None
            return complaint or f"invalid {kind.format}"
        case "type":
            return f"invalid type: {_serde_type(value)}, expected {_expected(kind)}"
        case "enum" if isinstance(value, int):
            # The document's only enumeration of numbers.
            return f"invalid block size {value}"
        case "enum":
            return f"unknown variant {json.dumps(value)}"
        case "minimum" | "maximum":
            return f"invalid value: integer `{value}`"
        case _:
            # The value itself is never repeated: it may be user data.
            return (
                "data did not match any variant of untagged enum"
                if "Of" in kind.name
                else f"invalid value ({kind.name})"
            )


def _expected(kind: Any) -> str:
    types = getattr(kind, "types", None)
    return ", ".join(types) if types else "another type"


def _serde_type(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return "string"
    return "sequence" if isinstance(value, list) else "map"


def _tagged_variant(document: Document, schema: JSON, value: JSON, where: list[str | int]) -> tuple[JSON, JSON] | None:
    """The variant that a value's tag names, and the value, at a place in the body."""
    schema = document.resolve(schema)
    if not where:
        chosen = _variant_for(document, schema.get("oneOf", ()), value) if isinstance(value, dict) else None
        return None if chosen is None else (chosen, value)
    part, rest = where[0], where[1:]
    if "oneOf" in schema and isinstance(value, dict):
        chosen = _variant_for(document, schema["oneOf"], value)
        return None if chosen is None else _tagged_variant(document, chosen, value, where)
    if isinstance(part, int) and "items" in schema:
        return _tagged_variant(document, schema["items"], value[part], rest)
    member = schema.get("properties", {}).get(part)
    return None if member is None else _tagged_variant(document, member, value[part], rest)


def _variant_for(document: Document, variants: Iterable[JSON], value: dict[str, JSON]) -> JSON | None:
    """The variant whose tag (a property with a single permitted value) the value carries."""
    for variant in variants:
        tags = document.derived("tags", variant, lambda found: _tags(document, found))
        if tags and all(value.get(name) == tag for name, tag in tags.items()):
            return variant
    return None


def _tags(document: Document, variant: JSON) -> dict[str, JSON]:
    """The properties that have a single permitted value, and that value."""
    return {
        name: member["enum"][0]
        for name, raw in document.resolve(variant).get("properties", {}).items()
        if len((member := document.resolve(raw)).get("enum", ())) == 1
    }
