"""Projects (semantics 7.1, 8)."""

from __future__ import annotations

from capox.rack import errors, networks, paging, records, select, views
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON
from capox.rack.state import Rack


@operation
def project_list(call: Call) -> JSON:
    """`GET /v1/projects`: those that the caller may see."""
    actor = call.actor
    return call.page(call.rack.projects, actor.silo.id, view, lambda record: actor.may("read", record))


@operation
def project_create(call: Call) -> JSON:
    """`POST /v1/projects`: a project with its default VPC."""
    call.actor.require_on_silo("network")
    check_description(call.body["description"])
    return view(add_project(call.rack, call.actor.silo, call.body["name"], call.body["description"]))


@operation
def project_view(call: Call) -> JSON:
    """`GET /v1/projects/{project}`."""
    return view(select.project(call, call.path["project"]))


@operation
def project_update(call: Call) -> JSON:
    """`PUT /v1/projects/{project}`: name and description."""
    record = select.project(call, call.path["project"], "network")
    return view(call.update_identity(call.rack.projects, record))


@operation
def project_delete(call: Call) -> JSON:
    """`DELETE /v1/projects/{project}`: only an empty one."""
    record = select.project(call, call.path["project"], "network")
    rack = call.rack
    for article, kind, table in (
        ("an", "instance", rack.instances),
        ("a", "disk", rack.disks),
        ("a", "floating ip", rack.floating_ips),
        ("a", "project image", rack.images),
        ("a", "snapshot", rack.snapshots),
        ("a", "vpc", rack.vpcs),
        ("an", "anti-affinity group", rack.anti_affinity_groups),
    ):
        first = next(table.walk(record.id, paging.NAME_ASCENDING, None), None)
        if first is not None:
            raise errors.invalid_request(f"project to be deleted contains {article} {kind}: {first.name}")
    rack.projects.delete(record)


def add_project(rack: Rack, silo: records.Silo, name: str, description: str) -> records.Project:
    """Make a project in a silo.

    Raises:
        Refusal: the name is taken.
    """
    record = rack.projects.insert(records.Project(**rack.identity(name, description), silo=silo.id))
    networks.add_vpc(rack, record, name="default", description="Default VPC", dns_name="default")
    return record


def view(record: records.Project) -> JSON:
    """Schema `Project`."""
    return views.identity(record)
