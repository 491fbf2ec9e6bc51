"""Internet gateways of VPCs and the IP pools attached to them, to be looked at (semantics 7.1, 7.4)."""

from __future__ import annotations

from capox.rack import records, views, vpc_scope
from capox.rack.call import Call, operation
from capox.rack.json import JSON


@operation
def internet_gateway_list(call: Call) -> JSON:
    """`GET /v1/internet-gateways`: those of a VPC."""
    return call.page(call.rack.gateways, vpc_scope.vpc_of_query(call).id, _gateway_view)


@operation
def internet_gateway_view(call: Call) -> JSON:
    """`GET /v1/internet-gateways/{gateway}`."""
    return _gateway_view(vpc_scope.in_vpc(call, call.rack.gateways, call.path["gateway"], vpc_scope.GATEWAY))


@operation
def internet_gateway_ip_pool_list(call: Call) -> JSON:
    """`GET /v1/internet-gateway-ip-pools`: those attached to a gateway."""
    gateway = vpc_scope.in_vpc(call, call.rack.gateways, call.query["gateway"], vpc_scope.GATEWAY)
    return call.page(call.rack.gateway_ip_pools, gateway.id, _attached_view)


def _gateway_view(gateway: records.InternetGateway) -> JSON:
    """Schema `InternetGateway`."""
    return views.identity(gateway) | {"vpc_id": gateway.vpc}


def _attached_view(attached: records.InternetGatewayIpPool) -> JSON:
    """Schema `InternetGatewayIpPool`."""
    return views.identity(attached) | {"internet_gateway_id": attached.gateway, "ip_pool_id": attached.pool}
