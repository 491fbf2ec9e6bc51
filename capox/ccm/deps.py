"""What the controllers need from outside. Nothing in this room is global."""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Callable

from capox.ccm.cache import Cache
from capox.ccm.rack import Rack
from capox.kube.client import KubeAPI
from capox.kube.core_objects import Node, Pod, Service
from capox.kube.events import Recorder
from capox.oxide.clock import Clock

__all__ = ["Deps"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """What a controller is made with.

    Attributes:
        kube: The cluster's API; its writes ask for the Lease first (`capox.ccm.leading.LeadingKube`, R1).
        rack: The source of the project; its client's writes ask for the Lease first.
        nodes: The Nodes as the watch has told of them.
        services: The Services, likewise.
        pods: The Pods that take ports of their nodes, likewise.
        clock: Time that only moves forward, for ages and pauses.
        now: The wall clock, for what is stored.
        randomness: For jitter.
        recorder: Where this controller's Events go; each controller has its own, under the name that upstream's has.
        is_leading: Whether the Lease is ours at this moment; long work asks before it goes on.
    """

    kube: KubeAPI
    rack: Rack
    nodes: Cache[Node]
    services: Cache[Service]
    pods: Cache[Pod]
    clock: Clock
    now: Callable[[], datetime.datetime]
    randomness: random.Random
    recorder: Recorder
    is_leading: Callable[[], bool]
