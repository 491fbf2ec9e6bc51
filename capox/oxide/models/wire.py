"""What all wire models share: how they read, how they are written, and the scalar types of the specification.

Reading is lenient about what a newer rack may add and strict about what is documented: unknown fields are dropped, an
unknown word of an enumeration stays the word it was, an unknown variant of a tagged union becomes `Unrecognized`; a
documented field that is missing or of another type is an error. Writing is the reverse: only documented fields exist,
every one of them is sent, and what the rack would answer with a parse error or a 500 is refused here already.

Sizes are in bytes, times carry their time zone. Nothing in this package awaits.
"""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SecretBytes,
    SerializationInfo,
    StringConstraints,
)

USER_DATA_LIMIT_BYTES: Final = 32768
"""The rack refuses longer user data (semantics 2.1)."""

DESCRIPTION_LIMIT_CHARACTERS: Final = 512
"""The width of the rack's database column; it answers 500 beyond (semantics 2.1)."""

HOSTNAME_LIMIT_CHARACTERS: Final = 63
"""As for the description: the specification says 253, the column holds 63."""

UNRECOGNIZED: Final = "unrecognized"
"""The tag under which a variant that this client does not know is kept."""

_FOR_THE_WIRE: Final = object()


class ReadModel(BaseModel):
    """An answer, or a part of one. Immutable; unknown fields are dropped; values never appear in validation errors."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class WriteModel(BaseModel):
    """A request's body, or a part of one. Immutable; a field that is not in the specification is refused.

    Making one with a value that the rack could not even parse raises `pydantic.ValidationError`, which is a
    `ValueError`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def wire_bytes(self) -> bytes:
        """Give the JSON that is sent. The only place where a secret of a model is written out."""
        return self.model_dump_json(context=_FOR_THE_WIRE).encode()


class Unrecognized(BaseModel):
    """A variant of a tagged union that this client does not know, with all that came with it.

    It can be written back unchanged: replacing a list of firewall rules must not destroy what somebody else put there.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


ItemT = TypeVar("ItemT")
WordT = TypeVar("WordT")

Open = Annotated[WordT | str, Field(union_mode="left_to_right")]
"""A word of an enumeration, or the text of one that this client does not know."""


class ResultsPage(ReadModel, Generic[ItemT]):
    """One page of a list. Only an empty page is sure to have no `next_page` (semantics 1.5)."""

    items: tuple[ItemT, ...]
    next_page: str | None = None


def tag_of(field: str, *known: str) -> Discriminator:
    """Make the discriminator of a tagged union that outlives new variants.

    Args:
        field: The field that names the variant.
        *known: The variants that have a model.

    Returns:
        A discriminator that answers a known tag with itself, any other text with `UNRECOGNIZED`, and refuses a value
        without tag.
    """

    def tag(value: Any) -> str | None:
        # A dictionary when reading JSON, a model when one was passed in or is being written.
        name = value.get(field) if isinstance(value, Mapping) else getattr(value, field, None)
        if name in known:
            return str(name)
        return UNRECOGNIZED if isinstance(name, str) else None

    return Discriminator(tag)


def _not_an_id(name: str) -> str:
    try:
        UUID(name)
    except ValueError:
        return name
    raise ValueError("must not have the form of a UUID, so that names and ids cannot be confused")


def _network(text: str) -> str:
    if "/" not in text:
        raise ValueError("must be an address, a slash and a prefix length, such as 10.0.0.0/8")
    ipaddress.ip_interface(text)
    return text


def _short_enough(secret: SecretBytes) -> SecretBytes:
    if len(secret) > USER_DATA_LIMIT_BYTES:
        raise ValueError(f"user data has {len(secret)} bytes, at most {USER_DATA_LIMIT_BYTES} fit; compress or cut it")
    return secret


def _reveal(secret: SecretBytes, info: SerializationInfo) -> str:
    if info.context is _FOR_THE_WIRE:
        return base64.b64encode(secret.get_secret_value()).decode()
    return str(secret)


def _checked(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(check)


Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$"),
    _checked(_not_an_id),
]
"""A name in a request. Stricter than the specification's pattern, which admits upper case that the rack refuses."""

NameOrId = Annotated[UUID | Name, Field(union_mode="left_to_right")]
"""How a request points at an object. What parses as a UUID is an id for the rack as well (semantics 1.6)."""

Description = Annotated[str, StringConstraints(max_length=DESCRIPTION_LIMIT_CHARACTERS)]
"""A description in a request: required by the specification, may be empty."""

Hostname = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=HOSTNAME_LIMIT_CHARACTERS,
        pattern=r"^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$",
    ),
]
"""A hostname in a request."""

ByteCount = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number of bytes."""

CpuCount = Annotated[int, Field(ge=0, le=2**16 - 1)]
"""A number of vCPUs, as wide as the wire; how many the rack gives is its own answer (semantics 2.2)."""

UserData = Annotated[SecretBytes, AfterValidator(_short_enough), PlainSerializer(_reveal, return_type=str)]
"""What the guest's cloud-init reads, as raw bytes; Base64 on the wire. A secret: it may hold the keys of a cluster."""

IpAddress = IPv4Address | IPv6Address
"""An address of either family."""

IpNet = Annotated[str, _checked(_network)]
"""A network, or an address with a prefix length, kept as the text it is: the rack allows host bits in some places."""

Time = AwareDatetime
"""A moment, with its time zone."""
