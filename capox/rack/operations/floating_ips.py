"""Floating IPs: addresses that outlive the instances to which they are attached (semantics 3.2, 6)."""

from __future__ import annotations

import ipaddress

from capox.rack import address_changes, errors, external_addresses, records, select
from capox.rack.access import Need
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def floating_ip_list(call: Call) -> JSON:
    """`GET /v1/floating-ips`: those of a project."""
    project = select.project_of_query(call)
    return call.page(call.rack.floating_ips, project.id, external_addresses.floating_view)


@operation
def floating_ip_create(call: Call) -> JSON:
    """`POST /v1/floating-ips`: this very address, or the lowest free one of a pool."""
    project = select.project_of_query(call, "compute")
    rack, body = call.rack, call.body
    check_description(body["description"])
    allocator, silo = body["address_allocator"], call.actor.silo
    if allocator["type"] == "explicit":
        pool, ip = external_addresses.allocate_exactly(call, silo, ipaddress.ip_address(allocator["ip"]))
    else:
        pool, ip = external_addresses.allocate(call, silo, allocator["pool_selector"])
    floating = records.FloatingIp(
        **rack.identity(body["name"], body["description"]), project=project.id, ip=ip, pool=pool.id
    )
    try:
        rack.floating_ips.insert(floating)
    except errors.Refusal:
        external_addresses.give_back(rack, pool.id, ip)
        raise
    return external_addresses.floating_view(floating)


@operation
def floating_ip_view(call: Call) -> JSON:
    """`GET /v1/floating-ips/{floating_ip}`."""
    return external_addresses.floating_view(_of_path(call))


@operation
def floating_ip_update(call: Call) -> JSON:
    """`PUT /v1/floating-ips/{floating_ip}`: name and description."""
    floating = call.update_identity(call.rack.floating_ips, _of_path(call, "compute"))
    return external_addresses.floating_view(floating)


@operation
def floating_ip_delete(call: Call) -> JSON:
    """`DELETE /v1/floating-ips/{floating_ip}`: only one that is attached to nothing."""
    floating = _of_path(call, "compute")
    if floating.instance is not None:
        raise errors.invalid_request("Floating IP cannot be deleted while attached to an instance")
    call.rack.floating_ips.delete(floating)
    external_addresses.give_back(call.rack, floating.pool, floating.ip)


@operation
async def floating_ip_attach(call: Call) -> JSON:
    """`POST /v1/floating-ips/{floating_ip}/attach`: without effect when it is attached to this instance already."""
    floating = _of_path(call, "compute")
    rack = call.rack
    owner = select.owner_of(call, floating)
    instance = select.named_in(call, rack.instances, owner, call.body["parent"], "compute")
    if instance.project != floating.project:
        raise errors.invalid_request("floating IP must be in the same project as the instance")
    address_changes.check_idle(floating)
    if floating.instance == instance.id:
        address_changes.check_settled(instance)
        return external_addresses.floating_view(floating)
    external_addresses.check_unattached(floating)
    address_changes.check_changeable(instance, "cannot attach floating IP to instance in {state} state")
    external_addresses.check_room(rack, instance, "floating", external_addresses.version_of(floating.ip))
    address_changes.check_settled(instance)
    external_addresses.attach(rack, floating, instance)
    answer = external_addresses.floating_view(floating)
    if not await address_changes.carry_out(call, floating, instance, lambda: external_addresses.detach(rack, floating)):
        raise errors.not_found(rack.instances.resource, identity=instance.id)
    floating.time_modified = rack.now()
    return answer


@operation
async def floating_ip_detach(call: Call) -> JSON:
    """`POST /v1/floating-ips/{floating_ip}/detach`: the answer still names the instance; the next view does not."""
    floating = _of_path(call, "compute")
    rack = call.rack
    if floating.instance is None:
        return external_addresses.floating_view(floating)
    instance = rack.instances.by_id(floating.instance)
    assert instance is not None, "a floating IP is attached to an instance that is gone"
    address_changes.check_idle(floating)
    address_changes.check_changeable(instance, "cannot detach floating IP from instance in {state} state")
    address_changes.check_settled(instance)
    floating.time_modified = rack.now()
    answer = external_addresses.floating_view(floating)
    if await address_changes.carry_out(call, floating, instance, lambda: None):
        external_addresses.detach(rack, floating)
    return answer


def _of_path(call: Call, need: Need = "read") -> records.FloatingIp:
    return select.in_project(call, call.rack.floating_ips, call.path["floating_ip"], select.FLOATING_IP, need)
