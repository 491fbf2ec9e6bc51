"""IP pools and subnet pools as a silo sees them: those that are linked to it (semantics 8)."""

from __future__ import annotations

from typing import TypeVar

from capox.rack import external_addresses, external_prefixes, records, views
from capox.rack.call import Call, operation
from capox.rack.json import JSON

P = TypeVar("P", records.IpPool, records.SubnetPool)


@operation
def ip_pool_list(call: Call) -> JSON:
    """`GET /v1/ip-pools`: those linked to the caller's silo, of a version or a type when the query asks for one."""
    version, pool_type = call.query.get("ip_version"), call.query.get("pool_type")

    def is_shown(pool: records.IpPool) -> bool:
        is_wanted = version in {None, pool.version} and pool_type in {None, pool.pool_type}
        return is_wanted and call.actor.silo.id in pool.links

    return call.page(call.rack.ip_pools, "fleet", lambda pool: _ip_pool_view(call, pool), is_shown)


@operation
def ip_pool_view(call: Call) -> JSON:
    """`GET /v1/ip-pools/{pool}`: one that is not linked to the caller's silo is not found."""
    return _ip_pool_view(call, external_addresses.linked_pool(call.rack, call.actor.silo, call.path["pool"]))


@operation
def subnet_pool_list(call: Call) -> JSON:
    """`GET /v1/subnet-pools`: those linked to the caller's silo."""

    def is_shown(pool: records.SubnetPool) -> bool:
        return call.actor.silo.id in pool.links

    return call.page(call.rack.subnet_pools, "fleet", lambda pool: _pool_view(call, pool), is_shown)


@operation
def subnet_pool_view(call: Call) -> JSON:
    """`GET /v1/subnet-pools/{pool}`: one that is not linked to the caller's silo is not found."""
    return _pool_view(call, external_prefixes.linked_pool(call.rack, call.actor.silo, call.path["pool"]))


def _ip_pool_view(call: Call, pool: records.IpPool) -> JSON:
    """Schema `SiloIpPool`."""
    return _pool_view(call, pool) | {"pool_type": pool.pool_type}


def _pool_view(call: Call, pool: P) -> JSON:
    """Schema `SiloSubnetPool`, and what an IP pool has in common with it."""
    return views.identity(pool) | {"ip_version": pool.version, "is_default": pool.links[call.actor.silo.id]}
