"""VPCs and their subnets (semantics 7.1, 7.3)."""

from uuid import UUID

from capox.oxide.models.wire import ReadModel, Time


class Vpc(ReadModel):
    """A virtual private cloud as the rack shows it."""

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    dns_name: str
    ipv6_prefix: str
    system_router_id: UUID


class VpcSubnet(ReadModel):
    """A subnet as the rack shows it; it always has a block of each family.

    Attributes:
        custom_router_id: The router that an administrator attached; None for the VPC's own.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    vpc_id: UUID
    ipv4_block: str
    ipv6_block: str
    custom_router_id: UUID | None = None
