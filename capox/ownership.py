"""The owner mark: the description of everything that capox makes on a rack.

Oxide has no tags, so the description says whose an object is. Its text is read back by other versions of capox, by the
provider and by the cloud controller manager alike, and never changes its meaning; a test fixes it. A mark has the form

    Managed by capox: kind=OxideMachine object=team-a/web-0 uid=<UID> cluster=<clusterID>

with further words for what the cloud controller manager needs to remember. Words that a reader does not know are kept
apart and ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["DESCRIPTION_CHARACTERS_MAX", "OwnerMark", "format_mark", "is_made_for", "parse_mark"]

DESCRIPTION_CHARACTERS_MAX: Final = 512
"""The longest description that the rack stores; it answers 500 beyond (semantics 2.1)."""

_PREFIX: Final = "Managed by capox: "
_WORD: Final = re.compile(r"^([a-z][a-z-]*)=(\S*)$")
_KNOWN: Final = frozenset({"kind", "object", "uid", "cluster"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnerMark:
    """Whose an object on the rack is.

    Attributes:
        kind: The kind of the Kubernetes object, such as `OxideMachine` or `Service`.
        namespace: Its namespace.
        name: Its name.
        uid: Its UID, which changes when objects are moved or restored.
        cluster_id: `spec.clusterID` of the OxideCluster, which does not; empty in marks of before it was set.
        further: Other words by their names, such as the ports of a Service.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    cluster_id: str = ""
    further: Mapping[str, str] = dataclasses.field(default_factory=dict)


def format_mark(mark: OwnerMark) -> str:
    """The description for an owner.

    Raises:
        ValueError: It would be longer than the rack stores.
    """
    words = {
        "kind": mark.kind,
        "object": f"{mark.namespace}/{mark.name}",
        "uid": mark.uid,
        "cluster": mark.cluster_id,
        **mark.further,
    }
    text = _PREFIX + " ".join(f"{key}={value}" for key, value in words.items() if value)
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        raise ValueError(
            f"the owner mark of {mark.kind} {mark.namespace}/{mark.name} has {len(text)} characters; "
            f"a description on the rack has at most {DESCRIPTION_CHARACTERS_MAX}"
        )
    return text


def parse_mark(description: str) -> OwnerMark | None:
    """The owner that a description tells; None when it is not a mark of ours."""
    if not description.startswith(_PREFIX):
        return None
    words: dict[str, str] = {}
    for text in description.removeprefix(_PREFIX).split():
        match = _WORD.match(text)
        if match is not None:
            words.setdefault(match[1], match[2])
    namespace, separator, name = words.get("object", "").partition("/")
    if not separator or not words.get("kind") or not name:
        return None
    return OwnerMark(
        kind=words["kind"],
        namespace=namespace,
        name=name,
        uid=words.get("uid", ""),
        cluster_id=words.get("cluster", ""),
        further={key: value for key, value in words.items() if key not in _KNOWN},
    )


def is_made_for(mark: OwnerMark, owner: OwnerMark, *, is_recorded: bool = False) -> bool:
    """Whether what bears a mark was made for an owner.

    The same UID is the same object. A move or a restore gives objects new UIDs (B43): then kind, namespace and name
    have to agree, and clusterID decides. Where one side does not know that, only a record of the thing's own id can
    tell two objects of one name apart.

    Args:
        mark: What the description tells.
        owner: Who asks.
        is_recorded: Whether the owner has recorded the id of the very thing that bears the mark.
    """
    if mark.kind != owner.kind:
        return False
    if mark.uid and mark.uid == owner.uid:
        return True
    if (mark.namespace, mark.name) != (owner.namespace, owner.name):
        return False
    if mark.cluster_id and owner.cluster_id:
        return mark.cluster_id == owner.cluster_id
    return is_recorded
