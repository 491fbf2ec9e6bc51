"""What the add-on does in a workload cluster: pure, from the mode and what was seen there.

Whoever has no mode gets the bundled cloud controller manager only where the cluster is new: two of them would fight
over floating IPs, and one that was installed by somebody else is nobody's to replace.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from capox.provider.ccm_addon_manifests import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    NAME,
    RELEASE_ANNOTATION,
)

__all__ = [
    "UNINITIALIZED_TAINT",
    "Decision",
    "HandsOff",
    "Install",
    "Mode",
    "Remove",
    "Rollout",
    "Seen",
    "Wait",
    "decide",
    "drifted",
    "is_ours",
    "is_upgrade",
    "live_stranger",
    "rollout_of",
    "runs_another",
]

UNINITIALIZED_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
"""The taint of a Node that no cloud controller manager has looked at yet."""

FOREIGN: Final = "oxide-cloud-controller-manager"
"""What Oxide's own cloud controller manager is called, in names and images."""

CLOCKS_DIFFER_SECONDS: Final = 60.0
"""By how much the clocks of two clusters may differ."""

Document: TypeAlias = Mapping[str, Any]


class Mode(enum.StrEnum):
    """`spec.cloudControllerManager.mode`."""

    ABSENT = ""
    MANAGED = "Managed"
    UNMANAGED = "Unmanaged"
    ORPHAN = "Orphan"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen in the cluster. What stands behind `is_ours` was looked for only where it is not.

    Attributes:
        is_ours: Whether something that the add-on has installed is there.
        has_nodes: Whether there is any Node.
        has_new_node: Whether a Node waits to be initialized.
        stranger: Another cloud controller manager, in words; empty when there is none.
    """

    is_ours: bool
    has_nodes: bool = False
    has_new_node: bool = False
    stranger: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Install:
    """Install it, or keep it as it should be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Remove:
    """Take away what was installed."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandsOff:
    """Touch nothing: the Nodes are somebody else's."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """It cannot be told yet."""

    message: str


Decision: TypeAlias = Install | Remove | HandsOff | Wait

Rollout: TypeAlias = Literal["absent", "rolling", "partly", "done"]
"""How far the Pods are: not there; none is ready; some are, or are of before; all are, and as they should be."""


def decide(mode: Mode, seen: Seen) -> Decision:
    """What to do in a cluster that answers; `Orphan` never comes here."""
    if mode is Mode.UNMANAGED:
        return Remove()
    if mode is Mode.MANAGED or seen.is_ours:
        return Install()
    if not seen.has_nodes:
        return Wait("no Node has registered yet")
    if seen.stranger:
        return HandsOff(f"{seen.stranger}; write spec.cloudControllerManager.mode Managed once it is removed")
    if seen.has_new_node:
        return Install()
    return HandsOff(
        "no Node waits to be initialized, so this is not a new cluster; "
        "write spec.cloudControllerManager.mode Managed to have it installed"
    )


def is_ours(labels: Mapping[str, str]) -> bool:
    """Whether the add-on has installed the object with these labels."""
    return labels.get(MANAGED_BY_LABEL) == MANAGED_BY


def runs_another(kind: str, metadata: Document, spec: Document) -> str:
    """Another cloud controller manager for Oxide that a DaemonSet or Deployment runs, in words; empty for none."""
    name = f"{metadata.get('namespace')}/{metadata.get('name')}"
    if is_ours(_part(metadata, "labels")):
        return ""
    containers = _part(_part(spec, "template"), "spec").get("containers")
    found = containers if isinstance(containers, list) else ()
    images = [str(each.get("image", "")) for each in found if isinstance(each, Mapping)]
    if any(FOREIGN in image for image in images) or metadata.get("name") in {FOREIGN, NAME}:
        return f"{kind} {name} is a cloud controller manager that somebody else has installed"
    return ""


def live_stranger(
    holder: str | None, renewed: str | None, duration_seconds: float | None, now: datetime.datetime
) -> str:
    """Whoever else holds the Lease of cloud controller managers and lives, in words; empty when nobody does.

    Args:
        holder: The holder's identity. Ours begins with the name of our Pods.
        renewed: When the Lease was renewed last, by the holder's clock, as the Lease has it.
        duration_seconds: For how long.
        now: By our clock.
    """
    moment = _moment(renewed)
    if not holder or holder.startswith(f"{NAME}-") or moment is None:
        return ""
    age_seconds = (now - moment).total_seconds()
    if age_seconds > (duration_seconds or 15.0) + CLOCKS_DIFFER_SECONDS:
        return ""
    return f"{holder[:100]} holds the Lease kube-system/cloud-controller-manager"


def drifted(wanted: Sequence[Document], found: Iterable[Document | None]) -> list[Document]:
    """Those documents that are not there as they should be; `found` are the objects of their names, or None."""
    return [
        document for document, there in zip(wanted, found, strict=True) if there is None or not _has(there, document)
    ]


def is_upgrade(wanted: Document, found: Document | None) -> bool:
    """Whether a workload that is there comes from another release of the provider than the one that is wanted."""
    if found is None or not is_ours(_part(_part(found, "metadata"), "labels")):
        return False
    return _release(found) != _release(wanted)


def rollout_of(found: Document | None) -> Rollout:
    """How far the Pods of a DaemonSet or Deployment are."""
    if found is None:
        return "absent"
    status = _part(found, "status")
    generation = _count(_part(found, "metadata"), "generation")
    if found.get("kind") == "DaemonSet":
        desired = _count(status, "desiredNumberScheduled")
        updated, ready = _count(status, "updatedNumberScheduled"), _count(status, "numberReady")
    else:
        desired = _count(_part(found, "spec"), "replicas")
        updated, ready = _count(status, "updatedReplicas"), _count(status, "readyReplicas")
    is_seen = _count(status, "observedGeneration") >= generation
    if is_seen and desired > 0 and updated >= desired and ready >= desired:
        return "done"
    return "partly" if ready > 0 else "rolling"


def _moment(text: str | None) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _release(document: Document) -> str:
    annotations = _part(_part(document, "metadata"), "annotations")
    return str(annotations.get(RELEASE_ANNOTATION, ""))


def _part(document: Document, name: str) -> Document:
    """A part of a document, which a stranger may have made anything of."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(part: Document, field: str) -> int:
    value = part.get(field)
    return value if isinstance(value, int) else 0


def _has(there: Any, wanted: Any) -> bool:
    """Whether something has all that is wanted of it; the apiserver and others may have added to it.

    An empty value is as good as an absent one, which is how the apiserver stores it.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            return not wanted and there is None
        return all(_has(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(there, list | tuple):
            return not wanted and there is None
        return len(there) == len(wanted) and all(map(_has, there, wanted))
    return bool(there == wanted) or (wanted == "" and there is None)
