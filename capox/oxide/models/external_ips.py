"""External addresses: SNAT, ephemeral and floating, and the pools they come from (semantics 4.4, 6, 8)."""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Discriminator, Tag

from capox.oxide.models.wire import (
    UNRECOGNIZED,
    Description,
    IpAddress,
    Name,
    NameOrId,
    Open,
    ReadModel,
    Time,
    Unrecognized,
    WriteModel,
    tag_of,
)


class IpVersion(StrEnum):
    """An address family."""

    V4 = "v4"
    V6 = "v6"


class SiloIpPool(ReadModel):
    """A pool of external addresses that the silo may use.

    Attributes:
        is_default: Whether it is taken when a request names no pool; there is at most one for each type and family.
        ip_version: A family of `IpVersion`, or a word that this client does not know.
        pool_type: `unicast`, `multicast`, or a word that this client does not know.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    is_default: bool
    ip_version: Open[IpVersion]
    pool_type: str


class ExplicitPool(WriteModel):
    """A pool by name or id."""

    type: Literal["explicit"] = "explicit"
    pool: NameOrId


class DefaultPool(WriteModel):
    """The silo's default pool.

    Attributes:
        ip_version: Needed where the silo has default pools of both families; the rack answers 400 without it.
    """

    type: Literal["auto"] = "auto"
    ip_version: IpVersion | None = None


PoolSelector = Annotated[ExplicitPool | DefaultPool, Discriminator("type")]
"""Which pool an address is taken from."""


class EphemeralIpCreate(WriteModel):
    """The body of instance_ephemeral_ip_attach."""

    pool_selector: PoolSelector = DefaultPool()


class EphemeralExternalIpCreate(WriteModel):
    """An address that lives and dies with the instance, asked for when the instance is made."""

    type: Literal["ephemeral"] = "ephemeral"
    pool_selector: PoolSelector = DefaultPool()


class FloatingExternalIpCreate(WriteModel):
    """An existing floating IP, attached when the instance is made; a name is looked for in the instance's project."""

    type: Literal["floating"] = "floating"
    floating_ip: NameOrId


ExternalIpCreate = Annotated[EphemeralExternalIpCreate | FloatingExternalIpCreate, Discriminator("type")]
"""An external address in instance_create."""


class SnatIp(ReadModel):
    """Where an instance's outgoing connections appear to come from. Shared; nothing reaches the instance through it."""

    kind: Literal["snat"]
    ip: IpAddress
    ip_pool_id: UUID
    first_port: int
    last_port: int


class EphemeralIp(ReadModel):
    """An instance's own address for as long as it exists."""

    kind: Literal["ephemeral"]
    ip: IpAddress
    ip_pool_id: UUID


class AttachedFloatingIp(ReadModel):
    """A floating IP in the list of an instance's external addresses."""

    kind: Literal["floating"]
    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    ip: IpAddress
    ip_pool_id: UUID
    instance_id: UUID | None = None


ExternalIp = Annotated[
    Annotated[SnatIp, Tag("snat")]
    | Annotated[EphemeralIp, Tag("ephemeral")]
    | Annotated[AttachedFloatingIp, Tag("floating")]
    | Annotated[Unrecognized, Tag(UNRECOGNIZED)],
    tag_of("kind", "snat", "ephemeral", "floating"),
]
"""One of an instance's external addresses. SNAT is among them; who looks for an address to reach must leave it out."""


class FloatingIp(ReadModel):
    """An address of its own, attached to one instance or to none.

    Attributes:
        instance_id: None when it is attached to nothing. The answer of floating_ip_detach still shows the former
            instance (semantics 6).
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    ip: IpAddress
    ip_pool_id: UUID
    instance_id: UUID | None = None


class ExplicitAddress(WriteModel):
    """Exactly this address; the rack finds the pool."""

    type: Literal["explicit"] = "explicit"
    ip: IpAddress


class AnyAddress(WriteModel):
    """The lowest free address of a pool."""

    type: Literal["auto"] = "auto"
    pool_selector: PoolSelector = DefaultPool()


AddressAllocator = Annotated[ExplicitAddress | AnyAddress, Discriminator("type")]
"""How a floating IP comes by its address."""


class FloatingIpCreate(WriteModel):
    """The body of floating_ip_create."""

    name: Name
    description: Description
    address_allocator: AddressAllocator = AnyAddress()


class FloatingIpUpdate(WriteModel):
    """The body of floating_ip_update; None leaves a field as it is."""

    name: Name | None = None
    description: Description | None = None


class FloatingIpAttach(WriteModel):
    """The body of floating_ip_attach.

    Attributes:
        parent: The instance. A name is looked for in the floating IP's project.
    """

    kind: Literal["instance"] = "instance"
    parent: NameOrId
