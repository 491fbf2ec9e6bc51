"""Network interfaces: an instance's private addresses in a VPC (semantics 4.3, 3.2)."""

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Discriminator, Tag

from capox.oxide.models.wire import (
    UNRECOGNIZED,
    Description,
    IpAddress,
    IpNet,
    Name,
    ReadModel,
    Time,
    Unrecognized,
    WriteModel,
    tag_of,
)


class PrivateIpv4Stack(ReadModel):
    """An interface's IPv4 side.

    Attributes:
        transit_ips: Networks that it may send from and receive for besides its own address.
    """

    ip: IPv4Address
    transit_ips: tuple[str, ...]


class PrivateIpv6Stack(ReadModel):
    """An interface's IPv6 side; as `PrivateIpv4Stack`."""

    ip: IPv6Address
    transit_ips: tuple[str, ...]


class DualStackValue(ReadModel):
    """Both sides of an interface."""

    v4: PrivateIpv4Stack
    v6: PrivateIpv6Stack


class OnlyV4(ReadModel):
    """An interface of IPv4 alone."""

    type: Literal["v4"]
    value: PrivateIpv4Stack


class OnlyV6(ReadModel):
    """An interface of IPv6 alone."""

    type: Literal["v6"]
    value: PrivateIpv6Stack


class DualStack(ReadModel):
    """An interface of both families."""

    type: Literal["dual_stack"]
    value: DualStackValue


PrivateIpStack = Annotated[
    Annotated[OnlyV4, Tag("v4")]
    | Annotated[OnlyV6, Tag("v6")]
    | Annotated[DualStack, Tag("dual_stack")]
    | Annotated[Unrecognized, Tag(UNRECOGNIZED)],
    tag_of("type", "v4", "v6", "dual_stack"),
]
"""The private addresses of an interface."""


class InstanceNetworkInterface(ReadModel):
    """An interface as the rack shows it.

    Attributes:
        primary: Whether external addresses are translated to this interface.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    instance_id: UUID
    vpc_id: UUID
    subnet_id: UUID
    mac: str
    primary: bool
    ip_stack: PrivateIpStack

    @property
    def addresses(self) -> tuple[IpAddress, ...]:
        """The private addresses, IPv4 first; empty when the stack is of a kind that this client does not know."""
        match self.ip_stack:
            case OnlyV4(value=stack):
                return (stack.ip,)
            case OnlyV6(value=stack):
                return (stack.ip,)
            case DualStack(value=both):
                return (both.v4.ip, both.v6.ip)
            case _:
                return ()


class AutoAddress(WriteModel):
    """The lowest free address of the subnet."""

    type: Literal["auto"] = "auto"


class ExplicitIpv4(WriteModel):
    """Exactly this address."""

    type: Literal["explicit"] = "explicit"
    value: IPv4Address


class ExplicitIpv6(WriteModel):
    """Exactly this address."""

    type: Literal["explicit"] = "explicit"
    value: IPv6Address


class PrivateIpv4StackCreate(WriteModel):
    """The IPv4 side of a new interface."""

    ip: Annotated[AutoAddress | ExplicitIpv4, Discriminator("type")] = AutoAddress()
    transit_ips: tuple[IpNet, ...] = ()


class PrivateIpv6StackCreate(WriteModel):
    """The IPv6 side of a new interface."""

    ip: Annotated[AutoAddress | ExplicitIpv6, Discriminator("type")] = AutoAddress()
    transit_ips: tuple[IpNet, ...] = ()


class DualStackValueCreate(WriteModel):
    """Both sides of a new interface."""

    v4: PrivateIpv4StackCreate = PrivateIpv4StackCreate()
    v6: PrivateIpv6StackCreate = PrivateIpv6StackCreate()


class OnlyV4Create(WriteModel):
    """IPv4 alone. Such an instance takes no IPv6 external address (semantics 6)."""

    type: Literal["v4"] = "v4"
    value: PrivateIpv4StackCreate = PrivateIpv4StackCreate()


class OnlyV6Create(WriteModel):
    """IPv6 alone. Such an instance takes no IPv4 external address (semantics 6)."""

    type: Literal["v6"] = "v6"
    value: PrivateIpv6StackCreate = PrivateIpv6StackCreate()


class DualStackCreate(WriteModel):
    """Both families."""

    type: Literal["dual_stack"] = "dual_stack"
    value: DualStackValueCreate = DualStackValueCreate()


PrivateIpStackCreate = Annotated[OnlyV4Create | OnlyV6Create | DualStackCreate, Discriminator("type")]
"""The private addresses of a new interface."""


class InstanceNetworkInterfaceCreate(WriteModel):
    """The body of instance_network_interface_create, and one interface of instance_create; all by name only."""

    name: Name
    description: Description
    vpc_name: Name
    subnet_name: Name
    ip_config: PrivateIpStackCreate = DualStackCreate()


class InstanceNetworkInterfaceUpdate(WriteModel):
    """The body of instance_network_interface_update; the instance must be stopped.

    Attributes:
        name: None leaves it as it is.
        description: None leaves it as it is.
        primary: True makes it the primary interface; False changes nothing.
        transit_ips: No default on purpose: the rack overwrites the list each time, and clears it when the field is
            missing (semantics 3.2).
    """

    name: Name | None = None
    description: Description | None = None
    primary: bool = False
    transit_ips: tuple[IpNet, ...]


class InterfacesCreate(WriteModel):
    """These interfaces, the first of them primary; all in one VPC, each in another subnet, at most 8."""

    type: Literal["create"] = "create"
    params: tuple[InstanceNetworkInterfaceCreate, ...]


class DefaultInterface(WriteModel):
    """One interface in the project's VPC and subnet of the name `default`."""

    type: Literal["default_ipv4", "default_ipv6", "default_dual_stack"]


class NoInterface(WriteModel):
    """No network at all; such an instance takes no external address either."""

    type: Literal["none"] = "none"


NetworkInterfaceAttachment = Annotated[InterfacesCreate | DefaultInterface | NoInterface, Discriminator("type")]
"""The interfaces that an instance is made with."""
