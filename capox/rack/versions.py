"""The `api-version` header, and how requests of older versions differ (semantics 1.2).

The rack has one document, that of its latest version. A request of an older version is translated into today's form
before it is decoded; its
answer keeps today's shape, which holds for the older versions in all that this rack serves.
"""

from __future__ import annotations

import functools
import re

from capox.rack import errors
from capox.rack.json import JSON

# Of a version in a header; far more than any has.
MAXIMUM_CHARACTERS = 100

_SEMVER = re.compile(r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")

# The version from which an operation exists, where that is not the first.
_OPERATION_SINCE = {
    **dict.fromkeys(("ip_pool_list", "ip_pool_view", "subnet_pool_list", "subnet_pool_view"), 2026020900),
    **dict.fromkeys((f"external_subnet_{verb}" for verb in ("list", "create", "view", "update", "delete")), 2026011601),
    **dict.fromkeys(("external_subnet_attach", "external_subnet_detach"), 2026011601),
    "instance_external_subnet_list": 2026013000,
}

_DUAL_STACK_INTERFACES_SINCE = 2026010300
_ADDRESS_ALLOCATOR_SINCE = 2026012200
_DISK_BACKEND_SINCE = 2025120300


def parse(header: str | None, latest: str) -> int:
    """The version of a request, as a number `YYYYMMDDNN`; without a header, the latest.

    Raises:
        FrameworkError: it is not a version, or newer than the rack.
    """
    if header is None:
        return _number(latest)
    if len(header) > MAXIMUM_CHARACTERS or not _SEMVER.fullmatch(header):
        complaint = f"unexpected character while parsing major version number: {header}"
        raise errors.bad_request(f'bad value for header "api-version": {complaint}')
    if _key(header) > _key(latest):
        raise errors.bad_request(f"server does not support this API version: {header}")
    return _number(header)


def has_operation(version: int, operation_id: str) -> bool:
    """Whether the operation existed in that version."""
    return version >= _OPERATION_SINCE.get(operation_id, 0)


def translate(version: int, operation_id: str, body: JSON) -> JSON:
    """A body of an older version in today's form; what has neither form is left for the document to judge."""
    if not isinstance(body, dict):
        return body
    if operation_id == "instance_create":
        body = dict(body)
        if version < _DUAL_STACK_INTERFACES_SINCE:
            body["network_interfaces"] = _old_interfaces(body.get("network_interfaces"))
        if version < _ADDRESS_ALLOCATOR_SINCE and isinstance(body.get("external_ips"), list):
            body["external_ips"] = [_old_external_ip(entry) for entry in body["external_ips"]]
        if version < _DISK_BACKEND_SINCE:
            body = _old_instance_disks(body)
    elif operation_id == "instance_network_interface_create" and version < _DUAL_STACK_INTERFACES_SINCE:
        body = _old_interface(body)
    elif operation_id == "instance_ephemeral_ip_attach" and version < _ADDRESS_ALLOCATOR_SINCE:
        body = _old_ephemeral_ip(body)
    elif operation_id == "floating_ip_create" and version < _ADDRESS_ALLOCATOR_SINCE:
        body = _old_floating_ip(body)
    elif operation_id == "disk_create" and version < _DISK_BACKEND_SINCE:
        body = _old_disk(body)
    return body


@functools.lru_cache(maxsize=128)
def _key(version: str) -> tuple[int, int, int]:
    major, minor, patch = re.split(r"[.+-]", version)[:3]
    return int(major), int(minor), int(patch)


def _number(version: str) -> int:
    return _key(version)[0]


def _old_interfaces(value: JSON) -> JSON:
    """Before dual stack, `default` (also when absent) was one IPv4 interface, and an interface had an optional `ip`."""
    if value is None or value == {"type": "default"}:
        return {"type": "default_ipv4"}
    if isinstance(value, dict) and value.get("type") == "create" and isinstance(value.get("params"), list):
        return {**value, "params": [_old_interface(interface) for interface in value["params"]]}
    return value


def _old_interface(interface: JSON) -> JSON:
    if not isinstance(interface, dict) or "ip_config" in interface:
        return interface
    kept = {key: value for key, value in interface.items() if key not in {"ip", "transit_ips"}}
    wanted = interface.get("ip")
    address = {"type": "auto"} if wanted is None else {"type": "explicit", "value": wanted}
    stack = {"ip": address, "transit_ips": interface.get("transit_ips", [])}
    return {**kept, "ip_config": {"type": "v4", "value": stack}}


def _old_external_ip(entry: JSON) -> JSON:
    """Before pool selectors, an ephemeral address named its `pool`."""
    if not isinstance(entry, dict) or entry.get("type") != "ephemeral":
        return entry
    return {"type": "ephemeral"} | _old_ephemeral_ip(entry)


def _old_ephemeral_ip(body: dict[str, JSON]) -> dict[str, JSON]:
    if "pool_selector" in body:
        return body
    return {"pool_selector": _selector(body.get("pool"), body.get("ip_version"))}


def _old_floating_ip(body: dict[str, JSON]) -> dict[str, JSON]:
    """Before allocators, a floating IP was asked for by `ip` or `pool`."""
    if "address_allocator" in body:
        return body
    kept = {key: value for key, value in body.items() if key not in {"ip", "pool", "ip_version", "address_selector"}}
    selected = body.get("address_selector")
    if isinstance(selected, dict):
        return {**kept, "address_allocator": selected}
    if body.get("ip") is not None:
        return {**kept, "address_allocator": {"type": "explicit", "ip": body["ip"]}}
    return {
        **kept,
        "address_allocator": {"type": "auto", "pool_selector": _selector(body.get("pool"), body.get("ip_version"))},
    }


def _selector(pool: JSON, ip_version: JSON) -> JSON:
    if pool is None:
        return {"type": "auto", "ip_version": ip_version}
    # A version beside a pool is no part of today's form; it has to be that of the pool (semantics 6).
    return {"type": "explicit", "pool": pool} | ({} if ip_version is None else {"ip_version": ip_version})


def _old_instance_disks(body: dict[str, JSON]) -> dict[str, JSON]:
    out = dict(body)
    if isinstance(body.get("disks"), list):
        out["disks"] = [_old_disk(entry) for entry in body["disks"]]
    if body.get("boot_disk") is not None:
        out["boot_disk"] = _old_disk(body["boot_disk"])
    return out


def _old_disk(entry: JSON) -> JSON:
    """Before backends, a disk had its `disk_source` at the top, and every disk was distributed."""
    if not isinstance(entry, dict) or "disk_source" not in entry:
        return entry
    kept = {key: value for key, value in entry.items() if key != "disk_source"}
    return {**kept, "disk_backend": {"type": "distributed", "disk_source": entry["disk_source"]}}
