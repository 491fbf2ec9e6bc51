"""A machine's managed anti-affinity group: looked for before its instance is made, and made where there is none."""

from __future__ import annotations

from uuid import UUID

from capox.ownership import format_mark
from capox.oxide import errors as oxide
from capox.oxide import models
from capox.oxide.shared_list import TRANSITION_SECONDS
from capox.provider import group_plan as plan
from capox.provider.cluster_mark import cluster_mark
from capox.provider.machine_rack import MachineRack
from capox.provider.machine_scope import MachineScope
from capox.provider.racks import Project
from capox.provider.unanswered import UNANSWERED

__all__ = ["choose_group", "make_group", "takes_members", "wanted"]


def wanted(scope: MachineScope) -> plan.WantedGroup | None:
    """The group that the machine is to be in; None when its role is not kept apart."""
    cluster, machine = scope.owners.oxide_cluster, scope.owners.machine
    if cluster is None or machine is None:
        return None
    return plan.wanted_group(cluster, cluster_mark(cluster), machine.metadata.labels)


async def choose_group(scope: MachineScope, project: Project, group: plan.WantedGroup) -> plan.GroupStep:
    """Look at the groups and their members, and plan which one to join.

    Raises:
        OxideError: They could not be read.
    """
    inventory, last = project.inventory, scope.acts.last
    groups = await inventory.anti_affinity_groups.recent(TRANSITION_SECONDS, after=last)
    instances = await inventory.instances.recent(TRANSITION_SECONDS, after=last)
    seats = project.seats
    return plan.plan_group(group, groups, seats.count(plan.members_by_group(instances)), seats.full)


async def make_group(
    scope: MachineScope, project: Project, rack: MachineRack, group: plan.WantedGroup, name: str
) -> None:
    """Make a group. That another machine was faster is no error.

    Raises:
        OxideError: It was not made, or nobody knows.
    """
    body = models.AntiAffinityGroupCreate(name=name, description=format_mark(group.mark), policy=group.policy)
    try:
        made = await project.client.anti_affinity_group_create(body, project=project.name)
    except oxide.ObjectAlreadyExists:
        return
    except UNANSWERED:
        # It may still appear: as long as that can be, the machine does not go, and the cluster not before it.
        scope.acts.unanswered_at = scope.deps.clock.monotonic()
        raise
    finally:
        rack.acted()
    scope.say("AntiAffinityGroupCreated", f"Created anti-affinity group {made.name}")


async def takes_members(project: Project, group_id: UUID) -> bool:
    """Whether a group is there and has room, as the rack itself counts.

    Raises:
        OxideError: It could not be read.
    """
    try:
        members = await project.client.anti_affinity_group_member_list(group_id).all()
    except oxide.ObjectNotFound:
        return False
    if len(members) < plan.MEMBERS_MAX:
        return True
    project.seats.close(group_id)
    return False
