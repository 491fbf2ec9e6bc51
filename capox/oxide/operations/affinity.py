"""Anti-affinity groups and their members (semantics 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from capox.oxide.models.affinity import (
    AntiAffinityGroup,
    AntiAffinityGroupCreate,
    AntiAffinityGroupMember,
    AntiAffinityGroupUpdate,
)
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, delete, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_ALL = "/v1/anti-affinity-groups"
_GROUP = "/v1/anti-affinity-groups/{anti_affinity_group}"
_MEMBER = f"{_GROUP}/members/instance/{{instance}}"
_MEMBER_ANSWER: TypeAdapter[AntiAffinityGroupMember] = TypeAdapter(AntiAffinityGroupMember)

ANTI_AFFINITY_GROUP_CREATE = write(
    "anti_affinity_group_create",
    "POST",
    _ALL,
    AntiAffinityGroup,
    "project",
    status=201,
    body=AntiAffinityGroupCreate,
)
ANTI_AFFINITY_GROUP_LIST = pages("anti_affinity_group_list", _ALL, ResultsPage[AntiAffinityGroup], "project")
ANTI_AFFINITY_GROUP_VIEW = view("anti_affinity_group_view", _GROUP, AntiAffinityGroup, "project")
ANTI_AFFINITY_GROUP_UPDATE = write(
    "anti_affinity_group_update",
    "PUT",
    _GROUP,
    AntiAffinityGroup,
    "project",
    status=200,
    body=AntiAffinityGroupUpdate,
)
ANTI_AFFINITY_GROUP_DELETE = delete("anti_affinity_group_delete", _GROUP, "project")
ANTI_AFFINITY_GROUP_MEMBER_LIST = pages(
    "anti_affinity_group_member_list", f"{_GROUP}/members", ResultsPage[AntiAffinityGroupMember], "project"
)
ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_VIEW = view(
    "anti_affinity_group_member_instance_view", _MEMBER, _MEMBER_ANSWER, "project"
)
ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_ADD = write(
    "anti_affinity_group_member_instance_add", "POST", _MEMBER, _MEMBER_ANSWER, "project", status=201
)
ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_DELETE = delete("anti_affinity_group_member_instance_delete", _MEMBER, "project")


class AffinityOperations(Caller):
    """Anti-affinity groups. `project` belongs to the names of group and instance; both by id, it is left out."""

    async def anti_affinity_group_create(
        self, body: AntiAffinityGroupCreate, *, project: NameOrId
    ) -> AntiAffinityGroup:
        """Make a group; at most 32 instances fit in."""
        return await self.call(ANTI_AFFINITY_GROUP_CREATE, body=body, project=project)

    def anti_affinity_group_list(self, *, project: NameOrId, limit: int = PAGE_LIMIT) -> Paged[AntiAffinityGroup]:
        """List a project's groups."""
        return Paged(self, ANTI_AFFINITY_GROUP_LIST, limit=limit, project=project)

    async def anti_affinity_group_view(
        self, anti_affinity_group: NameOrId, *, project: NameOrId | None = None
    ) -> AntiAffinityGroup:
        """View one group."""
        return await self.call(ANTI_AFFINITY_GROUP_VIEW, anti_affinity_group=anti_affinity_group, project=project)

    async def anti_affinity_group_update(
        self, anti_affinity_group: NameOrId, body: AntiAffinityGroupUpdate, *, project: NameOrId | None = None
    ) -> AntiAffinityGroup:
        """Change name or description."""
        return await self.call(
            ANTI_AFFINITY_GROUP_UPDATE, body=body, anti_affinity_group=anti_affinity_group, project=project
        )

    async def anti_affinity_group_delete(
        self, anti_affinity_group: NameOrId, *, project: NameOrId | None = None
    ) -> None:
        """Delete a group, with or without members."""
        await self.call(ANTI_AFFINITY_GROUP_DELETE, anti_affinity_group=anti_affinity_group, project=project)

    def anti_affinity_group_member_list(
        self, anti_affinity_group: NameOrId, *, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[AntiAffinityGroupMember]:
        """List a group's members."""
        return Paged(
            self,
            ANTI_AFFINITY_GROUP_MEMBER_LIST,
            limit=limit,
            anti_affinity_group=anti_affinity_group,
            project=project,
        )

    async def anti_affinity_group_member_instance_view(
        self, anti_affinity_group: NameOrId, instance: NameOrId, *, project: NameOrId | None = None
    ) -> AntiAffinityGroupMember:
        """View one membership; ObjectNotFound when the instance is no member."""
        return await self.call(
            ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_VIEW,
            anti_affinity_group=anti_affinity_group,
            instance=instance,
            project=project,
        )

    async def anti_affinity_group_member_instance_add(
        self, anti_affinity_group: NameOrId, instance: NameOrId, *, project: NameOrId | None = None
    ) -> AntiAffinityGroupMember:
        """Make a stopped instance a member; one that is a member already is ObjectAlreadyExists."""
        return await self.call(
            ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_ADD,
            anti_affinity_group=anti_affinity_group,
            instance=instance,
            project=project,
        )

    async def anti_affinity_group_member_instance_delete(
        self, anti_affinity_group: NameOrId, instance: NameOrId, *, project: NameOrId | None = None
    ) -> None:
        """End a membership, in any state of the instance."""
        await self.call(
            ANTI_AFFINITY_GROUP_MEMBER_INSTANCE_DELETE,
            anti_affinity_group=anti_affinity_group,
            instance=instance,
            project=project,
        )
