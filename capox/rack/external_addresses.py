"""External addresses of instances: from which pool they come, who may have them, how they go back (semantics 4.4, 6).

Records are changed at once here. What takes time, and what depends on an instance's state, is in `address_changes`.
"""

from __future__ import annotations

from typing import Literal

from capox.rack import address_changes, errors, external_prefixes, interfaces, names, records, select, views
from capox.rack.addresses import PORTS_PER_SHARE
from capox.rack.call import Call
from capox.rack.json import JSON
from capox.rack.state import Rack, address

EXTERNAL_IPS_MAXIMUM = 32
"""How many external IPs an instance may have, beside its source NAT address."""

EPHEMERAL_IPS_MAXIMUM = 2
"""How many of them may be ephemeral."""

Kind = Literal["ephemeral", "floating"]


def find_pool(call: Call, silo: records.Silo, selector: JSON) -> records.IpPool:
    """The pool that a selector means.

    Args:
        call: the request.
        silo: for whose linked pools.
        selector: schema `PoolSelector`. Requests of some older versions name a pool and a version, which have to agree.

    Raises:
        Refusal: 404, no such pool is linked to the silo; 400, it is a multicast pool, of another version, or two
            default pools come into question.
    """
    version: records.IpVersion | None = selector.get("ip_version")
    if selector["type"] == "auto":
        return default_pool(call.rack, silo, version)
    pool = linked_pool(call.rack, silo, selector["pool"])
    if pool.pool_type != "unicast":
        raise errors.invalid_request(f"pool '{pool.name}' holds {pool.pool_type} addresses; name a unicast pool")
    if version is not None and version != pool.version:
        raise errors.invalid_request(
            f"requested IP version ({version}) does not match pool '{pool.name}' version ({pool.version})"
        )
    return pool


def linked_pool(rack: Rack, silo: records.Silo, reference: str) -> records.IpPool:
    """The pool of this name or id among those that are linked to a silo.

    Raises:
        Refusal: 404.
    """
    table = rack.ip_pools
    by_id = names.is_uuid(reference)
    pool = table.by_id(names.parse_uuid(reference)) if by_id else table.by_name("fleet", reference)
    if pool is None or silo.id not in pool.links:
        raise select.missing(table.resource, reference)
    return pool


def default_pool(rack: Rack, silo: records.Silo, version: records.IpVersion | None) -> records.IpPool:
    """The silo's default pool.

    Raises:
        Refusal: 404, there is none (of the version); 400, there is one of each version and none was named.
    """
    pools = [
        pool
        for pool in rack.ip_pools
        if pool.links.get(silo.id, False) and pool.pool_type == "unicast" and version in {None, pool.version}
    ]
    if not pools:
        raise errors.not_found_text(f"default unicast IP{version or ''} pool for current silo")
    if len(pools) > 1:
        raise errors.invalid_request(
            "Multiple default unicast IP pools exist with different IP versions. "
            "Please specify ip_version (v4 or v6) or provide an explicit pool."
        )
    return pools[0]


def allocate(call: Call, silo: records.Silo, selector: JSON) -> tuple[records.IpPool, records.IpAddress]:
    """Take the lowest free address of the pool that a selector means.

    Raises:
        Refusal: as `find_pool`; 507, the pool has none left.
    """
    pool = find_pool(call, silo, selector)
    check_not_exhausted(call, pool)
    return pool, _take(call.rack, pool)


def allocate_exactly(call: Call, silo: records.Silo, ip: records.IpAddress) -> tuple[records.IpPool, records.IpAddress]:
    """Take this very address, out of the linked pool that has it.

    Raises:
        Refusal: 400, no linked pool has it, or it is in use.
    """
    for pool in call.rack.ip_pools:
        book = call.rack.pool_addresses[pool.id]
        is_of_family = pool.version == f"v{ip.version}" and pool.pool_type == "unicast"
        if silo.id in pool.links and is_of_family and int(ip) in book:
            if not book.claim(int(ip)):
                raise errors.invalid_request("Requested external IP address not available")
            return pool, ip
    raise errors.invalid_request(f"IP address {ip} is not in any configured pool")


def check_not_exhausted(call: Call, pool: records.IpPool) -> None:
    """Refuse when a pool has no whole address left, or a fault says so.

    Raises:
        Refusal: 507.
    """
    if _is_declared_exhausted(call, pool) or call.rack.pool_addresses[pool.id].peek() is None:
        raise _exhausted()


def give_back(rack: Rack, pool: str, ip: records.IpAddress) -> None:
    """Return an address to its pool; it can be taken again at once."""
    rack.pool_addresses[pool].release(int(ip))


def check_requested(call: Call, external_ips: list[JSON]) -> None:
    """Check the external IPs of a new instance before anything is written (semantics 2.2, 4.1).

    Args:
        call: the request.
        external_ips: items of schema `ExternalIpCreate`.

    Raises:
        Refusal: there are too many, or two ephemeral ones that are not one of each version.
    """
    if len(external_ips) > EXTERNAL_IPS_MAXIMUM:
        raise errors.invalid_request(f"An instance may not have more than {EXTERNAL_IPS_MAXIMUM} external IP addresses")
    selectors = [entry["pool_selector"] for entry in external_ips if entry["type"] == "ephemeral"]
    if len(selectors) > EPHEMERAL_IPS_MAXIMUM:
        raise errors.invalid_request(
            f"An instance may not have more than {EPHEMERAL_IPS_MAXIMUM} ephemeral IP addresses"
        )
    if len(selectors) == EPHEMERAL_IPS_MAXIMUM:
        _check_pair(call, *selectors)


def add_snat(call: Call, project: records.Project, instance: records.Instance) -> None:
    """Give a new instance its share of a source NAT address, if its primary interface has IPv4.

    Raises:
        Refusal: 404, the silo has no default IPv4 pool; 507, the pool has no share left.
    """
    if interfaces.private_address(call.rack, instance, "v4") is None:
        return
    pool = default_pool(call.rack, _silo_of(call.rack, project), "v4")
    share = None if _is_declared_exhausted(call, pool) else call.rack.snat_shares[pool.id].take()
    if share is None:
        raise _exhausted()
    number, first_port = share
    call.rack.snat_ips_of[instance.id] = records.SnatIp(
        id=call.rack.new_id(),
        ip=address(number, "v4"),
        pool=pool.id,
        instance=instance.id,
        first_port=first_port,
        last_port=first_port + PORTS_PER_SHARE - 1,
    )


def add_requested(call: Call, project: records.Project, instance: records.Instance, entry: JSON) -> None:
    """Give a new instance one of the external IPs that it asks for.

    Args:
        call: the request.
        project: of the instance.
        instance: the new instance.
        entry: schema `ExternalIpCreate`.

    Raises:
        Refusal: as `allocate` for an ephemeral one; 404, 403, 400, 503 for a floating one that is not there, not the
            caller's, not of the project, attached elsewhere, or being attached or detached; 400 for an address of a
            version that the primary interface lacks.
    """
    rack = call.rack
    if entry["type"] == "ephemeral":
        pool = find_pool(call, _silo_of(rack, project), entry["pool_selector"])
        check_not_exhausted(call, pool)
        check_room(rack, instance, "ephemeral", pool.version)
        add_ephemeral(rack, instance, pool)
        return
    floating = select.named_in(call, rack.floating_ips, project, entry["floating_ip"], "compute")
    if floating.project != project.id:
        raise errors.invalid_request("floating IP must be in the same project as the instance")
    address_changes.check_idle(floating)
    if floating.instance == instance.id:
        return
    check_unattached(floating)
    check_room(rack, instance, "floating", version_of(floating.ip))
    attach(rack, floating, instance)


def check_unattached(floating: records.FloatingIp) -> None:
    """Refuse to move a floating IP: it has to be detached first (semantics 6).

    Raises:
        Refusal: 400.
    """
    if floating.instance is not None:
        raise errors.invalid_request("floating IP cannot be attached to one instance while still attached to another")


def check_room(rack: Rack, instance: records.Instance, kind: Kind, version: records.IpVersion) -> None:
    """Check whether an instance can have one more external IP of this version.

    Raises:
        Refusal: 400, it has as many as it may, or its primary interface has no private address of the version.
    """
    count = len(rack.floating_ips_of.get(instance.id, ())) + len(rack.ephemeral_ips_of.get(instance.id, ()))
    # The limit counts the source NAT address of an instance that has one, and is raised by one for all (semantics 2.2).
    if count + (instance.id in rack.snat_ips_of) > EXTERNAL_IPS_MAXIMUM:
        raise errors.invalid_request(f"an instance may not have more than {EXTERNAL_IPS_MAXIMUM} external IP addresses")
    if interfaces.private_address(rack, instance, version) is None:
        raise errors.invalid_request(
            f"The {kind} external IP is an IP{version} address, but the instance with ID {instance.id} has no "
            f"VPC-private IP{version} address on its primary network interface. Attach an address of the other "
            f"version, or make an interface with IP{version} the primary one"
        )


def attach(rack: Rack, floating: records.FloatingIp, instance: records.Instance) -> None:
    """Record that a floating IP is attached to an instance."""
    floating.instance = instance.id
    floating.time_modified = rack.now()
    rack.floating_ips_of.setdefault(instance.id, {})[floating.id] = floating


def detach(rack: Rack, floating: records.FloatingIp) -> None:
    """Record that a floating IP is attached to nothing."""
    assert floating.instance is not None, "it is attached to nothing already"
    attached = rack.floating_ips_of[floating.instance]
    del attached[floating.id]
    if not attached:
        del rack.floating_ips_of[floating.instance]
    floating.instance = None
    floating.time_modified = rack.now()


def add_ephemeral(rack: Rack, instance: records.Instance, pool: records.IpPool) -> records.EphemeralIp:
    """Give an instance the lowest free address of a pool that has one."""
    ephemeral = records.EphemeralIp(id=rack.new_id(), ip=_take(rack, pool), pool=pool.id, instance=instance.id)
    rack.ephemeral_ips_of.setdefault(instance.id, []).append(ephemeral)
    return ephemeral


def remove_ephemeral(rack: Rack, ephemeral: records.EphemeralIp) -> None:
    """Take an ephemeral IP away from its instance and give its address back."""
    held = rack.ephemeral_ips_of[ephemeral.instance]
    held.remove(ephemeral)
    if not held:
        del rack.ephemeral_ips_of[ephemeral.instance]
    give_back(rack, ephemeral.pool, ephemeral.ip)


def release_addresses(rack: Rack, instance: records.Instance) -> None:
    """Take everything external from an instance that is deleted: free what was its own, detach what outlives it.

    An attach or detach that is under way is overtaken by this.
    """
    for ephemeral in list(rack.ephemeral_ips_of.get(instance.id, ())):
        ephemeral.change = None
        remove_ephemeral(rack, ephemeral)
    for floating in list(rack.floating_ips_of.get(instance.id, {}).values()):
        floating.change = None
        detach(rack, floating)
    for subnet in list(rack.external_subnets_of.get(instance.id, {}).values()):
        subnet.change = None
        external_prefixes.detach(rack, subnet)
    snat = rack.snat_ips_of.pop(instance.id, None)
    if snat is not None:
        rack.snat_shares[snat.pool].release(int(snat.ip), snat.first_port)


def versions_of(rack: Rack, instance: records.Instance) -> set[records.IpVersion]:
    """The versions of all external addresses of an instance, that for source NAT included."""
    held: list[records.IpAddress] = [floating.ip for floating in rack.floating_ips_of.get(instance.id, {}).values()]
    held += [ephemeral.ip for ephemeral in rack.ephemeral_ips_of.get(instance.id, ())]
    if instance.id in rack.snat_ips_of:
        held.append(rack.snat_ips_of[instance.id].ip)
    return {version_of(ip) for ip in held}


def version_of(ip: records.IpAddress | records.IpNetwork) -> records.IpVersion:
    """The version of an address or a network."""
    return "v4" if ip.version == 4 else "v6"


def floating_view(floating: records.FloatingIp) -> JSON:
    """Schema `FloatingIp`."""
    return views.identity(floating) | {
        "ip": str(floating.ip),
        "ip_pool_id": floating.pool,
        "project_id": floating.project,
        "instance_id": floating.instance,
    }


def ephemeral_view(ephemeral: records.EphemeralIp) -> JSON:
    """Schema `ExternalIp`, kind `ephemeral`."""
    return {"kind": "ephemeral", "ip": str(ephemeral.ip), "ip_pool_id": ephemeral.pool}


def snat_view(snat: records.SnatIp) -> JSON:
    """Schema `ExternalIp`, kind `snat`."""
    return {
        "kind": "snat",
        "ip": str(snat.ip),
        "ip_pool_id": snat.pool,
        "first_port": snat.first_port,
        "last_port": snat.last_port,
    }


def _check_pair(call: Call, first: JSON, second: JSON) -> None:
    """Check that two ephemeral IPs are one of each version, and that both say so."""
    if any(selector["type"] == "auto" and selector.get("ip_version") is None for selector in (first, second)):
        raise errors.invalid_request(
            "when requesting two ephemeral IPs, IP version or explicit pool name must be specified on each"
        )
    if first["type"] == second["type"] == "explicit" and first["pool"] == second["pool"]:
        raise errors.invalid_request("cannot request two ephemeral IPs from the same pool")
    versions = [
        selector["ip_version"] if selector["type"] == "auto" else find_pool(call, call.actor.silo, selector).version
        for selector in (first, second)
    ]
    if versions[0] == versions[1]:
        raise errors.invalid_request(f"cannot request two ephemeral IPs of the same version ({versions[0]})")


def _take(rack: Rack, pool: records.IpPool) -> records.IpAddress:
    number = rack.pool_addresses[pool.id].take()
    assert number is not None, "the pool had an address when it was looked at"
    return address(number, pool.version)


def _is_declared_exhausted(call: Call, pool: records.IpPool) -> bool:
    return call.faults.strikes("pool_exhausted", call.operation, (pool.name, pool.id))


def _exhausted() -> errors.Refusal:
    return errors.insufficient_capacity("No external IP addresses available")


def _silo_of(rack: Rack, project: records.Project) -> records.Silo:
    silo = rack.silos.by_id(project.silo)
    assert silo is not None, "a project outlived its silo"
    return silo
