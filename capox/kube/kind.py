"""Kinds of objects, as a client needs to know them: the model, and where the API serves it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import pydantic

from capox.kube.errors import Unreadable
from capox.kube.objects import Resource, Secret

__all__ = ["SECRETS", "Kind"]

R = TypeVar("R", bound=Resource)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of objects.

    Attributes:
        model: What its objects are read into.
        group: The API group; empty for the core group.
        version: The version that is asked for, never the one that the apiserver prefers (K-37).
        plural: Its name in URLs.
        is_namespaced: Whether its objects live in namespaces.
    """

    model: type[R]
    group: str
    version: str
    plural: str
    is_namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def name(self) -> str:
        """The kind's name, such as `Secret`."""
        return self.model.__name__

    @property
    def api_version(self) -> str:
        """What stands in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL's path of the collection, of one object, or of an object's subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.is_namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def parse(self, document: Mapping[str, Any]) -> R:
        """Read an object as the API gave it. An item of a list, which does not say what it is, is told so first.

        Raises:
            Unreadable: It does not fit the model. The message names the fields and no value: it may be a Secret.
        """
        if "kind" not in document:
            document = {"apiVersion": self.api_version, "kind": self.name, **document}
        try:
            return self.model.model_validate(document)
        except pydantic.ValidationError as error:
            fields = ", ".join(sorted({".".join(str(part) for part in detail["loc"]) for detail in error.errors()}))
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}".lstrip("/")
        raise Unreadable(f"{self.name} {name} cannot be read; what does not fit is {fields or 'the whole document'}")


SECRETS: Kind[Secret] = Kind(Secret, "", "v1", "secrets")
"""Secrets, which are read one at a time and never listed or watched (K-32)."""
