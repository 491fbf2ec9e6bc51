"""Releases the floating IPs of a cluster's Services when the cluster is deleted: observe, one call, observe again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from capox.oxide import errors as oxide
from capox.oxide.shared_list import Moment
from capox.provider import service_addresses_plan as plan
from capox.provider.racks import Project

__all__ = ["release_service_addresses"]

STEPS_LIMIT: Final = 64
"""How many calls one pass makes; the next one goes on."""


async def release_service_addresses(project: Project, cluster_id: str, say: Callable[[str, str], None]) -> bool:
    """Release them.

    Args:
        project: The project.
        cluster_id: `spec.clusterID`; nothing bears an empty one.
        say: Tells of each act, by a reason and a message.

    Returns:
        Whether none is left.

    Raises:
        OxideError: Something could not be read or done.
    """
    last: Moment | None = None
    for _ in range(STEPS_LIMIT):
        inventory = project.inventory.floating_ips
        seen = await inventory.fresh_since(last if last is not None else project.inventory.now())
        match plan.plan_service_addresses(seen, cluster_id):
            case plan.Detach(floating_ip):
                await project.client.floating_ip_detach(floating_ip.id)
                say("FloatingIPDetached", f"Detached {floating_ip.ip} of a Service from {floating_ip.instance_id}")
            case plan.Delete(floating_ip):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.floating_ip_delete(floating_ip.id)
                say("FloatingIPDeleted", f"Deleted floating IP {floating_ip.name} ({floating_ip.ip}) of a Service")
            case _:
                return True
        last = project.inventory.now()
    return False
