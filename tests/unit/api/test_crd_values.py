"""The values that the apiserver is tried with leave no limit out."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from capox.api.resource import CUSTOM_RESOURCES
from capox.api.structural import structural_schema
from tests.unit.api.crd_values import INVALID


def fields_with_limits(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Give the path of every field below a schema that has a limit, entries of lists as `[0]`."""
    for name, part in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        if part.keys() & {"x-kubernetes-validations", "minimum", "maximum", "maxLength", "maxItems", "enum"}:
            yield below
        inner = part.get("items", part)
        if "items" in part and inner.get("type") == "string":
            yield f"{below}[0]"
        yield from fields_with_limits(inner, f"{below}[0]" if "items" in part else below)


@pytest.mark.parametrize("kind", ["OxideCluster", "OxideMachine"])
def test_no_limit_goes_untried(kind: str) -> None:
    """Every field of a spec with a limit has a value above that the apiserver refuses."""
    (resource,) = (resource for resource in CUSTOM_RESOURCES if resource.model.__name__ == kind)
    schema = structural_schema(resource.model)
    tried = {re.sub(r"\[\d+\]", "[0]", field) for of_kind, _, _, field, _ in INVALID if of_kind == kind}

    limited = set(fields_with_limits(schema["properties"]["spec"], "spec"))

    assert limited
    assert limited <= tried
