"""NICs of instances; there is no hot plug, so every change needs a stopped instance (semantics 3.2, 4.3)."""

from __future__ import annotations

from capox.rack import errors, external_addresses, interfaces, records, select, vpc_scope
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def instance_network_interface_list(call: Call) -> JSON:
    """`GET /v1/network-interfaces`: those of an instance."""
    instance = vpc_scope.instance_of_query(call)
    return call.page(call.rack.network_interfaces, instance.id, interfaces.interface_view)


@operation
def instance_network_interface_create(call: Call) -> JSON:
    """`POST /v1/network-interfaces`: the instance has to be stopped."""
    instance = vpc_scope.instance_of_query(call, "compute")
    _require_state(instance, {"stopped"}, "Instance must be stopped to attach a new network interface")
    project = select.owner_of(call, instance)
    return interfaces.interface_view(interfaces.add_interface(call, project, instance, call.body))


@operation
def instance_network_interface_view(call: Call) -> JSON:
    """`GET /v1/network-interfaces/{interface}`."""
    return interfaces.interface_view(vpc_scope.interface(call))


@operation
def instance_network_interface_update(call: Call) -> JSON:
    """`PUT /v1/network-interfaces/{interface}`: the transit IPs become those of the body, also when it has none."""
    interface = vpc_scope.interface(call, "compute")
    rack, body = call.rack, call.body
    networks = interfaces.check_transit_ips(body["transit_ips"])
    instance = _instance_of(call, interface)
    _require_state(instance, {"stopped"}, "Instance must be stopped to update its network interfaces")
    _check_families(interface, networks)
    primary = interfaces.primary_of(rack, instance)
    becomes_primary = body["primary"] and not interface.is_primary
    if becomes_primary:
        _check_candidate(call, instance, interface)
    if body["description"] is not None:
        check_description(body["description"])
    if body["name"] is not None:
        interfaces.rename(rack, interface, body["name"])
    if body["description"] is not None:
        interface.description = body["description"]
    if becomes_primary and primary is not None:
        primary.is_primary, interface.is_primary = False, True
    interface.transit_ipv4 = tuple(str(network) for network in networks if network.version == 4)
    interface.transit_ipv6 = tuple(str(network) for network in networks if network.version == 6)
    interface.time_modified = rack.now()
    return interfaces.interface_view(interface)


@operation
def instance_network_interface_delete(call: Call) -> JSON:
    """`DELETE /v1/network-interfaces/{interface}`: the primary one only when it is the last."""
    interface = vpc_scope.interface(call, "compute")
    instance = _instance_of(call, interface)
    complaint = "Instance must be stopped or failed to detach a network interface"
    _require_state(instance, {"stopped", "failed"}, complaint)
    if interface.is_primary and call.rack.network_interfaces.count(instance.id) > 1:
        raise errors.invalid_request(
            "The primary interface may not be deleted while secondary interfaces are still attached"
        )
    interfaces.remove_interface(call.rack, interface)


def _instance_of(call: Call, interface: records.NetworkInterface) -> records.Instance:
    instance = call.rack.instances.by_id(interface.instance)
    assert instance is not None, "a NIC outlived its instance"
    return instance


def _require_state(instance: records.Instance, states: set[records.InstanceState], complaint: str) -> None:
    if instance.state not in states:
        raise errors.invalid_request(complaint)


def _check_families(interface: records.NetworkInterface, networks: list[records.IpNetwork]) -> None:
    """Check that an interface has an address of the family of each of its transit IPs."""
    for network in networks:
        if interfaces.of_version(interface, external_addresses.version_of(network)) is None:
            raise errors.invalid_request(
                f"transit IP {network}: interface '{interface.name}' has no IPv{network.version} address"
            )


def _check_candidate(call: Call, instance: records.Instance, interface: records.NetworkInterface) -> None:
    """Check that an interface can take over the external addresses of its instance."""
    for version in sorted(external_addresses.versions_of(call.rack, instance)):
        if interfaces.of_version(interface, version) is None:
            raise errors.invalid_request(
                f"primary: interface '{interface.name}' has no private IP{version} address, which the instance's "
                f"external IP{version} addresses need; detach these first or choose another interface"
            )
