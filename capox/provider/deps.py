"""What the reconcilers need from outside. Nothing in this room is global."""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Awaitable, Callable

from capox.kube.client import KubeAPI
from capox.kube.events import Recorder
from capox.oxide.clock import Clock
from capox.provider.racks import Racks

__all__ = ["Deps"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """What a reconciler is made with.

    Attributes:
        kube: The management cluster's API.
        racks: The source of projects by credentials.
        clock: Time that only moves forward, for ages and pauses.
        now: The wall clock, for what is stored.
        randomness: For ids and jitter.
        recorder: Where Events go.
        probe: Tells whether an apiserver answers at an address and port just now.
        watch_filter: The value of the label by which this process picks its objects; empty takes all (C-PA-5).
        sync_period_seconds: After how long an object at rest is looked at again.
    """

    kube: KubeAPI
    racks: Racks
    clock: Clock
    now: Callable[[], datetime.datetime]
    randomness: random.Random
    recorder: Recorder
    probe: Callable[[str, int], Awaitable[bool]]
    watch_filter: str = ""
    sync_period_seconds: float = 600.0
