"""Network interfaces of instances: how they come by their subnet, slot, MAC and addresses (semantics 2.2, 4.3, 7.3)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from capox.rack import errors, records, views
from capox.rack.addresses import LowestFree
from capox.rack.call import Call, check_description
from capox.rack.json import JSON
from capox.rack.state import Rack, address

INTERFACES_MAXIMUM = 8
"""How many NICs an instance may have."""

RESERVED_ADDRESSES = 5
"""How many addresses at the beginning of a subnet no NIC gets."""

VERSIONS: tuple[records.IpVersion, records.IpVersion] = ("v4", "v6")

_AUTO = {"ip": {"type": "auto"}, "transit_ips": []}
_DEFAULT_STACKS: dict[str, dict[records.IpVersion, JSON]] = {
    "default_ipv4": {"v4": _AUTO},
    "default_ipv6": {"v6": _AUTO},
    "default_dual_stack": {"v4": _AUTO, "v6": _AUTO},
}

_FIRST_MAC = 0xA8_40_25_F0_00_00
_LAST_MAC = 0xA8_40_25_FE_FF_FF


def check_attachment(call: Call, attachment: JSON) -> None:
    """Check what a new instance asks for before anything is written (semantics 4.1).

    Args:
        call: the request.
        attachment: schema `InstanceNetworkInterfaceAttachment`.

    Raises:
        Refusal: too many interfaces, or none or several VPCs in a list of interfaces.
    """
    del call
    if attachment["type"] != "create":
        return
    wanted = attachment["params"]
    if len(wanted) > INTERFACES_MAXIMUM:
        raise errors.invalid_request(f"An instance may not have more than {INTERFACES_MAXIMUM} network interfaces")
    if len({params["vpc_name"] for params in wanted}) != 1:
        raise errors.invalid_request("All interfaces must be in the same VPC")


def add_interfaces(call: Call, project: records.Project, instance: records.Instance, attachment: JSON) -> None:
    """Give a new instance the interfaces that it asks for. What was added before a refusal is for the caller to undo.

    Args:
        call: the request.
        project: of the instance, and of the VPC.
        instance: the new instance.
        attachment: schema `InstanceNetworkInterfaceAttachment`.

    Raises:
        Refusal: as `add_interface`.
    """
    if attachment["type"] == "create":
        for params in attachment["params"]:
            add_interface(call, project, instance, params)
    elif attachment["type"] in _DEFAULT_STACKS:
        stacks = _DEFAULT_STACKS[attachment["type"]]
        params = {
            "name": "net0",
            "description": f"default primary interface for {instance.name}",
            "vpc_name": "default",
            "subnet_name": "default",
        }
        _add(call.rack, _subnet_named(call.rack, project, params), instance, params, stacks)


def add_interface(
    call: Call, project: records.Project, instance: records.Instance, params: JSON
) -> records.NetworkInterface:
    """Add one interface; the first one of an instance is its primary.

    Args:
        call: the request.
        project: of the instance, and of the VPC.
        instance: whose interface it will be, in whatever state.
        params: schema `InstanceNetworkInterfaceCreate`; VPC and subnet are given by name.

    Raises:
        Refusal: 404 for an unknown VPC or subnet; 400 for another VPC than that of its siblings, a subnet in which a
            sibling is, a taken name, a ninth interface, or an address that cannot be had.
    """
    check_description(params["description"])
    config = params["ip_config"]
    stacks: dict[records.IpVersion, JSON] = (
        {version: config["value"][version] for version in VERSIONS}
        if config["type"] == "dual_stack"
        else {config["type"]: config["value"]}
    )
    return _add(call.rack, _subnet_named(call.rack, project, params), instance, params, stacks)


def rename(rack: Rack, interface: records.NetworkInterface, name: str) -> None:
    """Give an interface another name.

    Raises:
        Refusal: another interface of the instance has it.
    """
    listing = rack.network_interfaces_in[interface.subnet]
    listing.delete(interface)
    try:
        rack.network_interfaces.rename(interface, name)
    finally:
        listing.insert(interface)


def remove_interface(rack: Rack, interface: records.NetworkInterface) -> None:
    """Take an interface away; its addresses are free again at once."""
    if interface.ipv4 is not None:
        _book(rack, interface.subnet, "v4").release(int(interface.ipv4))
    if interface.ipv6 is not None:
        _book(rack, interface.subnet, "v6").release(int(interface.ipv6))
    rack.mac_addresses.remove(_mac_number(interface.mac))
    rack.network_interfaces_in[interface.subnet].delete(interface)
    rack.network_interfaces.delete(interface)


def remove_interfaces(rack: Rack, instance: records.Instance) -> None:
    """Take all interfaces of an instance away."""
    for interface in rack.network_interfaces.of(instance.id):
        remove_interface(rack, interface)


def primary_of(rack: Rack, instance: records.Instance) -> records.NetworkInterface | None:
    """The primary interface of an instance, if it has any interface."""
    return next((nic for nic in rack.network_interfaces.of(instance.id) if nic.is_primary), None)


def private_address(rack: Rack, instance: records.Instance, version: records.IpVersion) -> records.IpAddress | None:
    """The address to which an instance's external addresses of a version are translated: that of its primary interface.

    None when the instance has no interface, or its primary one lacks the version.
    """
    primary = primary_of(rack, instance)
    return None if primary is None else of_version(primary, version)


def of_version(interface: records.NetworkInterface, version: records.IpVersion) -> records.IpAddress | None:
    """The address of an interface, if it has one of the version."""
    return interface.ipv4 if version == "v4" else interface.ipv6


def check_transit_ips(blocks: Iterable[str]) -> list[records.IpNetwork]:
    """The networks that an interface is to send and receive for beside its own address (semantics 2.4).

    Raises:
        Refusal: one has host bits set, is a multicast, loopback or unspecified address, or overlaps another.
    """
    checked: list[records.IpNetwork] = []
    for block in blocks:
        interface = ipaddress.ip_interface(block)
        network = interface.network
        if interface.ip != network.network_address:
            raise errors.invalid_request(f"transit IP {block} has host bits set; its network is {network}")
        for trait in ("multicast", "loopback"):
            if getattr(network.network_address, f"is_{trait}"):
                raise errors.invalid_request(f"transit IP {block} is a {trait} address")
        if network.network_address.is_unspecified and network.prefixlen == network.max_prefixlen:
            raise errors.invalid_request(f"transit IP {block} is the unspecified address")
        for other in checked:
            if network.version == other.version and network.overlaps(other):
                raise errors.invalid_request(f"transit IP {block} overlaps another one, {other}")
        checked.append(network)
    return checked


def interface_view(interface: records.NetworkInterface) -> JSON:
    """Schema `InstanceNetworkInterface`."""
    stacks: dict[str, JSON] = {}
    if interface.ipv4 is not None:
        stacks["v4"] = {"ip": str(interface.ipv4), "transit_ips": list(interface.transit_ipv4)}
    if interface.ipv6 is not None:
        stacks["v6"] = {"ip": str(interface.ipv6), "transit_ips": list(interface.transit_ipv6)}
    if len(stacks) > 1:
        ip_stack = {"type": "dual_stack", "value": stacks}
    else:
        version, stack = next(iter(stacks.items()))
        ip_stack = {"type": version, "value": stack}
    return views.identity(interface) | {
        "instance_id": interface.instance,
        "vpc_id": interface.vpc,
        "subnet_id": interface.subnet,
        "mac": interface.mac,
        "primary": interface.is_primary,
        "ip_stack": ip_stack,
    }


def _subnet_named(rack: Rack, project: records.Project, params: JSON) -> records.VpcSubnet:
    vpc = rack.vpcs.by_name(project.id, params["vpc_name"])
    if vpc is None:
        raise errors.not_found(rack.vpcs.resource, name=params["vpc_name"])
    subnet = rack.subnets.by_name(vpc.id, params["subnet_name"])
    if subnet is None:
        raise errors.not_found(rack.subnets.resource, name=params["subnet_name"])
    return subnet


def _add(
    rack: Rack,
    subnet: records.VpcSubnet,
    instance: records.Instance,
    params: JSON,
    stacks: dict[records.IpVersion, JSON],
) -> records.NetworkInterface:
    for version, stack in stacks.items():
        _check_requestable(subnet, version, stack["ip"])
    check_transit_ips(block for stack in stacks.values() for block in stack["transit_ips"])
    siblings = rack.network_interfaces.of(instance.id)
    if any(sibling.vpc != subnet.vpc for sibling in siblings):
        raise errors.invalid_request(
            "Networking may not span multiple VPCs, but the requested resource is associated with another VPC"
        )
    if any(sibling.subnet == subnet.id for sibling in siblings):
        raise errors.invalid_request("Each interface must be in a distinct VPC Subnet")
    if any(sibling.name == params["name"] for sibling in siblings):
        raise errors.already_exists(rack.network_interfaces.resource, params["name"])
    slots = set(range(INTERFACES_MAXIMUM)) - {sibling.slot for sibling in siblings}
    if not slots:
        raise errors.invalid_request(f"May not attach more than {INTERFACES_MAXIMUM} network interfaces")
    _check_available(rack, subnet, stacks)
    interface = records.NetworkInterface(
        **rack.identity(params["name"], params["description"]),
        instance=instance.id,
        vpc=subnet.vpc,
        subnet=subnet.id,
        mac=_new_mac(rack),
        slot=min(slots),
        is_primary=not siblings,
        ipv4=ipaddress.IPv4Address(_take(rack, subnet, "v4", stacks["v4"])) if "v4" in stacks else None,
        ipv6=ipaddress.IPv6Address(_take(rack, subnet, "v6", stacks["v6"])) if "v6" in stacks else None,
        transit_ipv4=_transit_ips(stacks, "v4"),
        transit_ipv6=_transit_ips(stacks, "v6"),
    )
    rack.network_interfaces.insert(interface)
    rack.network_interfaces_in[subnet.id].insert(interface)
    return interface


def _check_requestable(subnet: records.VpcSubnet, version: records.IpVersion, wanted: JSON) -> None:
    """Check an address that is asked for by itself (semantics 7.3)."""
    if wanted["type"] == "auto":
        return
    block: records.IpNetwork = subnet.ipv4_block if version == "v4" else subnet.ipv6_block
    ip = ipaddress.ip_address(wanted["value"])
    if ip not in block:
        raise errors.invalid_request(f"{ip} is outside subnet {block}")
    if int(ip) - int(block.network_address) < RESERVED_ADDRESSES:
        raise errors.invalid_request(f"The first {RESERVED_ADDRESSES} addresses of a subnet are reserved")
    if ip == block.broadcast_address:
        raise errors.invalid_request("Cannot request a broadcast address")


def _check_available(rack: Rack, subnet: records.VpcSubnet, stacks: dict[records.IpVersion, JSON]) -> None:
    exhausted = []
    for version, stack in stacks.items():
        book = _book(rack, subnet.id, version)
        if stack["ip"]["type"] == "explicit":
            ip = ipaddress.ip_address(stack["ip"]["value"])
            if book.is_taken(int(ip)):
                raise errors.invalid_request(f"The IP address '{ip}' is not available")
        elif book.peek() is None:
            exhausted.append(f"IP{version}")
    if exhausted:
        families = " and ".join(exhausted)
        raise errors.invalid_request(
            f"No available {families} addresses for interface in subnet '{subnet.name}' with ID '{subnet.id}'"
        )


def _take(rack: Rack, subnet: records.VpcSubnet, version: records.IpVersion, stack: JSON) -> int:
    book = _book(rack, subnet.id, version)
    if stack["ip"]["type"] == "auto":
        number = book.take()
        assert number is not None, "it was free when it was looked at"
        return number
    number = int(ipaddress.ip_address(stack["ip"]["value"]))
    taken = book.claim(number)
    assert taken, f"{address(number, version)} was free when it was looked at"
    return number


def _transit_ips(stacks: dict[records.IpVersion, JSON], version: records.IpVersion) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(block)) for block in stacks.get(version, _AUTO)["transit_ips"])


def _new_mac(rack: Rack) -> str:
    """A random MAC address of the guests' range that no other NIC of the rack has."""
    if len(rack.mac_addresses) > _LAST_MAC - _FIRST_MAC:
        raise errors.invalid_request("No available MAC addresses for interface")
    while (number := rack.randomness.randint(_FIRST_MAC, _LAST_MAC)) in rack.mac_addresses:
        pass
    rack.mac_addresses.add(number)
    return number.to_bytes(6, "big").hex(":").upper()


def _mac_number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def _book(rack: Rack, subnet: str, version: records.IpVersion) -> LowestFree:
    return rack.subnet_addresses[subnet, version]
