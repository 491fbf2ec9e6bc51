"""Subnets of VPCs, and the NICs in them (semantics 7.3)."""

from __future__ import annotations

import ipaddress

from capox.rack import errors, interfaces, names, networks, paging, records, select, views, vpc_scope
from capox.rack.access import Need
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def vpc_subnet_list(call: Call) -> JSON:
    """`GET /v1/vpc-subnets`: those of a VPC."""
    return call.page(call.rack.subnets, vpc_scope.vpc_of_query(call).id, view)


@operation
def vpc_subnet_create(call: Call) -> JSON:
    """`POST /v1/vpc-subnets`."""
    vpc = vpc_scope.vpc_of_query(call, "network")
    body = call.body
    check_description(body["description"])
    _check_router(call, vpc, body["custom_router"])
    block = body["ipv6_block"]
    subnet = networks.add_subnet(
        call.rack,
        vpc,
        name=body["name"],
        description=body["description"],
        ipv4_block=ipaddress.IPv4Network(body["ipv4_block"], strict=False),
        ipv6_block=ipaddress.IPv6Network(block, strict=False) if block is not None else None,
    )
    return view(subnet)


@operation
def vpc_subnet_view(call: Call) -> JSON:
    """`GET /v1/vpc-subnets/{subnet}`."""
    return view(_of_path(call))


@operation
def vpc_subnet_update(call: Call) -> JSON:
    """`PUT /v1/vpc-subnets/{subnet}`: name and description; the blocks stay as they are."""
    subnet = _of_path(call, "network")
    vpc = call.rack.vpcs.by_id(subnet.vpc)
    assert vpc is not None, "a subnet outlived its VPC"
    _check_router(call, vpc, call.body["custom_router"])
    old_name = subnet.name
    call.update_identity(call.rack.subnets, subnet)
    if subnet.name != old_name:
        networks.follow_subnet_name(call.rack, subnet, old_name)
    return view(subnet)


@operation
def vpc_subnet_delete(call: Call) -> JSON:
    """`DELETE /v1/vpc-subnets/{subnet}`: only one without NICs."""
    networks.remove_subnet(call.rack, _of_path(call, "network"))


@operation
def vpc_subnet_list_network_interfaces(call: Call) -> JSON:
    """`GET /v1/vpc-subnets/{subnet}/network-interfaces`: NICs of all instances, whose names may be equal."""
    listing, at = call.rack.network_interfaces_in[_of_path(call).id], call.at

    def key(interface: records.NetworkInterface) -> str:
        return interface.id if at.order == paging.ID_ASCENDING else interface.name

    return paging.page(listing.walk(at.order, at.after), at, interfaces.interface_view, key)


def view(subnet: records.VpcSubnet) -> JSON:
    """Schema `VpcSubnet`."""
    return views.identity(subnet) | {
        "vpc_id": subnet.vpc,
        "ipv4_block": str(subnet.ipv4_block),
        "ipv6_block": str(subnet.ipv6_block),
        "custom_router_id": subnet.custom_router,
    }


def _of_path(call: Call, need: Need = "read") -> records.VpcSubnet:
    return vpc_scope.in_vpc(call, call.rack.subnets, call.path["subnet"], vpc_scope.SUBNET, need)


def _check_router(call: Call, vpc: records.Vpc, reference: str | None) -> None:
    """Refuse a router that a subnet cannot have. This rack makes no custom ones, so that leaves none."""
    if reference is None:
        return
    table = call.rack.routers
    by_id = names.is_uuid(reference)
    router = table.by_id(names.parse_uuid(reference)) if by_id else table.by_name(vpc.id, reference)
    if router is None or router.vpc != vpc.id:
        raise select.missing(table.resource, reference)
    raise errors.invalid_request(f"custom_router: '{router.name}' is a {router.kind} router; leave the field out")
