"""External addresses as an instance sees them: its list, and its ephemeral IPs (semantics 4.4, 6)."""

from __future__ import annotations

from capox.rack import address_changes, errors, external_addresses, paging, records, vpc_scope
from capox.rack.call import Call, operation
from capox.rack.json import JSON


@operation
def instance_external_ip_list(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/external-ips`: in one piece, with the address for source NAT.

    What is being attached or detached is not listed.
    """
    instance = vpc_scope.instance_of_path(call)
    rack = call.rack
    listed: list[JSON] = []
    if instance.id in rack.snat_ips_of:
        listed.append(external_addresses.snat_view(rack.snat_ips_of[instance.id]))
    listed += [
        external_addresses.ephemeral_view(ephemeral)
        for ephemeral in rack.ephemeral_ips_of.get(instance.id, ())
        if ephemeral.change is None
    ]
    listed += [
        {"kind": "floating"} | external_addresses.floating_view(floating)
        for floating in rack.floating_ips_of.get(instance.id, {}).values()
        if floating.change is None
    ]
    return paging.whole(listed, lambda item: item)


@operation
async def instance_ephemeral_ip_attach(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/external-ips/ephemeral`.

    Without effect when the instance has one of the version already, even from an exhausted pool.
    """
    instance = vpc_scope.instance_of_path(call, "compute")
    rack = call.rack
    pool = external_addresses.find_pool(call, call.actor.silo, call.body["pool_selector"])
    held = _held(call, instance).get(pool.version)
    try:
        external_addresses.check_not_exhausted(call, pool)
    except errors.Refusal:
        if held is None:
            raise
    else:
        address_changes.check_changeable(instance, "cannot attach ephemeral IP to instance in {state} state")
    if held is not None:
        address_changes.check_idle(held)
        address_changes.check_settled(instance)
        return external_addresses.ephemeral_view(held)
    external_addresses.check_room(rack, instance, "ephemeral", pool.version)
    address_changes.check_settled(instance)
    ephemeral = external_addresses.add_ephemeral(rack, instance, pool)
    is_ours = await address_changes.carry_out(
        call, ephemeral, instance, lambda: external_addresses.remove_ephemeral(rack, ephemeral)
    )
    if not is_ours:
        raise errors.not_found(rack.instances.resource, identity=instance.id)
    return external_addresses.ephemeral_view(ephemeral)


@operation
async def instance_ephemeral_ip_detach(call: Call) -> JSON:
    """`DELETE /v1/instances/{instance}/external-ips/ephemeral`: unlike a floating IP, there has to be one."""
    instance = vpc_scope.instance_of_path(call, "compute")
    held = _held(call, instance)
    version = call.query.get("ip_version")
    if version is None and len(held) > 1:
        raise errors.invalid_request("instance has two ephemeral IPs; specify ip_version to select which to detach")
    ephemeral = held.get(version) if version is not None else next(iter(held.values()), None)
    if ephemeral is None:
        address_changes.check_settled(instance)
        raise errors.invalid_request("instance does not have an ephemeral IP attached")
    address_changes.check_idle(ephemeral)
    address_changes.check_changeable(instance, "cannot detach ephemeral IP from instance in {state} state")
    address_changes.check_settled(instance)
    if await address_changes.carry_out(call, ephemeral, instance, lambda: None):
        external_addresses.remove_ephemeral(call.rack, ephemeral)


def _held(call: Call, instance: records.Instance) -> dict[records.IpVersion, records.EphemeralIp]:
    """The ephemeral IPs of an instance: at most one of each version."""
    return {
        external_addresses.version_of(ephemeral.ip): ephemeral
        for ephemeral in call.rack.ephemeral_ips_of.get(instance.id, ())
    }
