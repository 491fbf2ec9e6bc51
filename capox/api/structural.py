"""A pydantic model's JSON schema as the structural schema that a CRD wants.

pydantic describes a model in JSON schema 2020-12; a CRD takes a small part of OpenAPI 3.0, every part of which must say
its type, with Kubernetes' own keywords added. What cannot be said there is an error here, never dropped in silence.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from capox.api.limits import LIMIT_KEYWORD
from capox.kube.objects import Resource

__all__ = ["Schema", "SchemaError", "structural_schema", "without_private_keywords"]

Schema: TypeAlias = dict[str, Any]
"""A JSON schema, or a part of one."""

_IDENTITY: Final[Schema] = {
    "apiVersion": {"type": "string", "description": "Group and version of this kind of object."},
    "kind": {"type": "string", "description": "Kind of this object."},
    # The apiserver knows the rest of it, and refuses a schema that says more, even a description.
    "metadata": {"type": "object"},
}

# Titles repeat the names; a default would be added to stored objects by the apiserver, which must never happen (C-T-5).
_DROPPED: Final = frozenset({"title", "default"})

_KEPT: Final = (
    "description",
    "type",
    "anyOf",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "maxItems",
    "maxProperties",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    LIMIT_KEYWORD,
)
"""Every keyword that a generated schema may hold, in the order in which it is written."""


_RULE_KEYS: Final = ("rule", "messageExpression", "fieldPath")


class SchemaError(Exception):
    """A model says something that a CRD cannot."""


def structural_schema(model: type[Resource]) -> Schema:
    """Give the structural schema of a kind.

    Args:
        model: The kind's model.

    Returns:
        The schema of `openAPIV3Schema`, still with the private keywords that the reference page is made from.

    Raises:
        SchemaError: The model has something that a structural schema cannot hold; the message names the field.
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    definitions = document.pop("$defs", {})
    own = {name: part for name, part in document["properties"].items() if name not in _IDENTITY}
    document["properties"] = own
    document["required"] = [name for name in document["required"] if name in own]
    schema = _structural(document, definitions, model.__name__)
    schema["properties"] = {**_IDENTITY, **schema["properties"]}
    return schema


def without_private_keywords(schema: Any) -> Any:
    """Give a schema without the keywords that are for the reference page only."""
    if isinstance(schema, Mapping):
        return {key: without_private_keywords(value) for key, value in schema.items() if key != LIMIT_KEYWORD}
    if isinstance(schema, list):
        return [without_private_keywords(item) for item in schema]
    return schema


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    """Turn one part of the schema, and what is below it; `path` names the field in errors."""
    flat = _collapsed(_inlined(schema, definitions, path), definitions, path)
    flat = {key: value for key, value in flat.items() if key not in _DROPPED}
    if "const" in flat:
        flat["enum"] = [flat.pop("const")]
    _close_bounds(flat)
    if unknown := sorted(flat.keys() - set(_KEPT)):
        raise SchemaError(f"{path}: a structural schema has no {', '.join(unknown)}; say it with capox.api.limits")
    if "description" in flat:
        flat["description"] = _paragraphs(flat["description"])
    if "properties" in flat:
        flat["properties"] = {
            name: _structural(part, definitions, f"{path}.{name}") for name, part in flat["properties"].items()
        }
    if "x-kubernetes-validations" in flat:
        flat["x-kubernetes-validations"] = [_ordered(rule, _RULE_KEYS) for rule in flat["x-kubernetes-validations"]]
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in flat:
            flat[key] = _structural(flat[key], definitions, path + suffix)
    if "type" not in flat and not flat.get("x-kubernetes-int-or-string"):
        raise SchemaError(f"{path}: has no type; a structural schema wants one for every field")
    if flat.get("type") == "array" and "x-kubernetes-list-type" not in flat:
        raise SchemaError(f"{path}: a list must say how it is merged; add capox.api.limits.list_of")
    return _ordered(flat, _KEPT)


def _ordered(schema: Mapping[str, Any], keys: Sequence[str]) -> Schema:
    return {key: schema[key] for key in keys if key in schema}


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    """Put in what a `$ref` names; what stands beside the reference wins, such as the field's own description."""
    if "$ref" not in schema:
        return dict(schema)
    name = schema["$ref"].rpartition("/")[2]
    if name not in definitions:
        raise SchemaError(f"{path}: refers to {schema['$ref']!r}, which is not defined")
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_inlined(definitions[name], definitions, path), **beside}


def _collapsed(schema: Schema, definitions: Mapping[str, Any], path: str) -> Schema:
    """Take `null` out of a union: absent is how a field is empty, and Kubernetes drops nulls."""
    union = schema.get("anyOf")
    if union is None or schema.get("x-kubernetes-int-or-string"):
        return schema
    others = [part for part in union if part != {"type": "null"}]
    if len(others) != 1:
        raise SchemaError(f"{path}: a union of {len(others)} types; a CRD field has one type")
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**_collapsed(_inlined(others[0], definitions, path), definitions, path), **beside}


def _close_bounds(schema: Schema) -> None:
    """Turn numeric exclusive bounds of whole numbers into inclusive ones; OpenAPI 3.0 has booleans there."""
    if "exclusiveMinimum" in schema and schema.get("type") == "integer":
        schema["minimum"] = schema.pop("exclusiveMinimum") + 1
    if "exclusiveMaximum" in schema and schema.get("type") == "integer":
        schema["maximum"] = schema.pop("exclusiveMaximum") - 1


def _paragraphs(text: str) -> str:
    """Undo the line breaks of a docstring, but for those between paragraphs."""
    return "\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))
