"""Routers of VPCs and their routes, to be looked at: this rack makes no custom ones (semantics 7.1)."""

from __future__ import annotations

from capox.rack import errors, names, records, select, views, vpc_scope
from capox.rack.call import Call, operation
from capox.rack.json import JSON


@operation
def vpc_router_list(call: Call) -> JSON:
    """`GET /v1/vpc-routers`: those of a VPC."""
    return call.page(call.rack.routers, vpc_scope.vpc_of_query(call).id, _router_view)


@operation
def vpc_router_view(call: Call) -> JSON:
    """`GET /v1/vpc-routers/{router}`."""
    return _router_view(vpc_scope.in_vpc(call, call.rack.routers, call.path["router"], vpc_scope.ROUTER))


@operation
def vpc_router_route_list(call: Call) -> JSON:
    """`GET /v1/vpc-router-routes`: those of a router."""
    router = vpc_scope.in_vpc(call, call.rack.routers, call.query["router"], vpc_scope.ROUTER)
    return call.page(call.rack.routes, router.id, _route_view)


@operation
def vpc_router_route_view(call: Call) -> JSON:
    """`GET /v1/vpc-router-routes/{route}`."""
    table, reference = call.rack.routes, call.path["route"]
    if names.is_uuid(reference):
        if call.query.keys() & {"router", "vpc", "project"}:
            raise errors.invalid_request(
                "when providing route as an ID router, subnet, vpc, and project should not be specified"
            )
        route = table.by_id(reference)
        router = call.rack.routers.by_id(route.router) if route is not None else None
        if router is None or not vpc_scope.is_visible(call, router.vpc):
            route = None
    else:
        if "router" not in call.query:
            raise errors.invalid_request("route should either be an ID or router should be specified")
        router = vpc_scope.in_vpc(call, call.rack.routers, call.query["router"], vpc_scope.ROUTER)
        route = table.by_name(router.id, reference)
    if route is None:
        raise select.missing(table.resource, reference)
    return _route_view(route)


def _router_view(router: records.VpcRouter) -> JSON:
    """Schema `VpcRouter`."""
    return views.identity(router) | {"vpc_id": router.vpc, "kind": router.kind}


def _route_view(route: records.RouterRoute) -> JSON:
    """Schema `RouterRoute`."""
    return views.identity(route) | {
        "vpc_router_id": route.router,
        "kind": route.kind,
        "destination": route.destination,
        "target": route.target,
    }
