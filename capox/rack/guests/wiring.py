"""Which guest is reached by which address, read from the rack's state. It computes and changes nothing.

Only IPv4 is brought to guests.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator

from capox.rack import records
from capox.rack.json import JSON
from capox.rack.state import Rack

Address = ipaddress.IPv4Address
Network = ipaddress.IPv4Network

# The name of an interface has room for 15 characters.
_DEVICE_ID_CHARACTERS = 12


@dataclasses.dataclass(frozen=True)
class Port:
    """A NIC as the VPC sees it.

    Attributes:
        vpc: the id of its VPC.
        device: the name of the VPC's end of it.
        slot: which of the instance's NICs it is.
        is_primary: whether the way out leads through it.
        mac: its MAC address.
        address: its private address.
        gateway: the first address of its subnet.
        senders: networks beside its address from which it may send.
    """

    vpc: str
    device: str
    slot: int
    is_primary: bool
    mac: str
    address: Address
    gateway: Address
    senders: tuple[Network, ...]


@dataclasses.dataclass(frozen=True)
class Egress:
    """As what a private address is seen outside; the ports are those of a shared address, else None."""

    address: Address
    ports: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class VpcWiring:
    """A VPC.

    Attributes:
        gateways: the first address of each subnet, which is the VPC's own.
        blocks: the subnets' blocks.
        ports: its NICs.
        inbound: external address to private address, one to one.
        egress: private address to what it is seen as; what is not in it does not get out.
        mute: external addresses that receive and from which no reply leaves.
        rules: its firewall rules as the API shows them.
        members: the private addresses that an instance or a subnet's name stands for in rules, by (type, name).
    """

    gateways: tuple[Address, ...]
    blocks: tuple[Network, ...]
    ports: tuple[Port, ...]
    inbound: tuple[tuple[Address, Address], ...]
    egress: tuple[tuple[Address, Egress], ...]
    mute: tuple[Address, ...]
    rules: tuple[JSON, ...]
    members: dict[tuple[str, str], tuple[Address | Network, ...]]


@dataclasses.dataclass(frozen=True)
class Wiring:
    """The rack.

    Attributes:
        vpcs: the VPCs that have NICs, by id.
        holders: external address to the VPC and the private address that have it for themselves.
    """

    vpcs: dict[str, VpcWiring]
    holders: dict[Address, tuple[str, Address]]


def wire(rack: Rack) -> Wiring:
    """What the rack says now."""
    vpcs = {vpc.id: wired for vpc in rack.vpcs if (wired := _wire_vpc(rack, vpc)).ports}
    holders = {external: (identity, private) for identity, wired in vpcs.items() for external, private in wired.inbound}
    return Wiring(vpcs, holders)


def ports_of(rack: Rack, instance: records.Instance) -> list[Port]:
    """The NICs of an instance that have IPv4, in the order of their slots."""
    ports = [_port(rack, nic) for nic in rack.network_interfaces.of(instance.id) if nic.ipv4 is not None]
    return sorted(ports, key=lambda port: port.slot)


def _wire_vpc(rack: Rack, vpc: records.Vpc) -> VpcWiring:
    subnets = rack.subnets.of(vpc.id)
    nics = [nic for subnet in subnets for nic in rack.network_interfaces_in[subnet.id] if nic.ipv4 is not None]
    pools = {attached.pool for gateway in rack.gateways.of(vpc.id) for attached in rack.gateway_ip_pools.of(gateway.id)}
    inbound: list[tuple[Address, Address]] = []
    egress: list[tuple[Address, Egress]] = []
    mute: list[Address] = []
    for nic in nics:
        if not nic.is_primary or nic.ipv4 is None:
            continue
        own = list(_own_addresses(rack, nic.instance))
        inbound += [(external, nic.ipv4) for external, _ in own]
        mute += [external for external, pool in own if pool not in pools]
        seen_as = _egress(rack, nic.instance, own, pools)
        if seen_as is not None:
            egress.append((nic.ipv4, seen_as))
    return VpcWiring(
        gateways=tuple(subnet.ipv4_block[1] for subnet in subnets),
        blocks=tuple(subnet.ipv4_block for subnet in subnets),
        ports=tuple(_port(rack, nic) for nic in nics),
        inbound=tuple(inbound),
        egress=tuple(egress),
        mute=tuple(mute),
        rules=tuple(vpc.firewall_rules),
        members=_members(rack, subnets, nics),
    )


def _members(
    rack: Rack, subnets: list[records.VpcSubnet], nics: list[records.NetworkInterface]
) -> dict[tuple[str, str], tuple[Address | Network, ...]]:
    found: dict[tuple[str, str], tuple[Address | Network, ...]] = {
        ("subnet", subnet.name): (subnet.ipv4_block,) for subnet in subnets
    }
    for nic in nics:
        instance = rack.instances.by_id(nic.instance)
        if instance is not None and nic.ipv4 is not None:
            key = "instance", instance.name
            found[key] = (*found.get(key, ()), nic.ipv4)
    return found


def _own_addresses(rack: Rack, instance: str) -> Iterator[tuple[Address, str]]:
    """The external addresses that an instance has for itself, with their pools, in the order in which it uses them."""
    held = [*rack.floating_ips_of.get(instance, {}).values(), *rack.ephemeral_ips_of.get(instance, ())]
    for external in held:
        if isinstance(external.ip, Address):
            yield external.ip, external.pool


def _egress(rack: Rack, instance: str, own: list[tuple[Address, str]], pools: set[str]) -> Egress | None:
    """As what an instance is seen: by a floating IP, else an ephemeral one, else its shared address (semantics 7.4).

    Only what a gateway of the VPC has the pool of counts.
    """
    for external, pool in own:
        if pool in pools:
            return Egress(external)
    shared = rack.snat_ips_of.get(instance)
    if shared is None or shared.pool not in pools or not isinstance(shared.ip, Address):
        return None
    return Egress(shared.ip, (max(1, shared.first_port), shared.last_port))


def _port(rack: Rack, nic: records.NetworkInterface) -> Port:
    subnet = rack.subnets.by_id(nic.subnet)
    assert subnet is not None, "a NIC outlived its subnet"
    assert nic.ipv4 is not None, "only NICs with IPv4 become ports"
    return Port(
        vpc=nic.vpc,
        device=f"g{nic.id.replace('-', '')[:_DEVICE_ID_CHARACTERS]}",
        slot=nic.slot,
        is_primary=nic.is_primary,
        mac=nic.mac,
        address=nic.ipv4,
        gateway=subnet.ipv4_block[1],
        senders=tuple(ipaddress.IPv4Network(block) for block in nic.transit_ipv4),
    )
