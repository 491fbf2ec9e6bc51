"""External addresses of instances, floating IPs and the pools they come from (semantics 4.4, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from capox.oxide.models.external_ips import (
    EphemeralIpCreate,
    ExternalIp,
    FloatingIp,
    FloatingIpAttach,
    FloatingIpCreate,
    FloatingIpUpdate,
    IpVersion,
    SiloIpPool,
)
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Operation, Paged, delete, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_FLOATING_IP = "/v1/floating-ips/{floating_ip}"
_OF_INSTANCE = "/v1/instances/{instance}/external-ips"
_EXTERNAL_IP: TypeAdapter[ExternalIp] = TypeAdapter(ExternalIp)

INSTANCE_EXTERNAL_IP_LIST = view("instance_external_ip_list", _OF_INSTANCE, ResultsPage[ExternalIp], "project")
INSTANCE_EPHEMERAL_IP_ATTACH = write(
    "instance_ephemeral_ip_attach",
    "POST",
    f"{_OF_INSTANCE}/ephemeral",
    _EXTERNAL_IP,
    "project",
    status=202,
    body=EphemeralIpCreate,
)
INSTANCE_EPHEMERAL_IP_DETACH: Operation[None] = delete(
    "instance_ephemeral_ip_detach", f"{_OF_INSTANCE}/ephemeral", "ip_version", "project"
)
FLOATING_IP_CREATE = write(
    "floating_ip_create", "POST", "/v1/floating-ips", FloatingIp, "project", status=201, body=FloatingIpCreate
)
FLOATING_IP_LIST = pages("floating_ip_list", "/v1/floating-ips", ResultsPage[FloatingIp], "project")
FLOATING_IP_VIEW = view("floating_ip_view", _FLOATING_IP, FloatingIp, "project")
FLOATING_IP_UPDATE = write(
    "floating_ip_update", "PUT", _FLOATING_IP, FloatingIp, "project", status=200, body=FloatingIpUpdate
)
FLOATING_IP_DELETE = delete("floating_ip_delete", _FLOATING_IP, "project")
FLOATING_IP_ATTACH = write(
    "floating_ip_attach", "POST", f"{_FLOATING_IP}/attach", FloatingIp, "project", status=202, body=FloatingIpAttach
)
FLOATING_IP_DETACH = write("floating_ip_detach", "POST", f"{_FLOATING_IP}/detach", FloatingIp, "project", status=202)
# Filters by family and type came with a later version than the one we speak.
IP_POOL_LIST = pages("ip_pool_list", "/v1/ip-pools", ResultsPage[SiloIpPool])
IP_POOL_VIEW = view("ip_pool_view", "/v1/ip-pools/{pool}", SiloIpPool)


class ExternalIpOperations(Caller):
    """External addresses. Attaching and detaching needs an instance that is stopped, running or rebooting.

    While it starts or stops the rack answers ServiceUnavailable, and for a failed one InvalidRequest (semantics
    3.2).
    """

    def instance_external_ip_list(self, instance: NameOrId, *, project: NameOrId | None = None) -> Paged[ExternalIp]:
        """List an instance's external addresses, its SNAT address among them; the rack gives them in one page."""
        return Paged(self, INSTANCE_EXTERNAL_IP_LIST, instance=instance, project=project)

    async def instance_ephemeral_ip_attach(
        self, instance: NameOrId, body: EphemeralIpCreate, *, project: NameOrId | None = None
    ) -> ExternalIp:
        """Give an instance an ephemeral address; one of the same family that it has already is the answer."""
        return await self.call(INSTANCE_EPHEMERAL_IP_ATTACH, body=body, instance=instance, project=project)

    async def instance_ephemeral_ip_detach(
        self, instance: NameOrId, *, ip_version: IpVersion | None = None, project: NameOrId | None = None
    ) -> None:
        """Take an ephemeral address away; of an instance with two, `ip_version` says which."""
        await self.call(INSTANCE_EPHEMERAL_IP_DETACH, instance=instance, ip_version=ip_version, project=project)

    async def floating_ip_create(self, body: FloatingIpCreate, *, project: NameOrId) -> FloatingIp:
        """Allocate a floating IP."""
        return await self.call(FLOATING_IP_CREATE, body=body, project=project)

    def floating_ip_list(self, *, project: NameOrId, limit: int = PAGE_LIMIT) -> Paged[FloatingIp]:
        """List a project's floating IPs."""
        return Paged(self, FLOATING_IP_LIST, limit=limit, project=project)

    async def floating_ip_view(self, floating_ip: NameOrId, *, project: NameOrId | None = None) -> FloatingIp:
        """View one floating IP."""
        return await self.call(FLOATING_IP_VIEW, floating_ip=floating_ip, project=project)

    async def floating_ip_update(
        self, floating_ip: NameOrId, body: FloatingIpUpdate, *, project: NameOrId | None = None
    ) -> FloatingIp:
        """Change name or description."""
        return await self.call(FLOATING_IP_UPDATE, body=body, floating_ip=floating_ip, project=project)

    async def floating_ip_delete(self, floating_ip: NameOrId, *, project: NameOrId | None = None) -> None:
        """Release a floating IP that is attached to nothing."""
        await self.call(FLOATING_IP_DELETE, floating_ip=floating_ip, project=project)

    async def floating_ip_attach(
        self, floating_ip: NameOrId, body: FloatingIpAttach, *, project: NameOrId | None = None
    ) -> FloatingIp:
        """Attach a floating IP; nothing happens when it is attached there already.

        It does not move: one that is attached elsewhere is refused and must be detached first.
        """
        return await self.call(FLOATING_IP_ATTACH, body=body, floating_ip=floating_ip, project=project)

    async def floating_ip_detach(self, floating_ip: NameOrId, *, project: NameOrId | None = None) -> FloatingIp:
        """Detach a floating IP; nothing happens when it is attached to nothing. The answer still shows the instance."""
        return await self.call(FLOATING_IP_DETACH, floating_ip=floating_ip, project=project)

    def ip_pool_list(self, *, limit: int = PAGE_LIMIT) -> Paged[SiloIpPool]:
        """List the pools that the silo may use."""
        return Paged(self, IP_POOL_LIST, limit=limit)

    async def ip_pool_view(self, pool: NameOrId) -> SiloIpPool:
        """View one pool; one that the silo may not use is ObjectNotFound."""
        return await self.call(IP_POOL_VIEW, pool=pool)
