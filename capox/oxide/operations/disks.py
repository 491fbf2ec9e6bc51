"""Disks, and their attachment to instances (semantics 3.2, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capox.oxide.models.disks import Disk, DiskCreate, DiskPath
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, delete, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_DISK = "/v1/disks/{disk}"
_OF_INSTANCE = "/v1/instances/{instance}/disks"

DISK_CREATE = write("disk_create", "POST", "/v1/disks", Disk, "project", status=201, body=DiskCreate)
DISK_LIST = pages("disk_list", "/v1/disks", ResultsPage[Disk], "project")
DISK_VIEW = view("disk_view", _DISK, Disk, "project")
DISK_DELETE = delete("disk_delete", _DISK, "project")
INSTANCE_DISK_LIST = pages("instance_disk_list", _OF_INSTANCE, ResultsPage[Disk], "project")
INSTANCE_DISK_ATTACH = write(
    "instance_disk_attach", "POST", f"{_OF_INSTANCE}/attach", Disk, "project", status=202, body=DiskPath
)
INSTANCE_DISK_DETACH = write(
    "instance_disk_detach", "POST", f"{_OF_INSTANCE}/detach", Disk, "project", status=202, body=DiskPath
)


class DiskOperations(Caller):
    """Disks."""

    async def disk_create(self, body: DiskCreate, *, project: NameOrId) -> Disk:
        """Make a disk. The answer says `creating` although the disk is ready; the next view says `detached`."""
        return await self.call(DISK_CREATE, body=body, project=project)

    def disk_list(self, *, project: NameOrId, limit: int = PAGE_LIMIT) -> Paged[Disk]:
        """List a project's disks."""
        return Paged(self, DISK_LIST, limit=limit, project=project)

    async def disk_view(self, disk: NameOrId, *, project: NameOrId | None = None) -> Disk:
        """View one disk."""
        return await self.call(DISK_VIEW, disk=disk, project=project)

    async def disk_delete(self, disk: NameOrId, *, project: NameOrId | None = None) -> None:
        """Delete a disk that is detached or faulted."""
        await self.call(DISK_DELETE, disk=disk, project=project)

    def instance_disk_list(
        self, instance: NameOrId, *, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[Disk]:
        """List the disks attached to an instance, the boot disk among them."""
        return Paged(self, INSTANCE_DISK_LIST, limit=limit, instance=instance, project=project)

    async def instance_disk_attach(
        self, instance: NameOrId, body: DiskPath, *, project: NameOrId | None = None
    ) -> Disk:
        """Attach a disk to a stopped instance; nothing happens when it is attached there already."""
        return await self.call(INSTANCE_DISK_ATTACH, body=body, instance=instance, project=project)

    async def instance_disk_detach(
        self, instance: NameOrId, body: DiskPath, *, project: NameOrId | None = None
    ) -> Disk:
        """Detach a disk from a stopped or failed instance. A boot disk must first cease to be one."""
        return await self.call(INSTANCE_DISK_DETACH, body=body, instance=instance, project=project)
