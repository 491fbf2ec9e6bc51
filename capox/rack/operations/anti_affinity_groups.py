"""Anti-affinity groups (semantics 8)."""

from __future__ import annotations

from capox.rack import affinity, records, select, views
from capox.rack.access import Need
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def anti_affinity_group_list(call: Call) -> JSON:
    """`GET /v1/anti-affinity-groups`."""
    return call.page(call.rack.anti_affinity_groups, select.project_of_query(call).id, view)


@operation
def anti_affinity_group_create(call: Call) -> JSON:
    """`POST /v1/anti-affinity-groups`. Policy and failure domain cannot be changed later."""
    project = select.project_of_query(call, "compute")
    body = call.body
    check_description(body["description"])
    record = records.AntiAffinityGroup(
        **call.rack.identity(body["name"], body["description"]), project=project.id, policy=body["policy"]
    )
    return view(call.rack.anti_affinity_groups.insert(record))


@operation
def anti_affinity_group_view(call: Call) -> JSON:
    """`GET /v1/anti-affinity-groups/{anti_affinity_group}`."""
    return view(_group(call))


@operation
def anti_affinity_group_update(call: Call) -> JSON:
    """`PUT /v1/anti-affinity-groups/{anti_affinity_group}`: name and description."""
    return view(call.update_identity(call.rack.anti_affinity_groups, _group(call, "compute")))


@operation
def anti_affinity_group_delete(call: Call) -> JSON:
    """`DELETE /v1/anti-affinity-groups/{anti_affinity_group}`: also one that has members."""
    affinity.disband(call.rack, _group(call, "compute"))


@operation
def anti_affinity_group_member_list(call: Call) -> JSON:
    """`GET /v1/anti-affinity-groups/{anti_affinity_group}/members`."""
    return call.page_of(affinity.members(call.rack, _group(call)), member_view)


@operation
def anti_affinity_group_member_instance_view(call: Call) -> JSON:
    """`GET /v1/anti-affinity-groups/{anti_affinity_group}/members/instance/{instance}`."""
    group, instance = _group(call), _instance(call)
    affinity.check_member(group, instance)
    return member_view(instance)


@operation
def anti_affinity_group_member_instance_add(call: Call) -> JSON:
    """`POST /v1/anti-affinity-groups/{anti_affinity_group}/members/instance/{instance}`: of a stopped instance."""
    group, instance = _group(call, "compute"), _instance(call)
    affinity.join(call.rack, group, instance)
    return member_view(instance)


@operation
def anti_affinity_group_member_instance_delete(call: Call) -> JSON:
    """`DELETE /v1/anti-affinity-groups/{anti_affinity_group}/members/instance/{instance}`: at any time."""
    group, instance = _group(call, "compute"), _instance(call)
    affinity.leave(call.rack, group, instance)


@operation
def instance_anti_affinity_group_list(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/anti-affinity-groups`."""
    instance = _instance(call)
    return call.page_of(call.rack.groups_of.get(instance.id, {}).values(), view)


def view(record: records.AntiAffinityGroup) -> JSON:
    """Schema `AntiAffinityGroup`."""
    return views.identity(record) | {
        "project_id": record.project,
        "policy": record.policy,
        "failure_domain": "sled",
    }


def member_view(instance: records.Instance) -> JSON:
    """Schema `AntiAffinityGroupMember`."""
    return {"type": "instance", "value": {"id": instance.id, "name": instance.name, "run_state": instance.state}}


def _group(call: Call, need: Need = "read") -> records.AntiAffinityGroup:
    table, reference = call.rack.anti_affinity_groups, call.path["anti_affinity_group"]
    return select.in_project(call, table, reference, select.ANTI_AFFINITY_GROUP, need)


def _instance(call: Call) -> records.Instance:
    return select.in_project(call, call.rack.instances, call.path["instance"], select.INSTANCE)
