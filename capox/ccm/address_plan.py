"""The addresses of a Node: which ones, in which order. Pure.

The first InternalIP is the address by which everything in the cluster reaches the Node, and a kubelet asks for a new
certificate whenever the list changes. So the list is a function of the instance alone, in one order, always the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final, Literal, TypeAlias

from capox.kube.core_objects import NodeAddress
from capox.ownership import parse_mark
from capox.oxide.models.external_ips import AttachedFloatingIp
from capox.oxide.models.wire import IpAddress
from capox.oxide.snapshots import ObservedFloatingIp, ObservedNetworkInterface

__all__ = [
    "EXTERNAL_IP",
    "FAMILIES",
    "HOSTNAME",
    "INTERNAL_IP",
    "OXIDE_CCM_DESCRIPTION",
    "Family",
    "NodeIPError",
    "cloud_addresses",
    "honour_node_ips",
    "is_managed",
    "node_addresses",
    "parse_node_ips",
]

Family: TypeAlias = Literal["v4", "v6"]

FAMILIES: Final[tuple[Family, Family]] = ("v4", "v6")
"""The order of the families unless told otherwise."""

INTERNAL_IP: Final = "InternalIP"
EXTERNAL_IP: Final = "ExternalIP"
HOSTNAME: Final = "Hostname"

OXIDE_CCM_DESCRIPTION: Final = "Managed by oxide-cloud-controller-manager."
"""How Oxide's own cloud controller manager describes the floating IPs that it moves about (V10)."""


class NodeIPError(Exception):
    """The addresses that a kubelet was given are not the instance's; the message names both."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """An address with what its place in the list goes by."""

    address: IpAddress
    place: tuple[int, ...]


def is_managed(floating_ip: AttachedFloatingIp | ObservedFloatingIp) -> bool:
    """Whether a controller moves a floating IP from node to node, so that it is no address of a Node (N8)."""
    description = floating_ip.description
    return parse_mark(description) is not None or description.strip() == OXIDE_CCM_DESCRIPTION


def cloud_addresses(
    interfaces: Iterable[ObservedNetworkInterface],
    ephemeral: Iterable[IpAddress],
    floating: Iterable[ObservedFloatingIp],
    families: Sequence[Family] = FAMILIES,
) -> tuple[NodeAddress, ...]:
    """What the instance has: the primary interface first, then the others by name, then what is reached from outside.

    Args:
        interfaces: Its interfaces.
        ephemeral: Its ephemeral addresses.
        floating: The floating IPs that are attached to it, ours among them.
        families: The order of the families within an interface, and among the external addresses (N9).

    Returns:
        The addresses, none twice.
    """
    order = {4: families.index("v4"), 6: families.index("v6")}
    ranked = sorted(interfaces, key=lambda each: (not each.primary, each.name, str(each.id)))
    internal = [
        _Placed(address, (rank, order[address.version], int(address)))
        for rank, interface in enumerate(ranked)
        for address in interface.addresses
    ]
    outside = [_Placed(address, (order[address.version], 0, int(address))) for address in ephemeral]
    outside += [
        _Placed(each.ip, (order[each.ip.version], 1, int(each.ip))) for each in floating if not is_managed(each)
    ]
    return _without_repetition(
        NodeAddress(type=type_, address=str(each.address))
        for type_, placed in ((INTERNAL_IP, internal), (EXTERNAL_IP, outside))
        for each in sorted(placed, key=lambda each: each.place)
    )


def parse_node_ips(annotation: str | None) -> tuple[IpAddress, ...]:
    """The addresses that a kubelet was given explicitly, in their order; none without the annotation.

    Raises:
        NodeIPError: One of them is no address.
    """
    if not annotation:
        return ()
    try:
        return tuple(ip_address(text.strip()) for text in annotation.split(","))
    except ValueError:
        raise NodeIPError(f"the kubelet's node IP {annotation!r} is not one address or two with a comma") from None


def honour_node_ips(addresses: Sequence[NodeAddress], wanted: Sequence[IpAddress]) -> tuple[NodeAddress, ...]:
    """Put first what the kubelet was given, and leave out what else there is of the same type (1.5).

    Raises:
        NodeIPError: The instance does not have one of the wanted addresses.
    """
    if not wanted:
        return tuple(addresses)
    chosen: list[NodeAddress] = []
    enforced: set[str] = set()
    for each in wanted:
        matching = [address for address in addresses if _numeric(address) == each]
        if not matching:
            has = ", ".join(address.address for address in addresses if _numeric(address) is not None) or "none"
            raise NodeIPError(
                f"the kubelet was given the node IP {each}, which the instance does not have; it has {has}"
            )
        chosen += matching
        enforced |= {address.type for address in matching}
    chosen += [address for address in addresses if address.type not in enforced]
    return _without_repetition(chosen)


def node_addresses(
    cloud: Sequence[NodeAddress], present: Sequence[NodeAddress], annotation: str | None
) -> tuple[NodeAddress, ...]:
    """The list that a Node is to have.

    Args:
        cloud: What the instance has.
        present: What the Node has now; the kubelet's name for it is kept.
        annotation: What the kubelet was given.

    Raises:
        NodeIPError: The kubelet was given an address that the instance does not have.
    """
    names = [address for address in present if address.type == HOSTNAME]
    return honour_node_ips(_without_repetition((*cloud, *names)), parse_node_ips(annotation))


def _numeric(address: NodeAddress) -> IpAddress | None:
    try:
        return ip_address(address.address)
    except ValueError:
        return None


def _without_repetition(addresses: Iterable[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Each pair of type and address once: the API refuses the second (1.4)."""
    return tuple({(each.type, each.address): each for each in addresses}.values())
