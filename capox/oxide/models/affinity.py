"""Anti-affinity groups: instances that should not share a sled (semantics 8)."""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Tag

from capox.oxide.models.instances import InstanceState
from capox.oxide.models.wire import (
    UNRECOGNIZED,
    Description,
    Name,
    Open,
    ReadModel,
    Time,
    Unrecognized,
    WriteModel,
    tag_of,
)


class AffinityPolicy(StrEnum):
    """What happens when the group's wish cannot be met at a start."""

    ALLOW = "allow"
    FAIL = "fail"


class AntiAffinityGroup(ReadModel):
    """A group as the rack shows it.

    Attributes:
        policy: A policy of `AffinityPolicy`, or a word that this client does not know.
        failure_domain: `sled`, or a word that this client does not know.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    policy: Open[AffinityPolicy]
    failure_domain: str


class AntiAffinityGroupCreate(WriteModel):
    """The body of anti_affinity_group_create. Policy and failure domain cannot be changed later."""

    name: Name
    description: Description
    policy: AffinityPolicy
    failure_domain: Literal["sled"] = "sled"


class AntiAffinityGroupUpdate(WriteModel):
    """The body of anti_affinity_group_update; None leaves a field as it is."""

    name: Name | None = None
    description: Description | None = None


class MemberInstance(ReadModel):
    """The instance that is a member."""

    id: UUID
    name: str
    run_state: Open[InstanceState]


class InstanceMember(ReadModel):
    """A member that is an instance; the only kind today."""

    type: Literal["instance"]
    value: MemberInstance


AntiAffinityGroupMember = Annotated[
    Annotated[InstanceMember, Tag("instance")] | Annotated[Unrecognized, Tag(UNRECOGNIZED)],
    tag_of("type", "instance"),
]
"""One member of a group."""
