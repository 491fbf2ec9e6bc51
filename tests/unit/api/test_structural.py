"""The way from pydantic's JSON schema to a structural schema: nothing is lost in silence."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from capox.api.limits import LIMIT_KEYWORD, Limits, list_of, whole_number
from capox.api.resource import CUSTOM_RESOURCES, CustomResource
from capox.api.structural import Schema, SchemaError, structural_schema, without_private_keywords
from capox.kube.objects import KubeModel, Resource


def parts(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Give every field below a schema with its path; the apiserver's own three are left out."""
    for name, part in schema.get("properties", {}).items():
        if path or name not in {"apiVersion", "kind", "metadata"}:
            yield f"{path}.{name}", part
            yield from parts(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield f"{path}[]", schema[key]
            yield from parts(schema[key], f"{path}[]")


def is_bounded(part: Schema) -> bool:
    """Tell whether a field's values are bounded: a text in length, a number in range, a list or map in entries."""
    if part.get("x-kubernetes-int-or-string"):
        return "maxLength" in part and "x-kubernetes-validations" in part
    match part["type"]:
        case "boolean":
            return True
        case "string":
            return "maxLength" in part or "enum" in part or part.get("format") == "date-time"
        case "integer":
            return "enum" in part or ("minimum" in part and ("maximum" in part or part.get("format") == "int64"))
        case "array":
            return "maxItems" in part
        case _:
            return "properties" in part or "maxProperties" in part


EVERY_PART = [
    pytest.param(part, id=resource.plural + path)
    for resource in CUSTOM_RESOURCES
    for path, part in parts(structural_schema(resource.model))
]


@pytest.mark.parametrize("part", EVERY_PART)
def test_every_field_is_bounded(part: Schema) -> None:
    """A limit on everything: the cost of the CEL rules depends on it, and so does the size of an object."""
    assert is_bounded(part), part


@pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.plural)
def test_every_field_is_described_in_a_sentence(resource: CustomResource) -> None:
    """`kubectl explain` has words for every field, none of which clusterctl takes for a variable (L-5)."""
    schema = structural_schema(resource.model)
    fields = [(path, part) for path, part in parts(schema) if not path.endswith("[]")]

    assert len(fields) > 5
    for path, part in [("", schema), *fields]:
        assert part.get("description", "").endswith("."), path
        assert "$" not in part["description"], path


def models_below(model: type[KubeModel]) -> Iterator[type[KubeModel]]:
    """Give a model and every model that its fields name."""
    yield model
    for field in model.model_fields.values():
        for found in models_in(field.annotation):
            yield from models_below(found)


def models_in(annotation: Any) -> list[type[KubeModel]]:
    """Give the models that a type names, at any depth of its arguments."""
    if isinstance(annotation, type) and issubclass(annotation, KubeModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in models_in(argument)]


@pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.plural)
def test_every_model_describes_itself_and_its_fields(resource: CustomResource) -> None:
    """A field without a docstring is a field that nobody can look up."""
    models = set(models_below(resource.model))

    assert len(models) > 3
    for model in models:
        assert model.__doc__, model
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


class _Thing(Resource):
    """A kind for these tests."""


def schema_of(annotation: Any, default: Any = ...) -> Schema:
    """Give the structural schema of a kind whose spec has one field of the given type."""

    class Spec(KubeModel):
        """What is asked for."""

        field: annotation = default
        """A field."""

    class Thing(_Thing):
        """A kind."""

        spec: Spec
        """What is asked for."""

    spec: Schema = structural_schema(Thing)["properties"]["spec"]
    return spec


def test_an_optional_field_is_not_nullable_and_has_no_default() -> None:
    """Absent is how a field is empty; the apiserver adds nothing (C-T-5)."""
    spec = schema_of(str | None, None)

    assert spec["properties"]["field"] == {"description": "A field.", "type": "string"}
    assert "required" not in spec


def test_a_default_value_is_never_the_apiservers() -> None:
    """A default that only Python knows can change later without rolling out every cluster (C-T-5)."""
    assert schema_of(int, 6443)["properties"]["field"] == {"description": "A field.", "type": "integer"}


def test_one_allowed_value_is_an_enumeration() -> None:
    """OpenAPI 3.0 has no const."""
    field = schema_of(Literal["local"])["properties"]["field"]

    assert field["enum"] == ["local"]
    assert field["type"] == "string"


def test_an_exclusive_bound_becomes_an_inclusive_one() -> None:
    """Exclusive bounds are booleans in OpenAPI 3.0, so whole numbers get the next value."""
    field = schema_of(Annotated[int, Field(gt=0, lt=10)])["properties"]["field"]

    assert (field["minimum"], field["maximum"]) == (1, 9)


def test_a_model_is_put_in_place_with_the_fields_own_description() -> None:
    """There are no references in a CRD, and the field knows best what its value is for."""

    class Inner(KubeModel):
        """Described for all uses."""

        port: Annotated[int, whole_number(1, 65535)]
        """A port."""

    field = schema_of(Inner | None, None)["properties"]["field"]

    assert field["description"] == "A field."
    assert field["properties"]["port"] == {
        "description": "A port.",
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": 65535,
    }
    assert field["required"] == ["port"]


def test_the_words_for_the_reference_page_do_not_reach_a_crd() -> None:
    """The apiserver drops keywords that it does not know, and a diff would show for ever."""
    schema = schema_of(Annotated[str, Limits({"maxLength": 3}, in_words="short")])

    assert schema["properties"]["field"][LIMIT_KEYWORD] == "short"
    assert LIMIT_KEYWORD not in str(without_private_keywords(schema))


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (int | bool, "Thing.spec.field: a union of 2 types"),
        (Any, "Thing.spec.field: has no type"),
        (tuple[str, ...], "Thing.spec.field: a list must say how it is merged"),
        (Annotated[tuple[int | bool, ...], list_of("atomic", 3)], r"Thing.spec.field\[\]: a union of 2 types"),
        (Annotated[set[str], list_of("set", 3)], "Thing.spec.field: a structural schema has no uniqueItems"),
        (Annotated[float, Field(gt=0)], "Thing.spec.field: a structural schema has no exclusiveMinimum"),
        (Annotated[int, Field(multiple_of=2)], "Thing.spec.field: a structural schema has no multipleOf"),
    ],
)
def test_what_a_crd_cannot_say_is_an_error_that_names_the_field(annotation: Any, complaint: str) -> None:
    """Nothing is dropped but titles and defaults: a limit that silently vanished would be no limit."""
    with pytest.raises(SchemaError, match=complaint):
        schema_of(annotation)
