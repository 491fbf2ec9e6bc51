"""Marks and names of what is made on the rack for a Service (CCM rules V9, V10).

The mark says whose a floating IP is, which ports it serves, so that the provider can keep the firewall open for them,
and whether it outlives its Service. The name is for people; it holds a hash of cluster and UID, so two Services never
meet in one, whatever they are called.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, cast

from capox.ccm.placement import Port, Protocol
from capox.ccm.wanted import Owner
from capox.ownership import DESCRIPTION_CHARACTERS_MAX, OwnerMark, format_mark

__all__ = [
    "GO_DESCRIPTION",
    "KIND",
    "GoNames",
    "is_of_service",
    "marked_ports",
    "names_for",
    "owner_mark",
    "retained_description",
    "service_description",
]

KIND: Final = "Service"
"""The kind in the marks of Services."""

GO_DESCRIPTION: Final = "Managed by oxide-cloud-controller-manager."
"""What Oxide's own controller writes into the description of each floating IP."""

_NAME_CHARACTERS_MAX: Final = 63
_HASH_CHARACTERS: Final = 10
_SUFFIX_CHARACTERS: Final = 4
_CUT: Final = "..."
_FOREIGN: Final = re.compile(r"[^a-z0-9-]+")
_PORT: Final = re.compile(r"^(tcp|udp):([0-9]{1,5})$")


def owner_mark(owner: Owner, cluster_id: str, ports: Iterable[Port] = (), *, is_retained: bool = False) -> OwnerMark:
    """The mark of a Service's floating IP, its port list cut to what the rack stores."""
    reclaim = {"reclaim": "retain"} if is_retained else {}
    bare = OwnerMark(
        kind=KIND, namespace=owner.namespace, name=owner.name, uid=owner.uid, cluster_id=cluster_id, further=reclaim
    )
    room = DESCRIPTION_CHARACTERS_MAX - len(format_mark(bare)) - len(" ports=")
    word = _ports_word(ports, room)
    further = {**reclaim, "ports": word} if word else reclaim
    return OwnerMark(
        kind=KIND, namespace=owner.namespace, name=owner.name, uid=owner.uid, cluster_id=cluster_id, further=further
    )


def service_description(
    owner: Owner, cluster_id: str, ports: Iterable[Port] = (), *, is_retained: bool = False
) -> tuple[str, bool]:
    """The description of a Service's floating IP, and whether all of the ports are in it."""
    mark = owner_mark(owner, cluster_id, ports, is_retained=is_retained)
    return format_mark(mark), not mark.further.get("ports", "").endswith(_CUT)


def retained_description(owner: Owner) -> str:
    """The description of a floating IP whose Service is gone and which is the user's from now on."""
    return f"Kept by capox when Service {owner} was deleted; it belongs to nobody now."


def is_of_service(mark: OwnerMark | None, uid: str, cluster_id: str) -> bool:
    """Whether a mark is that of this Service in this cluster. A cluster restored from another's backup has its UIDs."""
    return mark is not None and (mark.kind, mark.uid, mark.cluster_id) == (KIND, uid, cluster_id)


def marked_ports(mark: OwnerMark) -> frozenset[Port] | None:
    """The ports that a mark lists; None when the list was cut, or there is none."""
    word = mark.further.get("ports", "")
    matches = [_PORT.match(part) for part in word.split(",")] if word else []
    if not matches or not all(matches):
        return None
    return frozenset(Port(cast("Protocol", match[1].upper()), int(match[2])) for match in matches if match)


def names_for(owner: Owner, cluster_id: str) -> Iterator[str]:
    """The names that a Service's floating IPs may have, in their order: a replacement gets the next free one."""
    digest = hashlib.sha256(f"{cluster_id} {owner.uid}".encode()).hexdigest()[:_HASH_CHARACTERS]
    readable = _FOREIGN.sub("-", f"k8s-{owner.namespace}-{owner.name}".lower())
    room = _NAME_CHARACTERS_MAX - _SUFFIX_CHARACTERS - 1 - len(digest)
    first = f"{readable[:room].rstrip('-')}-{digest}"
    yield first
    for number in range(2, 10 ** (_SUFFIX_CHARACTERS - 1)):
        yield f"{first}-{number}"


class GoNames:
    """How Oxide's own controller calls a Service's floating IP.

    Args:
        cluster_name: The `--cluster-name` that it ran with; empty when nobody said.
    """

    def __init__(self, cluster_name: str = "") -> None:
        self._cluster_name = cluster_name

    def is_exactly(self, name: str, owner: Owner) -> bool:
        """Whether it is the name for this Service in the cluster that is known."""
        whole = f"{self._cluster_name}-{owner.namespace}-{owner.name}"
        return bool(self._cluster_name) and name == whole[:_NAME_CHARACTERS_MAX].rstrip("-")

    def may_be(self, name: str, owner: Owner) -> bool:
        """Whether it is the name for this Service in a cluster of whatever name."""
        end = f"-{owner.namespace}-{owner.name}"
        if len(name) < _NAME_CHARACTERS_MAX - 1:
            return name.endswith(end)
        # It was cut: what is left of the end has to be the beginning of ours.
        return any(name.endswith(end[:length].rstrip("-")) for length in range(2, len(end) + 1))


def _ports_word(ports: Iterable[Port], room: int) -> str:
    texts = [f"{port.protocol.lower()}:{port.number}" for port in sorted(ports)]
    whole = ",".join(texts)
    if len(whole) <= room:
        return whole
    kept: list[str] = []
    for text in texts:
        if len(",".join([*kept, text, _CUT])) > room:
            break
        kept.append(text)
    return ",".join([*kept, _CUT])
