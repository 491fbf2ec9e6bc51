"""External subnets: routable prefixes that can be attached to an instance (semantics 8)."""

from __future__ import annotations

from capox.rack import (
    address_changes,
    errors,
    external_addresses,
    external_prefixes,
    paging,
    records,
    select,
    vpc_scope,
)
from capox.rack.access import Need
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def external_subnet_list(call: Call) -> JSON:
    """`GET /v1/external-subnets`: those of a project."""
    project = select.project_of_query(call)
    return call.page(call.rack.external_subnets, project.id, external_prefixes.subnet_view)


@operation
def external_subnet_create(call: Call) -> JSON:
    """`POST /v1/external-subnets`: this very prefix, or the lowest free one of a length."""
    project = select.project_of_query(call, "compute")
    rack, body = call.rack, call.body
    check_description(body["description"])
    pool, member, network = external_prefixes.allocate(call, call.actor.silo, body["allocator"])
    subnet = records.ExternalSubnet(
        **rack.identity(body["name"], body["description"]),
        project=project.id,
        subnet=network,
        pool=pool.id,
        pool_member=external_prefixes.member_id(pool, member),
    )
    try:
        rack.external_subnets.insert(subnet)
    except errors.Refusal:
        external_prefixes.give_back(rack, pool, network)
        raise
    return external_prefixes.subnet_view(subnet)


@operation
def external_subnet_view(call: Call) -> JSON:
    """`GET /v1/external-subnets/{external_subnet}`."""
    return external_prefixes.subnet_view(_of_path(call))


@operation
def external_subnet_update(call: Call) -> JSON:
    """`PUT /v1/external-subnets/{external_subnet}`: name and description."""
    subnet = call.update_identity(call.rack.external_subnets, _of_path(call, "compute"))
    return external_prefixes.subnet_view(subnet)


@operation
def external_subnet_delete(call: Call) -> JSON:
    """`DELETE /v1/external-subnets/{external_subnet}`: only one that is attached to nothing."""
    subnet = _of_path(call, "compute")
    if subnet.instance is not None:
        raise errors.invalid_request(
            "Cannot delete external subnet while it is attached to an instance. Detach it and try again."
        )
    pool = call.rack.subnet_pools.by_id(subnet.pool)
    assert pool is not None, "an external subnet outlived its pool"
    call.rack.external_subnets.delete(subnet)
    external_prefixes.give_back(call.rack, pool, subnet.subnet)


@operation
async def external_subnet_attach(call: Call) -> JSON:
    """`POST /v1/external-subnets/{external_subnet}/attach`: without effect when it is attached there already."""
    subnet = _of_path(call, "compute")
    rack = call.rack
    owner = select.owner_of(call, subnet)
    instance = select.named_in(call, rack.instances, owner, call.body["instance"], "compute")
    if instance.project != subnet.project:
        raise errors.invalid_request("External subnet and instance must be in the same project")
    address_changes.check_idle(subnet)
    if subnet.instance == instance.id:
        address_changes.check_settled(instance)
        return external_prefixes.subnet_view(subnet)
    if subnet.instance is not None:
        raise errors.invalid_request(
            "External subnets cannot be attached to one instance while still attached to another"
        )
    address_changes.check_changeable(instance, "cannot attach external subnet to instance in {state} state")
    external_prefixes.check_room(rack, instance, external_addresses.version_of(subnet.subnet))
    address_changes.check_settled(instance)
    external_prefixes.attach(rack, subnet, instance)
    answer = external_prefixes.subnet_view(subnet)
    if not await address_changes.carry_out(call, subnet, instance, lambda: external_prefixes.detach(rack, subnet)):
        raise errors.not_found(rack.instances.resource, identity=instance.id)
    return answer


@operation
async def external_subnet_detach(call: Call) -> JSON:
    """`POST /v1/external-subnets/{external_subnet}/detach`: unlike a floating IP, it has to be attached."""
    subnet = _of_path(call, "compute")
    rack = call.rack
    if subnet.instance is None:
        raise errors.invalid_request("External subnet is not attached to an instance")
    instance = rack.instances.by_id(subnet.instance)
    assert instance is not None, "an external subnet is attached to an instance that is gone"
    address_changes.check_idle(subnet)
    address_changes.check_changeable(instance, "cannot detach external subnet from instance in {state} state")
    address_changes.check_settled(instance)
    answer = external_prefixes.subnet_view(subnet)
    if await address_changes.carry_out(call, subnet, instance, lambda: None):
        external_prefixes.detach(rack, subnet)
    return answer


@operation
def instance_external_subnet_list(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/external-subnets`: in one piece, without what is being attached or detached."""
    instance = vpc_scope.instance_of_path(call)
    attached = call.rack.external_subnets_of.get(instance.id, {})
    listed = [attached[identity] for identity in sorted(attached) if attached[identity].change is None]
    return paging.whole(listed, external_prefixes.subnet_view)


def _of_path(call: Call, need: Need = "read") -> records.ExternalSubnet:
    table, reference = call.rack.external_subnets, call.path["external_subnet"]
    return select.in_project(call, table, reference, select.EXTERNAL_SUBNET, need)
