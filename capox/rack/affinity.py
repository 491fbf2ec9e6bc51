"""Anti-affinity groups and who belongs to them (semantics 2.2, 8).

Membership is looked at when an instance starts (`placement`), never while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from capox.rack import errors, records, select
from capox.rack.call import Call
from capox.rack.state import Rack

MAXIMUM_GROUPS = 16
MAXIMUM_MEMBERS = 32
MEMBER = "anti-affinity-group-member"


def find_groups(call: Call, project: records.Project, references: Iterable[str]) -> list[records.AntiAffinityGroup]:
    """The groups of these names or ids, each once, in the order in which they were named.

    They are looked for in the project only: another one's does not exist, whoever asks for its id.

    Raises:
        Refusal: 404 for one that does not exist in the project, 403 for one that may not be changed.
    """
    table = call.rack.anti_affinity_groups
    groups: dict[str, records.AntiAffinityGroup] = {}
    for reference in references:
        group = select.named_in(call, table, project, reference, "compute")
        if group.project != project.id:
            raise select.missing(table.resource, group.id)
        groups[group.id] = group
    return list(groups.values())


def join(rack: Rack, group: records.AntiAffinityGroup, instance: records.Instance) -> None:
    """Make an instance a member of a group.

    Raises:
        Refusal: 400 when the group or the instance has as many as it may, when the instance has a reservation on a
            sled, and when it is a member already, in this order.
    """
    groups = rack.groups_of.get(instance.id, {})
    if len(group.members) >= MAXIMUM_MEMBERS:
        raise errors.invalid_request(f"Anti-affinity group already has maximum allowed members ({MAXIMUM_MEMBERS})")
    if len(groups) >= MAXIMUM_GROUPS:
        text = f"Instance already belongs to maximum allowed anti-affinity groups ({MAXIMUM_GROUPS})"
        raise errors.invalid_request(text)
    if instance.sled is not None:
        raise errors.invalid_request("Instance cannot be added to anti-affinity group with reservation")
    if instance.id in group.members:
        raise errors.already_exists(MEMBER, instance.id)
    group.members[instance.id] = None
    rack.groups_of.setdefault(instance.id, {})[group.id] = group


def leave(rack: Rack, group: records.AntiAffinityGroup, instance: records.Instance) -> None:
    """End a membership, whatever the instance is doing.

    Raises:
        Refusal: 404, it is not a member.
    """
    check_member(group, instance)
    _part(rack, group, instance.id)


def leave_all(rack: Rack, instance: records.Instance) -> None:
    """End all memberships of an instance."""
    for group in list(rack.groups_of.get(instance.id, {}).values()):
        _part(rack, group, instance.id)


def disband(rack: Rack, group: records.AntiAffinityGroup) -> None:
    """Delete a group; its members stay as they are."""
    for member in list(group.members):
        _part(rack, group, member)
    rack.anti_affinity_groups.delete(group)


def members(rack: Rack, group: records.AntiAffinityGroup) -> list[records.Instance]:
    """The members of a group in the order of joining."""
    found = (rack.instances.by_id(member) for member in group.members)
    return [instance for instance in found if instance is not None]


def check_member(group: records.AntiAffinityGroup, instance: records.Instance) -> None:
    """Refuse an instance that is not a member.

    Raises:
        Refusal: 404.
    """
    if instance.id not in group.members:
        raise errors.not_found(MEMBER, identity=instance.id)


def _part(rack: Rack, group: records.AntiAffinityGroup, member: str) -> None:
    del group.members[member]
    groups = rack.groups_of[member]
    del groups[group.id]
    if not groups:
        del rack.groups_of[member]
