"""The whole rack as JSON: every record with all its fields, ordered, so that two dumps of the same world are equal.

Records are dumped by the types of their fields. Bytes (user data, what a guest wrote) appear as their hash and length
only, and of tokens nothing but that they are there.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from capox.rack import records
from capox.rack.console import Console
from capox.rack.json import JSON
from capox.rack.state import Rack
from capox.rack.table import Table

# What is dumped in the form in which it is written everywhere.
_TEXTS = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network)


def dump(rack: Rack) -> JSON:
    """Everything that is on the rack now, after what is due has been done."""
    return {
        "api_version": rack.latest_version,
        "silos": [_silo(rack, silo) for silo in _of(rack.silos, "fleet")],
        "ip_pools": [
            record(pool) | {"addresses_taken": rack.pool_addresses[pool.id].taken_count}
            for pool in _of(rack.ip_pools, "fleet")
        ],
        "subnet_pools": [record(pool) for pool in _of(rack.subnet_pools, "fleet")],
        "sleds": dump_sleds(rack),
    }


def dump_sleds(rack: Rack) -> JSON:
    """The sleds, by name."""
    return [record(sled) for sled in sorted(rack.sleds.values(), key=lambda sled: sled.name)]


def instance(rack: Rack, found: records.Instance) -> JSON:
    """One instance with everything that belongs to it."""
    return record(found) | {
        "network_interfaces": [record(nic) for nic in _of(rack.network_interfaces, found.id)],
        "ephemeral_ips": [record(held) for held in _by_address(rack.ephemeral_ips_of.get(found.id, ()))],
        "snat_ip": _value(rack.snat_ips_of.get(found.id)),
        "disks": sorted(rack.disks_of.get(found.id, ())),
        "floating_ips": sorted(rack.floating_ips_of.get(found.id, ())),
        "external_subnets": sorted(rack.external_subnets_of.get(found.id, ())),
        "anti_affinity_groups": sorted(rack.groups_of.get(found.id, ())),
    }


def digest(content: bytes) -> JSON:
    """What a dump says about bytes: how many they are, and their hash."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _silo(rack: Rack, silo: records.Silo) -> JSON:
    users = []
    for user in _of(rack.users, silo.id):
        tokens = sorted((token for token in rack.tokens.values() if token.user == user.id), key=lambda token: token.id)
        users.append(
            record(user)
            | {
                "tokens": [{"id": token.id, "time_expires": _value(token.time_expires)} for token in tokens],
                "ssh_keys": [record(key) for key in _of(rack.ssh_keys, user.id)],
            }
        )
    return record(silo) | {
        "users": users,
        "images": [record(image) for image in _of(rack.images, silo.id)],
        "projects": [_project(rack, project) for project in _of(rack.projects, silo.id)],
    }


def _project(rack: Rack, project: records.Project) -> JSON:
    tables: Mapping[str, Table[Any]] = {
        "anti_affinity_groups": rack.anti_affinity_groups,
        "disks": rack.disks,
        "external_subnets": rack.external_subnets,
        "floating_ips": rack.floating_ips,
        "images": rack.images,
        "snapshots": rack.snapshots,
    }
    return (
        record(project)
        | {name: [record(found) for found in _of(table, project.id)] for name, table in tables.items()}
        | {
            "instances": [instance(rack, found) for found in _of(rack.instances, project.id)],
            "vpcs": [_vpc(rack, vpc) for vpc in _of(rack.vpcs, project.id)],
        }
    )


def _vpc(rack: Rack, vpc: records.Vpc) -> JSON:
    return record(vpc) | {
        "subnets": [record(subnet) for subnet in _of(rack.subnets, vpc.id)],
        "routers": [
            record(router) | {"routes": [record(route) for route in _of(rack.routes, router.id)]}
            for router in _of(rack.routers, vpc.id)
        ],
        "internet_gateways": [
            record(gateway) | {"ip_pools": [record(pool) for pool in _of(rack.gateway_ip_pools, gateway.id)]}
            for gateway in _of(rack.gateways, vpc.id)
        ],
    }


def _of(table: Table[Any], parent: str) -> list[Any]:
    return table.of(parent)


def _by_address(held: Iterable[records.EphemeralIp]) -> list[records.EphemeralIp]:
    return sorted(held, key=lambda address: (address.ip.version, int(address.ip)))


def record(found: Any) -> dict[str, JSON]:
    """One record with all its fields."""
    return {
        field.name: _value(getattr(found, field.name))
        for field in dataclasses.fields(found)
        if not field.name.startswith("_")
    }


def _value(value: Any) -> JSON:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(key): _value(member) for key, member in sorted(value.items(), key=lambda item: str(item[0]))}
        case set() | frozenset():
            return sorted(_value(member) for member in value)
        case list() | tuple():
            return [_value(member) for member in value]
        case bytes() | bytearray():
            return digest(bytes(value))
        case Console():
            return {"starts": value.starts, "end": value.end, "kept": digest(value.read(0))}
        case datetime.datetime():
            return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    if dataclasses.is_dataclass(value):
        return record(value)
    raise TypeError(f"a record holds a {type(value).__name__}, which the inventory cannot dump")
