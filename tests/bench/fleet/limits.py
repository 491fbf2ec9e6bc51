"""What a fleet may cost: every limit, and whether the results of a run keep it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.bench.fleet.results import FleetResult, Results
from tests.bench.tables import MEGABYTE, Verdict

__all__ = ["judge"]

CREATE_WRITES: Final = 1.0
DELETE_WRITES: Final = 3.0
"""Writes of instances and disks a machine."""

CREATE_READS: Final = 0.2
"""Reads a machine until provisioned, at the largest size, where a read a machine would show."""

DELETE_VIEWS: Final = 5.0
"""Reads by id a machine, beside the lists."""

REST_READINGS: Final = 4.0
"""Lists a minute and project."""

REST_WRITES: Final = 0.0
"""Writes to Kubernetes but for Leases."""

PEAK_MEGABYTES: Final = 150.0
"""Memory at the largest size."""

CPU_GROWTH: Final = 1.2
"""CPU seconds a machine, against those at the size that is compared with."""

TIME_RATIO: Final = 1.15
"""Apply to provisioned, against the rack's floor and Cluster API's own time together."""

LARGE: Final = 1000
COMPARED: Final = 100


def judge(results: Results) -> tuple[Verdict, ...]:
    """Hold the results of a run to every limit that they can be held to."""
    return tuple(verdict for fleet in results.fleets for verdict in _judge_fleet(fleet, results))


def _judge_fleet(fleet: FleetResult, results: Results) -> Iterator[Verdict]:
    subject, machines = f"{fleet.machines} machines, {fleet.profile}", fleet.machines
    yield Verdict(subject, "writes a machine to create", fleet.create.machine_writes / machines, CREATE_WRITES, True)
    yield Verdict(subject, "writes a machine to delete", fleet.delete.machine_writes / machines, DELETE_WRITES, True)
    yield Verdict(subject, "reads by id a machine to delete", fleet.delete.views / machines, DELETE_VIEWS)
    yield Verdict(subject, "lists a minute at rest", fleet.readings_a_minute, REST_READINGS)
    yield Verdict(subject, "Kubernetes writes at rest", fleet.writes_at_rest, REST_WRITES)
    if machines >= LARGE:
        yield Verdict(subject, "reads a machine to provisioned", fleet.create.reads / machines, CREATE_READS)
        yield Verdict(subject, "peak memory, MB", fleet.peak_bytes / MEGABYTE, PEAK_MEGABYTES)
        yield from _judge_growth(fleet, subject, results)
    floor, in_memory = results.floor_of(fleet), results.in_memory_of(fleet)
    if floor is not None and in_memory is not None:
        least = floor.create_seconds + in_memory.times.provisioned
        what = "apply to provisioned / (floor + Cluster API)"
        yield Verdict(subject, what, fleet.times.provisioned / least, TIME_RATIO)


def _judge_growth(fleet: FleetResult, subject: str, results: Results) -> Iterator[Verdict]:
    for other in results.fleets:
        if (other.machines, other.profile) == (COMPARED, fleet.profile):
            what = f"CPU a machine / that at {COMPARED}"
            yield Verdict(subject, what, fleet.cpu_per_machine / other.cpu_per_machine, CPU_GROWTH)
