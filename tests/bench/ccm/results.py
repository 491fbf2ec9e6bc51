"""What a run has measured. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["Failovers", "Rest", "Results"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rest:
    """A time in which nothing happens.

    Attributes:
        seconds: How long it was.
        writes: What was written to Kubernetes but for the Lease, by resource.
        lease_renewals: How often the Lease was.
        rack_calls: Rack calls by operation; a list of several pages counts once.
        cpu_seconds: CPU time.
    """

    seconds: float
    writes: Mapping[str, int]
    lease_renewals: int
    rack_calls: Mapping[str, int]
    cpu_seconds: float

    @property
    def rack_calls_a_minute(self) -> float:
        """All calls of the rack."""
        return sum(self.rack_calls.values()) * 60 / self.seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failovers:
    """How long addresses took to get to another instance, trial by trial, in seconds.

    Attributes:
        floor: Detach and attach by a bare script that looks for the end of each.
        stopped: From when the rack called the instance stopped, its Node still Ready.
        silent: From when the Node was no longer Ready, its instance still running.
    """

    floor: tuple[float, ...]
    stopped: tuple[float, ...]
    silent: tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """All of one run.

    Attributes:
        profile: The rack's timing.
        nodes: How many Nodes there were.
        services: How many Services.
        initialised_seconds: From the first Node registered until none had the taint any more.
        served_seconds: From the first Service made until all showed their addresses.
        collisions: Where two floating IPs with one port were on one instance, in all looks together.
        rest: The rest.
        resident_bytes: Memory at its end.
        peak_bytes: The most memory until the end of everything.
        failovers: How long addresses took to get elsewhere.
    """

    profile: str
    nodes: int
    services: int
    initialised_seconds: float
    served_seconds: float
    collisions: int
    rest: Rest
    resident_bytes: int
    peak_bytes: int
    failovers: Failovers
