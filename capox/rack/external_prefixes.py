"""External subnets: prefixes cut out of subnet pools (semantics 8)."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterator

from capox.rack import errors, interfaces, names, records, select, views
from capox.rack.addresses import LowestFree
from capox.rack.call import Call
from capox.rack.json import JSON
from capox.rack.state import Rack

ATTACHED_MAXIMUM = 32
"""How many external subnets an instance may have."""


def linked_pool(rack: Rack, silo: records.Silo, reference: str) -> records.SubnetPool:
    """The pool of this name or id among those that are linked to a silo.

    Raises:
        Refusal: 404.
    """
    table = rack.subnet_pools
    by_id = names.is_uuid(reference)
    pool = table.by_id(names.parse_uuid(reference)) if by_id else table.by_name("fleet", reference)
    if pool is None or silo.id not in pool.links:
        raise select.missing(table.resource, reference)
    return pool


def allocate(
    call: Call, silo: records.Silo, allocator: JSON
) -> tuple[records.SubnetPool, records.IpNetwork, records.IpNetwork]:
    """Take the prefix that is asked for, or the lowest free one of a length.

    Args:
        call: the request.
        silo: for whose linked pools.
        allocator: schema `ExternalSubnetAllocator`.

    Returns:
        The pool, the network of the pool that the prefix was cut out of, and the prefix.

    Raises:
        Refusal: 404, no such pool is linked to the silo; 400, no pool has the prefix, it overlaps one that is in use,
            no prefix of the length is left, there is no default pool, or there are two and no version was named.
    """
    if allocator["type"] == "explicit":
        return _claim(call.rack, silo, ipaddress.ip_network(allocator["subnet"], strict=False))
    selector = allocator["pool_selector"]
    if selector["type"] == "explicit":
        pool = linked_pool(call.rack, silo, selector["pool"])
    else:
        pool = _default_pool(call.rack, silo, selector["ip_version"])
    length = allocator["prefix_length"]
    candidates = []
    for member in pool.networks:
        if member.prefixlen <= length <= member.max_prefixlen:
            size = 2 ** (member.max_prefixlen - length)
            first = book_of(call.rack, pool, member).peek_block(size)
            if first is not None:
                candidates.append((first, size, member))
    if not candidates:
        raise errors.invalid_request(f"subnet pool '{pool.name}' has no /{length} subnet left to allocate")
    first, size, member = min(candidates, key=lambda candidate: candidate[0])
    claimed = book_of(call.rack, pool, member).claim_block(first, size)
    assert claimed, "the block was free when it was looked at"
    return pool, member, _network(first, length, member)


def give_back(rack: Rack, pool: records.SubnetPool, network: records.IpNetwork) -> None:
    """Return a prefix to its pool; it can be taken again at once."""
    member = next(member for member in pool.networks if _contains(member, network))
    book_of(rack, pool, member).release_block(int(network.network_address), network.num_addresses)


def book_of(rack: Rack, pool: records.SubnetPool, member: records.IpNetwork) -> LowestFree:
    """Which addresses of a pool's network are in use."""
    identity = member_id(pool, member)
    if identity not in rack.subnet_pool_addresses:
        edges = (int(member.network_address), int(member.broadcast_address))
        rack.subnet_pool_addresses[identity] = LowestFree([edges])
    return rack.subnet_pool_addresses[identity]


def member_id(pool: records.SubnetPool, member: records.IpNetwork) -> str:
    """The id of one of a pool's networks, which follows from both."""
    return str(uuid.uuid5(uuid.UUID(pool.id), str(member)))


def check_room(rack: Rack, instance: records.Instance, version: records.IpVersion) -> None:
    """Check whether an instance can have one more external subnet of this version.

    Raises:
        Refusal: 400, it has as many as it may, or its primary interface has no private address of the version.
    """
    if len(rack.external_subnets_of.get(instance.id, ())) >= ATTACHED_MAXIMUM:
        raise errors.invalid_request(f"An instance may not have more than {ATTACHED_MAXIMUM} attached subnets")
    if interfaces.private_address(rack, instance, version) is None:
        raise errors.invalid_request(
            f"an IP{version} external subnet needs a primary network interface with a private IP{version} address, "
            f"which the instance with ID {instance.id} does not have"
        )


def attach(rack: Rack, subnet: records.ExternalSubnet, instance: records.Instance) -> None:
    """Record that an external subnet is attached to an instance."""
    subnet.instance = instance.id
    subnet.time_modified = rack.now()
    rack.external_subnets_of.setdefault(instance.id, {})[subnet.id] = subnet


def detach(rack: Rack, subnet: records.ExternalSubnet) -> None:
    """Record that an external subnet is attached to nothing."""
    assert subnet.instance is not None, "it is attached to nothing already"
    attached = rack.external_subnets_of[subnet.instance]
    del attached[subnet.id]
    if not attached:
        del rack.external_subnets_of[subnet.instance]
    subnet.instance = None
    subnet.time_modified = rack.now()


def subnet_view(subnet: records.ExternalSubnet) -> JSON:
    """Schema `ExternalSubnet`."""
    return views.identity(subnet) | {
        "subnet": str(subnet.subnet),
        "subnet_pool_id": subnet.pool,
        "subnet_pool_member_id": subnet.pool_member,
        "project_id": subnet.project,
        "instance_id": subnet.instance,
    }


def _claim(
    rack: Rack, silo: records.Silo, network: records.IpNetwork
) -> tuple[records.SubnetPool, records.IpNetwork, records.IpNetwork]:
    for pool, member in _linked_networks(rack, silo):
        if _contains(member, network):
            book = book_of(rack, pool, member)
            if not book.claim_block(int(network.network_address), network.num_addresses):
                raise errors.invalid_request(f"subnet {network} overlaps an external subnet that exists already")
            return pool, member, network
    raise errors.invalid_request(f"subnet {network} is not part of any subnet pool linked to the current silo")


def _default_pool(rack: Rack, silo: records.Silo, version: records.IpVersion | None) -> records.SubnetPool:
    pools = [pool for pool in rack.subnet_pools if pool.links.get(silo.id, False) and version in {None, pool.version}]
    if not pools:
        raise errors.invalid_request(
            "Must specify a subnet pool, as there is no linked default pool for the current silo"
        )
    if len(pools) > 1:
        raise errors.invalid_request(
            "the silo has default subnet pools of both IP versions; specify ip_version (v4 or v6) or a pool"
        )
    return pools[0]


def _linked_networks(rack: Rack, silo: records.Silo) -> Iterator[tuple[records.SubnetPool, records.IpNetwork]]:
    for pool in rack.subnet_pools:
        if silo.id in pool.links:
            for member in pool.networks:
                yield pool, member


def _contains(member: records.IpNetwork, network: records.IpNetwork) -> bool:
    first, last = int(network.network_address), int(network.broadcast_address)
    is_of_family = member.version == network.version
    return is_of_family and int(member.network_address) <= first and last <= int(member.broadcast_address)


def _network(first: int, length: int, member: records.IpNetwork) -> records.IpNetwork:
    if member.version == 4:
        return ipaddress.IPv4Network((first, length))
    return ipaddress.IPv6Network((first, length))
