"""Instances (semantics 3, 4). Their disks and addresses are in the modules of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capox.oxide.models.affinity import AntiAffinityGroup
from capox.oxide.models.instances import Instance, InstanceCreate, InstanceUpdate
from capox.oxide.models.silo import SshKey
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, delete, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_INSTANCE = "/v1/instances/{instance}"

INSTANCE_CREATE = write(
    "instance_create", "POST", "/v1/instances", Instance, "project", status=201, body=InstanceCreate
)
INSTANCE_LIST = pages("instance_list", "/v1/instances", ResultsPage[Instance], "project")
INSTANCE_VIEW = view("instance_view", _INSTANCE, Instance, "project")
INSTANCE_UPDATE = write("instance_update", "PUT", _INSTANCE, Instance, "project", status=200, body=InstanceUpdate)
INSTANCE_DELETE = delete("instance_delete", _INSTANCE, "project")
INSTANCE_START = write("instance_start", "POST", f"{_INSTANCE}/start", Instance, "project", status=202)
INSTANCE_STOP = write("instance_stop", "POST", f"{_INSTANCE}/stop", Instance, "project", status=202)
INSTANCE_REBOOT = write("instance_reboot", "POST", f"{_INSTANCE}/reboot", Instance, "project", status=202)
INSTANCE_ANTI_AFFINITY_GROUP_LIST = pages(
    "instance_anti_affinity_group_list", f"{_INSTANCE}/anti-affinity-groups", ResultsPage[AntiAffinityGroup], "project"
)
INSTANCE_SSH_PUBLIC_KEY_LIST = pages(
    "instance_ssh_public_key_list", f"{_INSTANCE}/ssh-public-keys", ResultsPage[SshKey], "project"
)


class InstanceOperations(Caller):
    """Instances. The states that each change needs are in semantics 3.2."""

    async def instance_create(self, body: InstanceCreate, *, project: NameOrId) -> Instance:
        """Make an instance with its disks, interfaces and addresses, all or nothing, and start it if the body says so.

        Repeating it is refused with ObjectAlreadyExists. A start that fails is not reported: the answer is `stopped`,
        and `instance_start` tells why (semantics 3.1, 4).
        """
        return await self.call(INSTANCE_CREATE, body=body, project=project)

    def instance_list(self, *, project: NameOrId, limit: int = PAGE_LIMIT) -> Paged[Instance]:
        """List a project's instances, those included that are still being created."""
        return Paged(self, INSTANCE_LIST, limit=limit, project=project)

    async def instance_view(self, instance: NameOrId, *, project: NameOrId | None = None) -> Instance:
        """View one instance."""
        return await self.call(INSTANCE_VIEW, instance=instance, project=project)

    async def instance_update(
        self, instance: NameOrId, body: InstanceUpdate, *, project: NameOrId | None = None
    ) -> Instance:
        """Change CPUs, memory, boot disk (all three need a stopped instance) or restart policy, in one transaction."""
        return await self.call(INSTANCE_UPDATE, body=body, instance=instance, project=project)

    async def instance_delete(self, instance: NameOrId, *, project: NameOrId | None = None) -> None:
        """Delete a stopped or failed instance with its interfaces and ephemeral addresses.

        Its disks, the boot disk too, and its floating IPs stay and become detached (semantics 4.6). A refused
        deletion has already switched off the rack's own restart of the instance (semantics 3.2).
        """
        await self.call(INSTANCE_DELETE, instance=instance, project=project)

    async def instance_start(self, instance: NameOrId, *, project: NameOrId | None = None) -> Instance:
        """Start a stopped or failed instance; nothing happens to one that runs.

        It is where missing room shows, as InsufficientCapacity (semantics 4.5).
        """
        return await self.call(INSTANCE_START, instance=instance, project=project)

    async def instance_stop(self, instance: NameOrId, *, project: NameOrId | None = None) -> Instance:
        """Begin a hard power-off, which takes up to 10 minutes; a failed instance is stopped at once."""
        return await self.call(INSTANCE_STOP, instance=instance, project=project)

    async def instance_reboot(self, instance: NameOrId, *, project: NameOrId | None = None) -> Instance:
        """Begin a hard reset."""
        return await self.call(INSTANCE_REBOOT, instance=instance, project=project)

    def instance_anti_affinity_group_list(
        self, instance: NameOrId, *, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[AntiAffinityGroup]:
        """List the groups that an instance is a member of."""
        return Paged(self, INSTANCE_ANTI_AFFINITY_GROUP_LIST, limit=limit, instance=instance, project=project)

    def instance_ssh_public_key_list(
        self, instance: NameOrId, *, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[SshKey]:
        """List the keys that an instance was given when it was made."""
        return Paged(self, INSTANCE_SSH_PUBLIC_KEY_LIST, limit=limit, instance=instance, project=project)
