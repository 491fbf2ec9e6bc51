"""Network interfaces of instances (semantics 3.2, 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capox.oxide.models.network_interfaces import (
    InstanceNetworkInterface,
    InstanceNetworkInterfaceCreate,
    InstanceNetworkInterfaceUpdate,
)
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, delete, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_ALL = "/v1/network-interfaces"
_INTERFACE = "/v1/network-interfaces/{interface}"

INSTANCE_NETWORK_INTERFACE_CREATE = write(
    "instance_network_interface_create",
    "POST",
    _ALL,
    InstanceNetworkInterface,
    "instance",
    "project",
    status=201,
    body=InstanceNetworkInterfaceCreate,
)
INSTANCE_NETWORK_INTERFACE_LIST = pages(
    "instance_network_interface_list", _ALL, ResultsPage[InstanceNetworkInterface], "instance", "project"
)
INSTANCE_NETWORK_INTERFACE_VIEW = view(
    "instance_network_interface_view", _INTERFACE, InstanceNetworkInterface, "instance", "project"
)
INSTANCE_NETWORK_INTERFACE_UPDATE = write(
    "instance_network_interface_update",
    "PUT",
    _INTERFACE,
    InstanceNetworkInterface,
    "instance",
    "project",
    status=200,
    body=InstanceNetworkInterfaceUpdate,
)
INSTANCE_NETWORK_INTERFACE_DELETE = delete("instance_network_interface_delete", _INTERFACE, "instance", "project")


class NetworkInterfaceOperations(Caller):
    """Interfaces. `instance` belongs to an interface's name, and `project` to the instance's name.

    Every change needs a stopped instance; a deletion takes a failed one as well (semantics 3.2).
    """

    async def instance_network_interface_create(
        self, body: InstanceNetworkInterfaceCreate, *, instance: NameOrId, project: NameOrId | None = None
    ) -> InstanceNetworkInterface:
        """Add an interface to an instance."""
        return await self.call(INSTANCE_NETWORK_INTERFACE_CREATE, body=body, instance=instance, project=project)

    def instance_network_interface_list(
        self, *, instance: NameOrId, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[InstanceNetworkInterface]:
        """List an instance's interfaces."""
        return Paged(self, INSTANCE_NETWORK_INTERFACE_LIST, limit=limit, instance=instance, project=project)

    async def instance_network_interface_view(
        self, interface: NameOrId, *, instance: NameOrId | None = None, project: NameOrId | None = None
    ) -> InstanceNetworkInterface:
        """View one interface."""
        return await self.call(INSTANCE_NETWORK_INTERFACE_VIEW, interface=interface, instance=instance, project=project)

    async def instance_network_interface_update(
        self,
        interface: NameOrId,
        body: InstanceNetworkInterfaceUpdate,
        *,
        instance: NameOrId | None = None,
        project: NameOrId | None = None,
    ) -> InstanceNetworkInterface:
        """Change an interface; its transit addresses are overwritten each time."""
        return await self.call(
            INSTANCE_NETWORK_INTERFACE_UPDATE, body=body, interface=interface, instance=instance, project=project
        )

    async def instance_network_interface_delete(
        self, interface: NameOrId, *, instance: NameOrId | None = None, project: NameOrId | None = None
    ) -> None:
        """Remove an interface; the primary one goes last."""
        await self.call(INSTANCE_NETWORK_INTERFACE_DELETE, interface=interface, instance=instance, project=project)
