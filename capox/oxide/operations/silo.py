"""Projects, images, the token's own user, and the rack's sign of life (semantics 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capox.oxide.models.silo import CurrentUser, Image, Ping, Project, SshKey
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, pages, view

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

PING = view("ping", "/v1/ping", Ping)
CURRENT_USER_VIEW = view("current_user_view", "/v1/me", CurrentUser)
CURRENT_USER_SSH_KEY_LIST = pages("current_user_ssh_key_list", "/v1/me/ssh-keys", ResultsPage[SshKey])
CURRENT_USER_SSH_KEY_VIEW = view("current_user_ssh_key_view", "/v1/me/ssh-keys/{ssh_key}", SshKey)
PROJECT_LIST = pages("project_list", "/v1/projects", ResultsPage[Project])
PROJECT_VIEW = view("project_view", "/v1/projects/{project}", Project)
IMAGE_LIST = pages("image_list", "/v1/images", ResultsPage[Image], "project")
IMAGE_VIEW = view("image_view", "/v1/images/{image}", Image, "project")


class SiloOperations(Caller):
    """What a user finds in a silo."""

    async def ping(self) -> Ping:
        """Ask whether the rack is there. It answers without looking at the token."""
        return await self.call(PING)

    async def current_user_view(self) -> CurrentUser:
        """View whom the token belongs to; the way to find out whether it is valid."""
        return await self.call(CURRENT_USER_VIEW)

    def current_user_ssh_key_list(self, *, limit: int = PAGE_LIMIT) -> Paged[SshKey]:
        """List the SSH keys of the token's owner."""
        return Paged(self, CURRENT_USER_SSH_KEY_LIST, limit=limit)

    async def current_user_ssh_key_view(self, ssh_key: NameOrId) -> SshKey:
        """View one SSH key of the token's owner."""
        return await self.call(CURRENT_USER_SSH_KEY_VIEW, ssh_key=ssh_key)

    def project_list(self, *, limit: int = PAGE_LIMIT) -> Paged[Project]:
        """List the projects that these credentials may see."""
        return Paged(self, PROJECT_LIST, limit=limit)

    async def project_view(self, project: NameOrId) -> Project:
        """View one project."""
        return await self.call(PROJECT_VIEW, project=project)

    def image_list(self, *, project: NameOrId | None = None, limit: int = PAGE_LIMIT) -> Paged[Image]:
        """List the images of a project, or those of the silo when none is given; never both."""
        return Paged(self, IMAGE_LIST, limit=limit, project=project)

    async def image_view(self, image: NameOrId, *, project: NameOrId | None = None) -> Image:
        """View one image. A name without a project is looked for among the silo's images."""
        return await self.call(IMAGE_VIEW, image=image, project=project)
