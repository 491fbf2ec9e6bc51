"""Nodes, instances and lists of them for tables."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from uuid import UUID

from capox.ccm.kinds import NODES
from capox.kube.core_objects import Node, NodeAddress
from capox.oxide.shared_list import Moment
from capox.oxide.snapshots import InstanceSnapshot, InventorySnapshot, ObservedInstance, ObservedNetworkInterface

NOW = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)


def uuid_of(number: int) -> UUID:
    """The id of an instance or interface by its number; it has letters, whose case can differ."""
    return UUID(int=(0xABCDEF << 100) + number, version=4)


def instance(number: int, name: str, hostname: str | None = None, **changes: Any) -> ObservedInstance:
    """An instance in a list."""
    values: dict[str, Any] = {
        "id": uuid_of(number),
        "name": name,
        "description": "",
        "hostname": hostname or name,
        "run_state": "running",
        "ncpus": 2,
        "memory_bytes": 4 * 2**30,
        "boot_disk_id": None,
        "auto_restart_enabled": True,
        "auto_restart_cooldown_expiration": None,
        "time_created": NOW,
        "time_run_state_updated": NOW,
    }
    return ObservedInstance(**(values | changes))


def listed(*instances: ObservedInstance) -> InstanceSnapshot:
    """A project's list."""
    return InventorySnapshot(Moment(order=1, seconds=0.0), instances)


def interface(number: int, *addresses: str, primary: bool = False, name: str = "") -> ObservedNetworkInterface:
    """An interface of the first instance."""
    return ObservedNetworkInterface(
        id=uuid_of(number),
        name=name or f"net{number}",
        instance_id=uuid_of(1),
        primary=primary,
        addresses=tuple(ip_address(text) for text in addresses),
    )


def node(
    name: str = "node-1",
    *,
    provider_id: str = "",
    ready: str = "True",
    addresses: Sequence[tuple[str, str]] = (),
    taints: Sequence[Mapping[str, Any]] = (),
    **metadata: Any,
) -> Node:
    """A Node."""
    document = {
        "metadata": {"name": name, "uid": f"uid of {name}", "resourceVersion": "7", **metadata},
        "spec": {"providerID": provider_id, "taints": list(taints)},
        "status": {
            "addresses": [{"type": type_, "address": address} for type_, address in addresses],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return NODES.parse(document)


def pairs(addresses: Sequence[NodeAddress]) -> list[tuple[str, str]]:
    """Addresses as pairs."""
    return [(each.type, each.address) for each in addresses]
