"""The client of an Oxide rack: its operations, their models and errors, and the shared observation of a project.

This room knows nothing of Kubernetes. Its tour begins in `client.py`; `docs/explanation/oxide-client.md` tells why it
is as it is. Where a comment says "semantics 4.2", it means that section of `docs/explanation/how-a-rack-behaves.md`.
"""

from capox.oxide.client import API_VERSION, OxideClient
from capox.oxide.clock import Clock, LoopClock
from capox.oxide.inventory import ProjectInventory
from capox.oxide.models.wire import NameOrId
from capox.oxide.operation import Paged
from capox.oxide.origin import parse_origin
from capox.oxide.shared_list import Moment, SharedList
from capox.oxide.snapshots import (
    DiskSnapshot,
    FloatingIpSnapshot,
    InstanceSnapshot,
    InventorySnapshot,
    NetworkInterfaceSnapshot,
    ObservedDisk,
    ObservedFloatingIp,
    ObservedInstance,
    ObservedNetworkInterface,
)
from capox.oxide.token_bucket import TokenBucket, TokenBuckets

__all__ = [
    "API_VERSION",
    "Clock",
    "DiskSnapshot",
    "FloatingIpSnapshot",
    "InstanceSnapshot",
    "InventorySnapshot",
    "LoopClock",
    "Moment",
    "NameOrId",
    "NetworkInterfaceSnapshot",
    "ObservedDisk",
    "ObservedFloatingIp",
    "ObservedInstance",
    "ObservedNetworkInterface",
    "OxideClient",
    "Paged",
    "ProjectInventory",
    "SharedList",
    "TokenBucket",
    "TokenBuckets",
    "parse_origin",
]
