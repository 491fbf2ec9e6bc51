"""VPCs (semantics 7.1)."""

from __future__ import annotations

import ipaddress

from capox.rack import networks, records, select, views
from capox.rack.access import Need
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def vpc_list(call: Call) -> JSON:
    """`GET /v1/vpcs`: those of a project."""
    return call.page(call.rack.vpcs, select.project_of_query(call).id, view)


@operation
def vpc_create(call: Call) -> JSON:
    """`POST /v1/vpcs`: a VPC with its system router, gateway, subnet and firewall rules."""
    project = select.project_of_query(call, "network")
    body = call.body
    check_description(body["description"])
    prefix = body["ipv6_prefix"]
    vpc = networks.add_vpc(
        call.rack,
        project,
        name=body["name"],
        description=body["description"],
        dns_name=body["dns_name"],
        ipv6_prefix=ipaddress.IPv6Network(prefix, strict=False) if prefix is not None else None,
    )
    return view(vpc)


@operation
def vpc_view(call: Call) -> JSON:
    """`GET /v1/vpcs/{vpc}`."""
    return view(_of_path(call))


@operation
def vpc_update(call: Call) -> JSON:
    """`PUT /v1/vpcs/{vpc}`: name, description and DNS name. Firewall rules go on naming the VPC by its old name."""
    vpc = call.update_identity(call.rack.vpcs, _of_path(call, "network"))
    if call.body["dns_name"] is not None:
        vpc.dns_name = call.body["dns_name"]
    return view(vpc)


@operation
def vpc_delete(call: Call) -> JSON:
    """`DELETE /v1/vpcs/{vpc}`: only one without subnets."""
    networks.remove_vpc(call.rack, _of_path(call, "network"))


def view(vpc: records.Vpc) -> JSON:
    """Schema `Vpc`."""
    return views.identity(vpc) | {
        "project_id": vpc.project,
        "system_router_id": vpc.system_router,
        "ipv6_prefix": str(vpc.ipv6_prefix),
        "dns_name": vpc.dns_name,
    }


def _of_path(call: Call, need: Need = "read") -> records.Vpc:
    return select.in_project(call, call.rack.vpcs, call.path["vpc"], select.VPC, need)
