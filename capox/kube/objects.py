"""The shapes of the Kubernetes API that capox reads and writes. Pure data: nothing here calls the API.

Reading is lenient: fields that a model does not name are ignored, so a newer apiserver, Cluster API or capox never
makes an object unreadable. Writing is narrow: `KubeModel.dump` leaves out what is absent, and
`Resource.apply_document` carries the object's identity and the parts it is given, never the rest of what was read
(C-OW-6).
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretBytes,
    SecretStr,
    StringConstraints,
)

__all__ = [
    "MESSAGE_CHARACTERS_MAX",
    "NULL_IS_EMPTY_LIST",
    "REASON_CHARACTERS_MAX",
    "REASON_PATTERN",
    "Condition",
    "ConditionStatus",
    "KubeModel",
    "ObjectMeta",
    "OptionalText",
    "OwnerReference",
    "Resource",
    "Secret",
    "Timestamp",
    "format_timestamp",
    "wire_name",
]

MESSAGE_CHARACTERS_MAX: Final = 32768
"""The longest message that a condition may have (C-CO-2)."""

REASON_CHARACTERS_MAX: Final = 1024
"""The longest reason that a condition may have (C-CO-2)."""

REASON_PATTERN: Final = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
"""What a condition's reason looks like; Cluster API's own patch of the owner fails on any other (C-CO-2)."""

_CONDITION_TYPE_PATTERN: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

_INITIALISMS: Final = {"id": "ID", "cpus": "CPUs", "ip": "IP", "ips": "IPs"}


def wire_name(name: str) -> str:
    """Give the JSON name of a Python field: camel case, with the initialisms that Kubernetes writes in capitals.

    `api_version` becomes `apiVersion`, `provider_id` becomes `providerID`, `n_cpus` becomes `nCPUs`.
    """
    first, *others = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in others)


def format_timestamp(moment: datetime) -> str:
    """Give a time as Kubernetes writes it: RFC 3339 in UTC, whole seconds, `Z` at the end."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


Timestamp: TypeAlias = Annotated[AwareDatetime, PlainSerializer(format_timestamp, return_type=str, when_used="json")]
"""A moment with its time zone, as `metav1.Time` has it on the wire."""


OptionalText: TypeAlias = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]
"""A text that may be absent, for which `""` is another spelling: templates with an unset variable write it."""

NULL_IS_EMPTY_LIST: Final = BeforeValidator(lambda value: () if value is None else value)
"""Reads `null` as the empty list, which clients in Go write for it."""

_NULL_IS_EMPTY_MAP: Final = BeforeValidator(lambda value: {} if value is None else value)
_Texts: TypeAlias = Annotated[tuple[str, ...], NULL_IS_EMPTY_LIST]
_TextMap: TypeAlias = Annotated[Mapping[str, str], _NULL_IS_EMPTY_MAP]


class KubeModel(BaseModel):
    """What every model of the Kubernetes API shares: immutable, lenient on reading, camel case on the wire."""

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    def dump(self) -> dict[str, Any]:
        """Give the JSON form of what was read or set.

        What was neither is left out, so nobody comes to own it by applying it; so is what is None. A list that was set
        and is empty stays, which is how a list is emptied.
        """
        return self.model_dump(mode="json", exclude_none=True, exclude_unset=True)


class OwnerReference(KubeModel):
    """One owner of an object (`metav1.OwnerReference`)."""

    api_version: str
    """Group and version of the owner, as in `cluster.x-k8s.io/v1beta2`."""

    kind: str
    """Kind of the owner."""

    name: str
    """Name of the owner, in the namespace of the object it owns."""

    uid: str = ""
    """UID of the owner; it changes when objects are moved or restored."""

    controller: bool | None = None
    """Whether the owner is the one controller of the object."""

    @property
    def group(self) -> str:
        """The owner's API group; empty for the core group."""
        group, separator, _ = self.api_version.partition("/")
        return group if separator else ""


class ObjectMeta(KubeModel):
    """The part of `metav1.ObjectMeta` that capox reads."""

    name: str = ""
    """Name of the object."""

    namespace: str = ""
    """Namespace of the object; empty for cluster-scoped kinds."""

    uid: str = ""
    """UID of the object; it changes when the object is moved or restored."""

    resource_version: str = ""
    """Opaque version of the object, the precondition of a write that replaces a list (C-ALL-10)."""

    generation: int = 0
    """Counter that the apiserver raises with each change of the spec."""

    creation_timestamp: Timestamp | None = None
    """When the object was made; absent in documents that no apiserver has seen."""

    deletion_timestamp: Timestamp | None = None
    """When deletion was asked for; absent while nobody did."""

    labels: _TextMap = Field(default_factory=dict)
    """Labels by key."""

    annotations: _TextMap = Field(default_factory=dict)
    """Annotations by key."""

    finalizers: _Texts = ()
    """Finalizers, in the order they are stored."""

    owner_references: Annotated[tuple[OwnerReference, ...], NULL_IS_EMPTY_LIST] = ()
    """Owners, in the order they are stored."""

    @property
    def is_being_deleted(self) -> bool:
        """Whether deletion of the object was asked for."""
        return self.deletion_timestamp is not None

    def owner(self, *, group: str, kind: str) -> OwnerReference | None:
        """Find the owner of a kind, whatever its version and whether or not it is marked as controller (C-IC-10).

        Of several owners of that kind the controller comes first, then the order in which they are stored.
        """
        owners = [owner for owner in self.owner_references if owner.group == group and owner.kind == kind]
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


class Resource(KubeModel):
    """What every object of the Kubernetes API begins with."""

    api_version: str
    """Group and version of this kind of object."""

    kind: str
    """Kind of this object."""

    metadata: ObjectMeta
    """Name, labels, owners and the other metadata of this object."""

    def apply_document(self, **parts: KubeModel | Mapping[str, Any]) -> dict[str, Any]:
        """Give a document for a patch or a server-side apply: this object's identity and the given parts only.

        Args:
            parts: What is written, by its JSON name: `status=...`, or `spec={"providerID": ...}`. A model is dumped
                as `KubeModel.dump` does; a mapping is taken as it is.

        Returns:
            A JSON object with `apiVersion`, `kind`, `metadata` (name and namespace) and the parts.
        """
        identity = {"name": self.metadata.name}
        if self.metadata.namespace:
            identity["namespace"] = self.metadata.namespace
        written = {name: part.dump() if isinstance(part, KubeModel) else dict(part) for name, part in parts.items()}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": identity, **written}


ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
"""The three answers of a condition, as text."""


class Condition(KubeModel):
    """One aspect of an object's state."""

    # This is `metav1.Condition` (C-CO-1). Unlike other models it refuses values beyond its limits (C-CO-2), since only
    # capox writes the conditions that it reads.

    type: Annotated[str, StringConstraints(min_length=1, max_length=316, pattern=_CONDITION_TYPE_PATTERN)]
    """Which aspect of the state this is."""

    status: ConditionStatus
    """Whether the aspect holds: True, False, or Unknown."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=REASON_CHARACTERS_MAX, pattern=REASON_PATTERN)]
    """Why, as one word in CamelCase that programs may compare."""

    message: Annotated[str, StringConstraints(max_length=MESSAGE_CHARACTERS_MAX)]
    """Why, for people; empty when there is nothing to add."""

    last_transition_time: Timestamp
    """When the status last changed; other changes do not move it."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """The object's metadata.generation that this was found for."""


def _decode_secret_data(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value if value is not None else {}
    decoded = {}
    for key, encoded in value.items():
        try:
            decoded[key] = SecretBytes(base64.b64decode(encoded, validate=True))
        except (binascii.Error, TypeError, ValueError):
            # The cause would carry the value, and so would a message that quotes it.
            raise ValueError(f"key {key!r} of the Secret's data is not base64") from None
    return decoded


class Secret(Resource):
    """A Secret, its data decoded. Values show as asterisks in reprs and logs, and are never part of a dump."""

    model_config = ConfigDict(hide_input_in_errors=True)

    type: str = "Opaque"
    """The Secret's type, as in `cluster.x-k8s.io/secret`."""

    data: Annotated[Mapping[str, SecretBytes], BeforeValidator(_decode_secret_data)] = Field(
        default_factory=dict, exclude=True
    )
    """Decoded values by key."""

    def text(self, key: str) -> SecretStr | None:
        """Give a value as text, or None when the key is absent.

        Raises:
            ValueError: The value is not UTF-8; the message names the Secret and the key, not the value.
        """
        value = self.data.get(key)
        if value is None:
            return None
        try:
            return SecretStr(value.get_secret_value().decode())
        except UnicodeDecodeError:
            name = f"{self.metadata.namespace}/{self.metadata.name}"
            raise ValueError(f"key {key!r} of Secret {name!r} is not UTF-8 text") from None
