"""What the CRDs say of a field beyond its Python type: limits, list types and CEL rules.

These are for the apiserver alone. Python does not check them when it reads: an object that was stored before a limit
existed must stay readable, for it has to be deletable. They are annotations on the models' fields, from which
`capox.api.crdgen` makes the schema and the reference page.

Every CEL rule states what must hold, and a message with the value, what is expected, and where it helps an example; the
apiserver puts the field's path in front of it. Lengths are limited everywhere, or the apiserver could not bound the
cost of the rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from capox.provider_id import PROVIDER_ID_PATTERN

__all__ = [
    "LIMIT_KEYWORD",
    "NAME_CHARACTERS_MAX",
    "NAME_IN_WORDS",
    "CelRule",
    "Limits",
    "cluster_id",
    "dns_name_or_address",
    "image_reference",
    "image_tag",
    "list_of",
    "namespace_name",
    "network",
    "oxide_name",
    "oxide_name_or_id",
    "provider_id",
    "quantity_between",
    "quantity_of_resource",
    "secret_name",
    "uuid",
    "whole_number",
]

LIMIT_KEYWORD: Final = "x-capox-limit"
"""The limit in words, for the reference page. Never part of a CRD."""

NAME_CHARACTERS_MAX: Final = 63
"""The longest name on the rack, namespace or label value."""

NAME_IN_WORDS: Final = "1 to 63 letters, digits and '-', first a lower-case letter, last not '-'"
"""What a name on the rack looks like (schema `Name` of the Oxide API)."""

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_NAME = "^[a-z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
_DNS_NAME = "^(?i)([a-z0-9]([-a-z0-9]*[a-z0-9])?[.])*[a-z]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class CelRule:
    """One CEL rule of a field (`x-kubernetes-validations`)."""

    rule: str
    """What must hold, about `self`; a rule that names `oldSelf` is checked on changes only."""

    message_expression: str
    """CEL that gives the message of a refusal."""

    field_path: str = ""
    """The field below this one that a refusal names; empty for this one."""

    def as_schema(self) -> dict[str, str]:
        """Give the rule as it stands in a schema."""
        schema = {"rule": self.rule, "messageExpression": self.message_expression}
        return {**schema, "fieldPath": self.field_path} if self.field_path else schema


@dataclass(frozen=True, slots=True)
class Limits:
    """An annotation that adds keywords and rules to the schema of the field it stands on."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema and Kubernetes keywords."""

    rules: tuple[CelRule, ...] = ()
    """CEL rules."""

    in_words: str = ""
    """The limit as the reference page words it, where the keywords do not say it."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        extended = {**handler(schema), **self.keywords}
        if self.rules:
            extended["x-kubernetes-validations"] = [rule.as_schema() for rule in self.rules]
        if self.in_words:
            extended[LIMIT_KEYWORD] = self.in_words
        return extended


def whole_number(minimum: int, maximum: int, *, number_format: str = "int32") -> Limits:
    """Limit a whole number to a range, ends included."""
    return Limits({"format": number_format, "minimum": minimum, "maximum": maximum})


def list_of(kind: str, items_max: int) -> Limits:
    """Say how a list is merged by server-side apply (C-ALL-9), and how long it may be.

    Args:
        kind: `set` (order is without meaning, no value twice), `atomic` (replaced as a whole), or `map:` and the key.
        items_max: The longest list.
    """
    list_type, _, key = kind.partition(":")
    keywords: dict[str, Any] = {"maxItems": items_max, "x-kubernetes-list-type": list_type}
    if key:
        keywords["x-kubernetes-list-map-keys"] = [key]
    return Limits(keywords)


def _text(must_hold: str, expected: str, *, characters_max: int, optional: bool, in_words: str = "") -> Limits:
    keywords: dict[str, Any] = {"maxLength": characters_max}
    rule = f"self == '' || ({must_hold})" if optional else must_hold
    message = f'"\'" + self + "\' is not {expected}"'
    return Limits(keywords, (CelRule(rule, message),), in_words or expected)


def uuid(*, optional: bool = False) -> Limits:
    """Limit a text to a UUID with hyphens; an optional one may be empty."""
    expected = "a UUID such as f47ac10b-58cc-4372-a567-0e02b2c3d479"
    return _text(f"self.matches('{_UUID}')", expected, characters_max=36, optional=optional, in_words="a UUID")


def oxide_name(*, optional: bool = False) -> Limits:
    """Limit a text to a name on the rack, where no ID is taken (schema `Name` of the Oxide API)."""
    must_hold = f"self.matches('{_NAME}') && !self.matches('{_UUID}')"
    expected = f"a name on the rack ({NAME_IN_WORDS}; an ID is not taken here)"
    words = "a name on the rack, not an ID"
    return _text(must_hold, expected, characters_max=NAME_CHARACTERS_MAX, optional=optional, in_words=words)


def oxide_name_or_id(*, optional: bool = False) -> Limits:
    """Limit a text to a name on the rack or an ID (schema `NameOrId` of the Oxide API)."""
    must_hold = f"self.matches('{_NAME}') || self.matches('{_UUID}')"
    expected = f"a name on the rack ({NAME_IN_WORDS}) or an ID (a UUID)"
    words = "a name on the rack or an ID"
    return _text(must_hold, expected, characters_max=NAME_CHARACTERS_MAX, optional=optional, in_words=words)


def cluster_id(*, optional: bool = False) -> Limits:
    """Limit a text to what an owner mark can hold as a cluster's identity."""
    expected = "an identity of at most 63 letters, digits and '-'"
    return _text(
        "self.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$')", expected, characters_max=63, optional=optional
    )


def network() -> Limits:
    """Limit a text to a network, such as 10.244.0.0/16."""
    expected = "a network such as 10.244.0.0/16"
    return _text("isCIDR(self)", expected, characters_max=43, optional=False, in_words="a network")


def provider_id(*, optional: bool = False) -> Limits:
    """Limit a text to the provider ID of an Oxide instance."""
    expected = "the provider ID of an Oxide instance (oxide:// and the instance's UUID in lower case)"
    return _text(f"self.matches('{PROVIDER_ID_PATTERN}')", expected, characters_max=44, optional=optional)


def secret_name(*, optional: bool = False) -> Limits:
    """Limit a text to the name of a Secret."""
    expected = "the name of a Secret (lower-case letters, digits, '-' and '.', first and last a letter or digit)"
    must_hold = "self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')"
    return _text(must_hold, expected, characters_max=253, optional=optional)


def image_reference(*, optional: bool = False) -> Limits:
    """Limit a text to the reference of a container image."""
    expected = "an image such as registry.example.com/team/name:v1.0.0"
    part = "[a-z0-9]+([._-]+[a-z0-9]+)*"
    must_hold = (
        f"self.matches('^([a-zA-Z0-9.-]+(:[0-9]+)?/)?{part}(/{part})*"
        "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')"
    )
    return _text(must_hold, expected, characters_max=512, optional=optional, in_words="an image")


def image_tag(*, optional: bool = False) -> Limits:
    """Limit a text to the tag of a container image."""
    must_hold = "self.matches('^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$')"
    return _text(must_hold, "the tag of an image such as v1.0.0", characters_max=128, optional=optional)


def namespace_name(*, optional: bool = False) -> Limits:
    """Limit a text to the name of a namespace."""
    expected = "the name of a namespace (lower-case letters, digits and '-', first and last a letter or digit)"
    must_hold = "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
    return _text(must_hold, expected, characters_max=NAME_CHARACTERS_MAX, optional=optional)


def dns_name_or_address(*, optional: bool = False) -> Limits:
    """Limit a text to an IP address or a DNS name; digits and dots that are no address are neither."""
    must_hold = f"isIP(self) || self.matches('{_DNS_NAME}')"
    return _text(must_hold, "an IP address or a DNS name", characters_max=512, optional=optional)


def quantity_of_resource() -> Limits:
    """Limit a quantity to what a Node can offer of a resource: not less than nothing."""
    must_hold = "isQuantity(string(self)) && sign(quantity(string(self))) >= 0"
    message = '"\'" + string(self) + "\' is not an amount of a resource, such as 4 or 8Gi"'
    return Limits({}, (CelRule(must_hold, message),), "0 or more")


def quantity_between(minimum: str, maximum: str) -> Limits:
    """Limit a quantity of bytes to a range, ends included, before it is rounded up to a multiple of 1 GiB."""
    must_hold = (
        "isQuantity(string(self))"
        f" && quantity(string(self)).compareTo(quantity('{minimum}')) >= 0"
        f" && quantity(string(self)).compareTo(quantity('{maximum}')) <= 0"
    )
    message = f'"\'" + string(self) + "\' is not a quantity of bytes from {minimum} to {maximum}"'
    return Limits({}, (CelRule(must_hold, message),), f"{minimum} to {maximum}")
