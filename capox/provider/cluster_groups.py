"""The end of a cluster's anti-affinity groups. Machines make them; the cluster sees all machines, and removes them."""

from __future__ import annotations

import contextlib
from typing import Final

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster
from capox.oxide import errors as oxide
from capox.oxide.shared_list import TRANSITION_SECONDS
from capox.provider import group_plan as plan
from capox.provider.cluster_mark import cluster_mark
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.racks import Project

__all__ = ["remove_groups"]

STEPS_LIMIT: Final = 64
"""More groups than a cluster loses at once; what is left is for the next pass."""


async def remove_groups(deps: Deps, project: Project, cluster: OxideCluster, cluster_name: str) -> bool:
    """Delete the groups that nobody is in, one after the other, and at the cluster's end all of them.

    Nothing is deleted while a machine waits for its instance: it may have chosen a group that is still empty.

    Returns:
        Whether the cluster has groups still.

    Raises:
        OxideError: Something on the rack failed.
        KubeError: The machines could not be read.
    """
    inventory, is_deleting = project.inventory, cluster.metadata.is_being_deleted
    mark = cluster_mark(cluster)
    last = inventory.now() if is_deleting else None
    for _ in range(STEPS_LIMIT):
        groups = await inventory.anti_affinity_groups.recent(TRANSITION_SECONDS, after=last)
        own = [group for group in groups if plan.is_own(group, mark)]
        instances = await inventory.instances.recent(TRANSITION_SECONDS, after=last)
        step = plan.plan_removal(own, plan.members_by_group(instances), is_deleting=is_deleting)
        if not isinstance(step, plan.DeleteGroup):
            return bool(own)
        if not is_deleting and (
            await _awaits_instances(deps, cluster, cluster_name) or await _has_members(project, step)
        ):
            return True
        with contextlib.suppress(oxide.ObjectNotFound):
            await project.client.anti_affinity_group_delete(step.group.id)
        last = inventory.now()
        deps.recorder.normal(cluster, "AntiAffinityGroupDeleted", f"Deleted anti-affinity group {step.group.name}")
    return True


async def _awaits_instances(deps: Deps, cluster: OxideCluster, cluster_name: str) -> bool:
    labels = {capi.CLUSTER_NAME_LABEL: cluster_name}
    machines = await deps.kube.list(OXIDE_MACHINES, cluster.metadata.namespace, labels)
    return any(machine.spec.provider_id is None for machine in machines)


async def _has_members(project: Project, step: plan.DeleteGroup) -> bool:
    """Whether somebody is in the group by the rack's own count, also instances that are not ours."""
    try:
        return bool(await project.client.anti_affinity_group_member_list(step.group.id).all())
    except oxide.ObjectNotFound:
        return False
