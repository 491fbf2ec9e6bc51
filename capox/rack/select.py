"""Finding what a request means by a name or an id (semantics 1.6), and whether its caller may have it.

An id stands alone: with a `project` beside it the request is refused. A name needs its project. What the caller may not
see is not found.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from capox.rack import errors, names, records
from capox.rack.access import Need
from capox.rack.call import Call
from capox.rack.table import Table

P = TypeVar("P", bound=records.InProject)


@dataclasses.dataclass(frozen=True)
class Wording:
    """How the refusals of one resource are worded, which differs from resource to resource."""

    id_and_project: str
    name_alone: str


def _wording(label: str, either: str, *, comma: bool = False) -> Wording:
    project = ", project" if comma else " project"
    return Wording(
        f"when providing {label} as an ID{project} should not be specified",
        f"{label} should either be {either} or project should be specified",
    )


INSTANCE = _wording("instance", "UUID")
DISK = _wording("disk", "UUID")
FLOATING_IP = _wording("Floating IP", "UUID")
SNAPSHOT = _wording("snapshot", "an ID", comma=True)
VPC = _wording("vpc", "an ID", comma=True)
ANTI_AFFINITY_GROUP = Wording(
    "when providing anti_affinity_group as an ID, project should not be specified",
    "anti_affinity_group should either be UUID or project should be specified",
)
EXTERNAL_SUBNET = _wording("external subnet", "a UUID")


def project(call: Call, reference: str, need: Need = "read") -> records.Project:
    """The project of this name or id.

    Raises:
        Refusal: 404 when there is none that the caller may see, 403 when the caller may see it and no more.
    """
    table = call.rack.projects
    by_id = names.is_uuid(reference)
    found = table.by_id(reference) if by_id else table.by_name(call.actor.silo.id, reference)
    if found is None or not call.actor.may("read", found):
        raise missing("project", reference)
    call.actor.require(need, found)
    return found


def project_of_query(call: Call, need: Need = "read") -> records.Project:
    """The project that the query names."""
    return project(call, call.query["project"], need)


def in_project(
    call: Call,
    table: Table[P],
    reference: str,
    wording: Wording,
    need: Need = "read",
    *,
    project_reference: str | None = None,
) -> P:
    """The record of this name or id in the query's project, or in another that is given.

    Raises:
        Refusal: 400 when id and project, or a name alone, were given; 404 and 403 as for a project.
    """
    within = project_reference if project_reference is not None else call.query.get("project")
    if names.is_uuid(reference):
        if within is not None:
            raise errors.invalid_request(wording.id_and_project)
        found = table.by_id(reference)
    else:
        if within is None:
            raise errors.invalid_request(wording.name_alone)
        found = table.by_name(project(call, within).id, reference)
    return visible(call, table, found, reference, need)


def named_in(call: Call, table: Table[P], owner: records.Project, reference: str, need: Need = "read") -> P:
    """The record that a body names: a name is looked up in the project, an id anywhere.

    Raises:
        Refusal: 404 and 403 as for a project.
    """
    if names.is_uuid(reference):
        reference = names.parse_uuid(reference)
        found = table.by_id(reference)
    else:
        found = table.by_name(owner.id, reference)
    return visible(call, table, found, reference, need)


def visible(call: Call, table: Table[P], found: P | None, reference: str, need: Need) -> P:
    """The record, unless the caller may not see it or not do this to it.

    Raises:
        Refusal: 404, 403.
    """
    owner = call.rack.projects.by_id(found.project) if found is not None else None
    if found is None or owner is None or not call.actor.may("read", owner):
        raise missing(table.resource, reference)
    call.actor.require(need, owner)
    return found


def own_ssh_key(call: Call, reference: str) -> records.SshKey:
    """The caller's own key of this name or id.

    Raises:
        Refusal: 404 when it is nobody's or somebody else's.
    """
    table, user = call.rack.ssh_keys, call.actor.user
    by_id = names.is_uuid(reference)
    found = table.by_id(names.parse_uuid(reference)) if by_id else table.by_name(user.id, reference)
    if found is None or found.user != user.id:
        raise missing(table.resource, reference)
    return found


def owner_of(call: Call, record: records.InProject) -> records.Project:
    """The project of a record."""
    owner = call.rack.projects.by_id(record.project)
    assert owner is not None, "a record outlived its project"
    return owner


def missing(resource: str, reference: str) -> errors.Refusal:
    """The 404 for a name or an id."""
    if names.is_uuid(reference):
        return errors.not_found(resource, identity=reference)
    return errors.not_found(resource, name=reference)
