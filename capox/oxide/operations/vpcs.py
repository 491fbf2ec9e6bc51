"""VPCs, their subnets and their firewall (semantics 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capox.oxide.models.firewall import VpcFirewallRules, VpcFirewallRulesUpdate
from capox.oxide.models.network_interfaces import InstanceNetworkInterface
from capox.oxide.models.vpcs import Vpc, VpcSubnet
from capox.oxide.models.wire import ResultsPage
from capox.oxide.operation import PAGE_LIMIT, Caller, Paged, pages, view, write

if TYPE_CHECKING:
    from capox.oxide.models.wire import NameOrId

_SUBNET = "/v1/vpc-subnets/{subnet}"
_FIREWALL = "/v1/vpc-firewall-rules"

VPC_LIST = pages("vpc_list", "/v1/vpcs", ResultsPage[Vpc], "project")
VPC_VIEW = view("vpc_view", "/v1/vpcs/{vpc}", Vpc, "project")
VPC_SUBNET_LIST = pages("vpc_subnet_list", "/v1/vpc-subnets", ResultsPage[VpcSubnet], "project", "vpc")
VPC_SUBNET_VIEW = view("vpc_subnet_view", _SUBNET, VpcSubnet, "project", "vpc")
VPC_SUBNET_LIST_NETWORK_INTERFACES = pages(
    "vpc_subnet_list_network_interfaces",
    f"{_SUBNET}/network-interfaces",
    ResultsPage[InstanceNetworkInterface],
    "project",
    "vpc",
)
VPC_FIREWALL_RULES_VIEW = view("vpc_firewall_rules_view", _FIREWALL, VpcFirewallRules, "project", "vpc")
VPC_FIREWALL_RULES_UPDATE = write(
    "vpc_firewall_rules_update",
    "PUT",
    _FIREWALL,
    VpcFirewallRules,
    "project",
    "vpc",
    status=200,
    body=VpcFirewallRulesUpdate,
)


class VpcOperations(Caller):
    """Networks. `vpc` belongs to a subnet's name, and `project` to the VPC's name."""

    def vpc_list(self, *, project: NameOrId, limit: int = PAGE_LIMIT) -> Paged[Vpc]:
        """List a project's VPCs."""
        return Paged(self, VPC_LIST, limit=limit, project=project)

    async def vpc_view(self, vpc: NameOrId, *, project: NameOrId | None = None) -> Vpc:
        """View one VPC."""
        return await self.call(VPC_VIEW, vpc=vpc, project=project)

    def vpc_subnet_list(
        self, *, vpc: NameOrId, project: NameOrId | None = None, limit: int = PAGE_LIMIT
    ) -> Paged[VpcSubnet]:
        """List a VPC's subnets."""
        return Paged(self, VPC_SUBNET_LIST, limit=limit, vpc=vpc, project=project)

    async def vpc_subnet_view(
        self, subnet: NameOrId, *, vpc: NameOrId | None = None, project: NameOrId | None = None
    ) -> VpcSubnet:
        """View one subnet."""
        return await self.call(VPC_SUBNET_VIEW, subnet=subnet, vpc=vpc, project=project)

    def vpc_subnet_list_network_interfaces(
        self,
        subnet: NameOrId,
        *,
        vpc: NameOrId | None = None,
        project: NameOrId | None = None,
        limit: int = PAGE_LIMIT,
    ) -> Paged[InstanceNetworkInterface]:
        """List the interfaces in a subnet, of all instances: their addresses in one list."""
        return Paged(self, VPC_SUBNET_LIST_NETWORK_INTERFACES, limit=limit, subnet=subnet, vpc=vpc, project=project)

    async def vpc_firewall_rules_view(self, *, vpc: NameOrId, project: NameOrId | None = None) -> VpcFirewallRules:
        """View all rules of a VPC."""
        return await self.call(VPC_FIREWALL_RULES_VIEW, vpc=vpc, project=project)

    async def vpc_firewall_rules_update(
        self, body: VpcFirewallRulesUpdate, *, vpc: NameOrId, project: NameOrId | None = None
    ) -> VpcFirewallRules:
        """Replace all rules of a VPC: those not in the body vanish, the last writer wins (semantics 7.2)."""
        return await self.call(VPC_FIREWALL_RULES_UPDATE, body=body, vpc=vpc, project=project)
