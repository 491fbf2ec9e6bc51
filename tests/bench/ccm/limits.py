"""What the cloud controller manager may cost, and whether the results of a run keep it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from capox.ccm.service_targets_plan import NOT_READY_SECONDS
from capox.oxide.shared_list import REST_SECONDS
from tests.bench.ccm.results import Results
from tests.bench.tables import MEGABYTE, Verdict

__all__ = ["judge"]

LARGE_NODES: Final = 100
LARGE_SERVICES: Final = 50

RESIDENT_MEGABYTES: Final = 90.0
"""Memory at rest, at the large size."""

RACK_CALLS: Final = 4.0
"""Calls a minute at rest."""

FAILOVER_RATIO: Final = 8.0
"""A failover beyond the time that has to pass before anybody may know of it, against the rack's detach and attach."""


def judge(results: Results) -> tuple[Verdict, ...]:
    """Hold the results to every limit that they can be held to."""
    return tuple(_judge(results))


def _judge(results: Results) -> Iterator[Verdict]:
    subject = f"{results.nodes} Nodes, {results.services} Services"
    yield Verdict(subject, "one port twice on a node", results.collisions, 0)
    yield Verdict(subject, "Kubernetes writes at rest", sum(results.rest.writes.values()), 0)
    yield Verdict(subject, "rack calls a minute at rest", results.rest.rack_calls_a_minute, RACK_CALLS)
    if results.nodes >= LARGE_NODES and results.services >= LARGE_SERVICES:
        yield Verdict(subject, "memory at rest, MB", results.resident_bytes / MEGABYTE, RESIDENT_MEGABYTES)
    failovers = results.failovers
    floor = statistics.median(failovers.floor)
    for name, trials, known_after in (
        ("stopped", failovers.stopped, REST_SECONDS),
        ("silent", failovers.silent, NOT_READY_SECONDS),
    ):
        what = f"failover from {name}, slowest, beyond {known_after:g} s / detach and attach"
        yield Verdict(subject, what, max(max(trials) - known_after, 0.0) / floor, FAILOVER_RATIO)
