"""Finding what belongs to a VPC or to an instance rather than to a project (semantics 1.6).

An id stands alone; a name needs the VPC or the instance within which it is unique, and that may need its project.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from capox.rack import errors, names, records, select
from capox.rack.access import Need
from capox.rack.call import Call
from capox.rack.table import Table

M = TypeVar("M", records.VpcSubnet, records.VpcRouter, records.InternetGateway)


@dataclasses.dataclass(frozen=True)
class Scope:
    """How the refusals of one resource of a VPC are worded."""

    id_and_scope: str
    name_alone: str


SUBNET = Scope(
    "when providing subnet as an ID, vpc and project should not be specified",
    "subnet should either be an ID or vpc should be specified",
)
ROUTER = Scope(
    "when providing router as an ID vpc and project should not be specified",
    "router should either be an ID or vpc should be specified",
)
GATEWAY = Scope(
    "when providing gateway as an ID vpc and project should not be specified",
    "gateway should either be an ID or vpc should be specified",
)
_INTERFACE = Scope(
    "when providing network_interface as an id instance and project should not be specified",
    "network_interface should either be a UUID or instance should be specified",
)


def vpc_of_query(call: Call, need: Need = "read") -> records.Vpc:
    """The VPC that the query names.

    Raises:
        Refusal: as `select.in_project`.
    """
    return select.in_project(call, call.rack.vpcs, call.query["vpc"], select.VPC, need)


def instance_of_query(call: Call, need: Need = "read") -> records.Instance:
    """The instance that the query names.

    Raises:
        Refusal: as `select.in_project`.
    """
    return select.in_project(call, call.rack.instances, call.query["instance"], select.INSTANCE, need)


def instance_of_path(call: Call, need: Need = "read") -> records.Instance:
    """The instance that the path names.

    Raises:
        Refusal: as `select.in_project`.
    """
    return select.in_project(call, call.rack.instances, call.path["instance"], select.INSTANCE, need)


def in_vpc(call: Call, table: Table[M], reference: str, scope: Scope, need: Need = "read") -> M:
    """The record of this name in the query's VPC, or of this id anywhere.

    Raises:
        Refusal: 400 when an id and its scope, or a name alone, were given; 404 and 403 as for a project.
    """
    if names.is_uuid(reference):
        if "vpc" in call.query or "project" in call.query:
            raise errors.invalid_request(scope.id_and_scope)
        found = table.by_id(reference)
    else:
        if "vpc" not in call.query:
            raise errors.invalid_request(scope.name_alone)
        found = table.by_name(vpc_of_query(call).id, reference)
    owner = _project_of_vpc(call, found.vpc) if found is not None else None
    if found is None or owner is None or not call.actor.may("read", owner):
        raise select.missing(table.resource, reference)
    call.actor.require(need, owner)
    return found


def interface(call: Call, need: Need = "read") -> records.NetworkInterface:
    """The NIC that the path names: by id, or by name within the query's instance.

    Raises:
        Refusal: 400 when an id and its scope, or a name alone, were given; 404 and 403 as for a project.
    """
    table, reference = call.rack.network_interfaces, call.path["interface"]
    if names.is_uuid(reference):
        if "instance" in call.query or "project" in call.query:
            raise errors.invalid_request(_INTERFACE.id_and_scope)
        found = table.by_id(reference)
        owner = _project_of_instance(call, found.instance) if found is not None else None
    else:
        if "instance" not in call.query:
            raise errors.invalid_request(_INTERFACE.name_alone)
        instance = instance_of_query(call)
        found = table.by_name(instance.id, reference)
        owner = select.owner_of(call, instance)
    if found is None or owner is None or not call.actor.may("read", owner):
        raise select.missing(table.resource, reference)
    call.actor.require(need, owner)
    return found


def is_visible(call: Call, vpc: str) -> bool:
    """Whether there is a VPC of this id that the caller may see."""
    owner = _project_of_vpc(call, vpc)
    return owner is not None and call.actor.may("read", owner)


def _project_of_vpc(call: Call, identity: str) -> records.Project | None:
    vpc = call.rack.vpcs.by_id(identity)
    return None if vpc is None else call.rack.projects.by_id(vpc.project)


def _project_of_instance(call: Call, identity: str) -> records.Project | None:
    instance = call.rack.instances.by_id(identity)
    return None if instance is None else call.rack.projects.by_id(instance.project)
