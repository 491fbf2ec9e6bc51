"""VPCs and their subnets: what comes with a VPC when it is made, and what goes with it (semantics 7.1, 7.3)."""

from __future__ import annotations

import ipaddress

from capox.rack import errors, records, views
from capox.rack.json import JSON
from capox.rack.state import Rack

DEFAULT_SUBNET_BLOCK = ipaddress.IPv4Network("172.30.0.0/22")
PRIVATE_BLOCKS = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
SUBNET_PREFIX_MINIMUM = 8
SUBNET_PREFIX_MAXIMUM = 26

_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")
_VPC_IPV6_PREFIX = 48
_SUBNET_IPV6_PREFIX = 64
_DEFAULT_RULE_PRIORITY = 65534


def add_vpc(
    rack: Rack,
    project: records.Project,
    *,
    name: str,
    description: str,
    dns_name: str,
    ipv6_prefix: ipaddress.IPv6Network | None = None,
) -> records.Vpc:
    """Make a VPC with everything that a new one contains: system router, gateway, subnet and firewall rules.

    Args:
        rack: the rack.
        project: where it belongs.
        name: its name.
        description: its description.
        dns_name: its name in DNS, which nothing serves yet.
        ipv6_prefix: a unique local /48; absent, a random one.

    Raises:
        Refusal: the prefix is not such a one, or the name is taken.
    """
    if ipv6_prefix is not None and not _is_vpc_prefix(ipv6_prefix):
        raise errors.invalid_request(
            f"ipv6_prefix {ipv6_prefix} is not a /{_VPC_IPV6_PREFIX} of unique local addresses, such as fd12:3456::/48"
        )
    vpc = records.Vpc(
        **rack.identity(name, description),
        project=project.id,
        dns_name=dns_name,
        ipv6_prefix=ipv6_prefix or _random_prefix(rack),
        system_router=rack.new_id(),
    )
    rack.vpcs.insert(vpc)
    _add_system_router(rack, vpc)
    _add_gateway(rack, vpc, project.silo)
    add_subnet(
        rack,
        vpc,
        name="default",
        description=f"The default subnet for {name}",
        ipv4_block=DEFAULT_SUBNET_BLOCK,
        ipv6_block=next(vpc.ipv6_prefix.subnets(new_prefix=_SUBNET_IPV6_PREFIX)),
    )
    vpc.firewall_rules = [stored_rule(rack, vpc, rule) for rule in _default_rules(name)]
    return vpc


def remove_vpc(rack: Rack, vpc: records.Vpc) -> None:
    """Take a VPC away, with its router, its gateway and its firewall rules.

    Raises:
        Refusal: it has a subnet.
    """
    if rack.subnets.count(vpc.id):
        raise errors.invalid_request("VPC cannot be deleted while VPC Subnets exist")
    for router in rack.routers.of(vpc.id):
        for route in rack.routes.of(router.id):
            rack.routes.delete(route)
        rack.routers.delete(router)
    for gateway in rack.gateways.of(vpc.id):
        for attached in rack.gateway_ip_pools.of(gateway.id):
            rack.gateway_ip_pools.delete(attached)
        rack.gateways.delete(gateway)
    rack.vpcs.delete(vpc)


def add_subnet(
    rack: Rack,
    vpc: records.Vpc,
    *,
    name: str,
    description: str,
    ipv4_block: ipaddress.IPv4Network,
    ipv6_block: ipaddress.IPv6Network | None = None,
) -> records.VpcSubnet:
    """Make a subnet, with its route in the VPC's system router.

    Args:
        rack: the rack.
        vpc: where it belongs.
        name: its name.
        description: its description.
        ipv4_block: a private block with a prefix of 8 to 26.
        ipv6_block: a /64 of the VPC's prefix; absent, a random free one.

    Raises:
        Refusal: a block is not such a one or overlaps another subnet's, or the name is taken.
    """
    _check_blocks(vpc, ipv4_block, ipv6_block)
    siblings = rack.subnets.of(vpc.id)
    if any(ipv4_block.overlaps(other.ipv4_block) for other in siblings):
        raise _conflict(ipv4_block)
    if ipv6_block is not None and any(ipv6_block.overlaps(other.ipv6_block) for other in siblings):
        raise _conflict(ipv6_block)
    subnet = records.VpcSubnet(
        **rack.identity(name, description),
        vpc=vpc.id,
        ipv4_block=ipv4_block,
        ipv6_block=ipv6_block or _random_block(rack, vpc, siblings),
    )
    rack.add_subnet(subnet)
    route_name = name if rack.routes.by_name(vpc.system_router, name) is None else f"subnet-{subnet.id}"
    rack.routes.insert(
        records.RouterRoute(
            **rack.identity(route_name, f"Leads to the VPC subnet {name}"),
            router=vpc.system_router,
            kind="vpc_subnet",
            destination={"type": "subnet", "value": name},
            target={"type": "subnet", "value": name},
        )
    )
    return subnet


def follow_subnet_name(rack: Rack, subnet: records.VpcSubnet, old_name: str) -> None:
    """Let the route of a subnet that has been renamed name it by its new name."""
    route = _route_to(rack, subnet, old_name)
    route.destination = route.target = {"type": "subnet", "value": subnet.name}
    route.time_modified = rack.now()


def remove_subnet(rack: Rack, subnet: records.VpcSubnet) -> None:
    """Take a subnet and its route away.

    Raises:
        Refusal: there are NICs in it.
    """
    if len(rack.network_interfaces_in[subnet.id]):
        raise errors.invalid_request("VPC Subnet cannot be deleted while network interfaces in the subnet exist")
    rack.routes.delete(_route_to(rack, subnet, subnet.name))
    rack.remove_subnet(subnet)


def stored_rule(rack: Rack, vpc: records.Vpc, rule: JSON) -> JSON:
    """A firewall rule as the API shows it, from the form in which it takes it: every write gives it a new id."""
    moment = views.timestamp(rack.now())
    return {
        **rule,
        "id": rack.new_id(),
        "vpc_id": vpc.id,
        "time_created": moment,
        "time_modified": moment,
    }


def _add_system_router(rack: Rack, vpc: records.Vpc) -> None:
    identity = rack.identity("system", "Routes of the VPC's subnets and its ways outside")
    rack.routers.insert(records.VpcRouter(**{**identity, "id": vpc.system_router}, vpc=vpc.id, kind="system"))
    for name, block in (("default-v4", "0.0.0.0/0"), ("default-v6", "::/0")):
        rack.routes.insert(
            records.RouterRoute(
                **rack.identity(name, "The default route of a VPC"),
                router=vpc.system_router,
                kind="default",
                destination={"type": "ip_net", "value": block},
                target={"type": "internet_gateway", "value": "default"},
            )
        )


def _add_gateway(rack: Rack, vpc: records.Vpc, silo: str) -> None:
    """The gateway `default`, with the default pools that the silo has now."""
    gateway = records.InternetGateway(**rack.identity("default", "The default gateway of a VPC"), vpc=vpc.id)
    rack.gateways.insert(gateway)
    for pool in rack.ip_pools:
        if pool.pool_type == "unicast" and pool.links.get(silo, False):
            attached = records.InternetGatewayIpPool(
                **rack.identity(f"default-{pool.version}", "A default IP pool of the silo"),
                gateway=gateway.id,
                pool=pool.id,
            )
            rack.gateway_ip_pools.insert(attached)


def _check_blocks(
    vpc: records.Vpc, ipv4_block: ipaddress.IPv4Network, ipv6_block: ipaddress.IPv6Network | None
) -> None:
    if not any(ipv4_block.network_address in private for private in PRIVATE_BLOCKS):
        raise errors.invalid_request("VPC Subnet IPv4 address ranges must be from a private range")
    if not SUBNET_PREFIX_MINIMUM <= ipv4_block.prefixlen <= SUBNET_PREFIX_MAXIMUM:
        raise errors.invalid_request(
            f"ipv4_block {ipv4_block}: the prefix length of a VPC Subnet's IPv4 address range is "
            f"{SUBNET_PREFIX_MINIMUM} to {SUBNET_PREFIX_MAXIMUM}"
        )
    if ipv6_block is not None and not (
        ipv6_block.prefixlen == _SUBNET_IPV6_PREFIX and ipv6_block.subnet_of(vpc.ipv6_prefix)
    ):
        raise errors.invalid_request(
            f"ipv6_block {ipv6_block}: the IPv6 address range of a VPC Subnet is a /{_SUBNET_IPV6_PREFIX} within its "
            f"VPC's prefix {vpc.ipv6_prefix}"
        )


def _conflict(block: records.IpNetwork) -> errors.Refusal:
    return errors.invalid_request(f"IP address range '{block}' conflicts with an existing subnet")


def _random_block(rack: Rack, vpc: records.Vpc, siblings: list[records.VpcSubnet]) -> ipaddress.IPv6Network:
    taken = {int(subnet.ipv6_block.network_address) for subnet in siblings}
    bits = _SUBNET_IPV6_PREFIX - _VPC_IPV6_PREFIX
    assert len(taken) < 2**bits, "a VPC cannot hold so many subnets"
    while True:
        number = rack.randomness.getrandbits(bits) << (128 - _SUBNET_IPV6_PREFIX)
        block = int(vpc.ipv6_prefix.network_address) | number
        if block not in taken:
            return ipaddress.IPv6Network((block, _SUBNET_IPV6_PREFIX))


def _route_to(rack: Rack, subnet: records.VpcSubnet, name: str) -> records.RouterRoute:
    vpc = rack.vpcs.by_id(subnet.vpc)
    assert vpc is not None, "a subnet outlived its VPC"
    target = {"type": "subnet", "value": name}
    return next(route for route in rack.routes.of(vpc.system_router) if route.target == target)


def _is_vpc_prefix(prefix: ipaddress.IPv6Network) -> bool:
    return prefix.prefixlen == _VPC_IPV6_PREFIX and prefix.subnet_of(_UNIQUE_LOCAL)


def _random_prefix(rack: Rack) -> ipaddress.IPv6Network:
    prefix = (0xFD << 120) | (rack.randomness.getrandbits(40) << 80)
    return ipaddress.IPv6Network((prefix, _VPC_IPV6_PREFIX))


def _default_rules(vpc_name: str) -> list[JSON]:
    def rule(name: str, description: str, filters: JSON) -> JSON:
        return {
            "name": name,
            "description": description,
            "status": "enabled",
            "direction": "inbound",
            "action": "allow",
            "priority": _DEFAULT_RULE_PRIORITY,
            "targets": [{"type": "vpc", "value": vpc_name}],
            "filters": {"hosts": None, "ports": None, "protocols": None} | filters,
        }

    return [
        rule(
            "allow-icmp", "allow inbound ICMP traffic from anywhere", {"protocols": [{"type": "icmp", "value": None}]}
        ),
        rule(
            "allow-internal-inbound",
            "allow inbound traffic to all instances within the VPC if originated within the VPC",
            {"hosts": [{"type": "vpc", "value": vpc_name}]},
        ),
        rule(
            "allow-ssh",
            "allow inbound TCP connections on port 22 from anywhere",
            {"ports": ["22"], "protocols": [{"type": "tcp"}]},
        ),
    ]
