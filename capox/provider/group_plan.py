"""The anti-affinity groups of a cluster: pure, which one a new instance joins, and which are not needed any more.

A cluster has one group for its control plane and one for each MachineDeployment; where a group is full, there is a
further one. Instances become members at their creation and cannot later (semantics 8). The marks of instances tell the
groups that they joined, so the list of instances, which is read anyway, tells the members of all groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias
from uuid import UUID

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, Reason
from capox.ownership import OwnerMark, is_made_for, parse_mark
from capox.oxide.models import AffinityPolicy
from capox.oxide.snapshots import ObservedAntiAffinityGroup, ObservedInstance
from capox.provider import names
from capox.provider.steps import Blocked, Steady

__all__ = [
    "GROUP_WORD",
    "MEMBERS_MAX",
    "Blocked",
    "DeleteGroup",
    "GroupStep",
    "JoinGroup",
    "MakeGroup",
    "Steady",
    "WantedGroup",
    "is_own",
    "members_by_group",
    "plan_group",
    "plan_removal",
    "wanted_group",
]

MEMBERS_MAX: Final = 32
"""The rack's limit (semantics 2.2)."""

GROUP_WORD: Final = "group"
"""The word of an instance's mark that has the id of its managed group, without hyphens: the mark has little room."""

_ROLE_WORD: Final = "role"
_CONTROL_PLANE: Final = "control-plane"
_WORKERS: Final = "workers"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WantedGroup:
    """The group that a machine is to be in.

    Attributes:
        mark: The mark of the group.
        role: Whom it is for, a word of the mark and of the group's name.
        policy: What happens where it cannot be kept.
    """

    mark: OwnerMark
    role: str
    policy: AffinityPolicy

    def name(self, index: int) -> str:
        """The name of the group, or of a further one."""
        return names.group_name(self.mark.namespace, self.mark.name, self.role, index)


@dataclasses.dataclass(frozen=True, slots=True)
class JoinGroup:
    """Make the instance as a member of this group."""

    group_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class MakeGroup:
    """Make a group, because there is none with room."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group that nobody is in, or whose cluster goes."""

    group: ObservedAntiAffinityGroup


GroupStep: TypeAlias = JoinGroup | MakeGroup | Blocked


def wanted_group(cluster: OxideCluster, cluster_mark: OwnerMark, labels: Mapping[str, str]) -> WantedGroup | None:
    """The group for a machine with these labels; None when its role is not kept apart.

    Args:
        cluster: Whose machine it is.
        cluster_mark: The cluster's owner mark.
        labels: The labels of the Machine.
    """
    asked = cluster.spec.anti_affinity
    is_control_plane = capi.CONTROL_PLANE_LABEL in labels
    wish = (asked.control_plane if is_control_plane else asked.workers) if asked is not None else None
    if wish is None:
        return None
    deployment = labels.get(capi.DEPLOYMENT_NAME_LABEL)
    role = _CONTROL_PLANE if is_control_plane else f"md-{deployment}" if deployment else _WORKERS
    mark = dataclasses.replace(cluster_mark, further={_ROLE_WORD: role})
    return WantedGroup(mark=mark, role=role, policy=AffinityPolicy(wish.policy))


def is_own(group: ObservedAntiAffinityGroup, cluster_mark: OwnerMark) -> bool:
    """Whether a group was made for a cluster."""
    mark = parse_mark(group.description)
    return mark is not None and is_made_for(mark, cluster_mark)


def members_by_group(instances: Iterable[ObservedInstance]) -> dict[UUID, set[str]]:
    """The UIDs of the machines whose instances are in each managed group."""
    found: dict[UUID, set[str]] = {}
    for instance in instances:
        # Most instances of a project may be in no group, and parsing takes much longer than looking.
        mark = parse_mark(instance.description) if f" {GROUP_WORD}=" in instance.description else None
        if mark is not None:
            try:
                found.setdefault(UUID(mark.further[GROUP_WORD]), set()).add(mark.uid)
            except (KeyError, ValueError):
                continue
    return found


def plan_group(
    wanted: WantedGroup, groups: Iterable[ObservedAntiAffinityGroup], taken: Mapping[UUID, int], full: AbstractSet[UUID]
) -> GroupStep:
    """Which group the instance joins: the first one with room, else one more.

    Args:
        wanted: What it is to be.
        groups: All groups of the project.
        taken: How many members each has, or will have.
        full: Groups that the rack has refused another member.
    """
    by_name = {group.name: group for group in groups}
    index = 0
    while (group := by_name.get(wanted.name(index))) is not None:
        mark = parse_mark(group.description)
        if mark is None or not is_made_for(mark, wanted.mark) or mark.further.get(_ROLE_WORD) != wanted.role:
            return Blocked(
                Reason.NAME_CONFLICT,
                f"anti-affinity group {group.name} ({group.id}) exists and is not this cluster's; "
                "rename the cluster, use another project, or delete that group",
            )
        # A group cannot change its policy: after a change of the spec the next machines get a group of their own.
        if group.policy == wanted.policy and group.id not in full and taken.get(group.id, 0) < MEMBERS_MAX:
            return JoinGroup(group.id)
        index += 1
    return MakeGroup(wanted.name(index))


def plan_removal(
    groups: Iterable[ObservedAntiAffinityGroup], members: Mapping[UUID, AbstractSet[str]], *, is_deleting: bool
) -> DeleteGroup | Steady:
    """The next group to delete: one that nobody is in, and at the end any.

    Args:
        groups: The cluster's groups.
        members: Who is in each group.
        is_deleting: Whether the cluster goes, with all its machines gone.
    """
    for group in groups:
        if is_deleting or not members.get(group.id):
            return DeleteGroup(group)
    return Steady()
