"""The results of a run as tables, on a terminal and as a page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from capox.rack.timing import PRESETS
from tests.bench.fleet.limits import LARGE, judge
from tests.bench.fleet.racks import PROFILES
from tests.bench.fleet.results import FleetResult, RackCalls, Results
from tests.bench.machine import Machine
from tests.bench.tables import Table, as_markdown, limits_table, megabytes, number, seconds, show_tables

__all__ = ["page", "show"]

COMMAND: Final = "make bench REPORT=docs/reference/performance.md"

_DOMINANT: Final = ("provider", "kube-apiserver", "etcd", "capi-core", "rack")
"""The processes whose CPU time is shown; the others take next to none."""


_INTRODUCTION: Final = """\
What the provider asks of a rack and of the machine that it runs on, measured with whole fleets by `make bench`: plain
Machines with given bootstrap Secrets, 50 in a Cluster and all of them in one project. They are applied, left alone,
and deleted with their Clusters. The control plane is real, the rack is the simulated one. The provider runs with the
flags of its shipped Deployment: 32 machines at once, and at most 20 requests a second to the rack after a burst of 40.
"""

_TIMES: Final = """\
The rack's floor is a bare script that makes the same calls with the same token bucket and as many at once, and knows
nothing of Kubernetes. Cluster API's own time is that of its in-memory provider on the same control plane, whose
machines take no time at all.
"""

_PHASES: Final = """\
Seconds from the first apply. What is made waits for its token in the bucket: with 20 a second, 1000 creates alone take
48 s.
"""

_PROFILES: Final = """\
`timing` in [a rack's configuration](../how-to/rack.yaml). Creating an instance, and creating or deleting a disk, is the
time of the request itself.
"""


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    show_tables(_tables(results), console)


def page(results: Results, machine: Machine) -> str:
    """Give the reference page as Markdown."""
    lines = [
        f"<!-- Written by `{COMMAND}`. Do not edit. -->",
        "",
        "# Performance",
        "",
        *_INTRODUCTION.splitlines(),
        "",
        f"Measured on {machine.date} with {machine.processors} and {machine.memory} of memory, on which everything ran",
        "at once: the control plane, Cluster API, the provider, the rack and the bench. "
        + ", ".join(f"{name} {version}" for name, version in machine.versions.items())
        + ".",
        "Counts of what is done are the same on any machine; lists are read more often where making takes longer,",
        "and times are worth something beside each other only. On two processors the control plane takes most of them.",
        *_reservations(results, machine),
    ]
    lines += as_markdown(_tables(results))
    return "\n".join(lines) + "\n"


def _reservations(results: Results, machine: Machine) -> list[str]:
    """What is missing from a run that was not a whole one."""
    found = []
    if all(fleet.machines < LARGE for fleet in results.fleets):
        found += [
            "",
            f"**What is asked of {LARGE} machines only, or by comparison with them, was not measured in this run.**",
        ]
    if not machine.is_leader_elected:
        found += ["", "**The provider ran without a Lease: the machine was too busy to have it renewed in time.**"]
    return found


def _tables(results: Results) -> tuple[Table, ...]:
    return (
        limits_table("fleet", judge(results)),
        _times(results),
        _phases(results.fleets),
        _calls("Rack calls a machine, created", [(each, each.create) for each in results.fleets], results.fleets),
        _calls("Rack calls a machine, deleted", [(each, each.delete) for each in results.fleets], results.fleets),
        _rest(results.fleets),
        _costs(results),
        _processes(results.fleets),
        _profiles(),
    )


def _times(results: Results) -> Table:
    rows = []
    for fleet in results.fleets:
        floor, in_memory = results.floor_of(fleet), results.in_memory_of(fleet)
        rows.append(
            (
                _subject(fleet),
                seconds(fleet.times.provisioned),
                seconds(floor.create_seconds if floor else None),
                seconds(in_memory.times.provisioned if in_memory else None),
                seconds(fleet.times.deleted),
                seconds(floor.delete_seconds if floor else None),
                seconds(in_memory.times.deleted if in_memory else None),
            )
        )
    return Table(
        "Wall time",
        (
            "fleet",
            "apply to provisioned",
            "rack's floor",
            "Cluster API",
            "delete to gone",
            "rack's floor",
            "Cluster API",
        ),
        tuple(rows),
        _TIMES,
    )


def _phases(fleets: Sequence[FleetResult]) -> Table:
    rows = tuple(
        (
            _subject(each),
            seconds(each.times.applied),
            seconds(each.times.identified),
            seconds(each.times.infrastructure),
            seconds(each.times.provisioned),
        )
        for each in fleets
    )
    return Table(
        "Where the time goes",
        ("fleet", "all applied", "all made", "all infrastructure provisioned", "all Machines provisioned"),
        rows,
        _PHASES,
    )


def _calls(title: str, calls: Sequence[tuple[FleetResult, RackCalls]], fleets: Sequence[FleetResult]) -> Table:
    operations = sorted({operation for _, each in calls for operation in each.by_operation})
    rows = tuple(
        (
            f"`{operation}`",
            *(_rate(each.by_operation.get(operation, 0), fleet.machines) for fleet, each in calls),
        )
        for operation in operations
    )
    totals = (("all reads", *(_rate(each.reads, fleet.machines) for fleet, each in calls)),)
    return Table(
        title,
        ("operation", *map(_subject, fleets)),
        rows + totals,
        "Calls by machine; in parentheses all of them. Every page of a list is a call.",
    )


def _rest(fleets: Sequence[FleetResult]) -> Table:
    rows = tuple(
        (
            _subject(each),
            f"{each.rest_seconds:.0f} s",
            number(each.readings_a_minute),
            number(sum(each.rest.by_operation.values()) * 60 / each.rest_seconds),
            str(each.writes_at_rest),
            str(each.rest_writes.get("leases", 0)),
            number(each.cpu["provider"].rest * 1000 / each.rest_seconds),
        )
        for each in fleets
    )
    return Table(
        "At rest",
        (
            "fleet",
            "observed for",
            "lists a minute",
            "rack calls a minute",
            "Kubernetes writes",
            "Lease renewals",
            "CPU, ms a second",
        ),
        rows,
        "A list of several pages is one list and several calls. The writes are those of the apiserver's audit log.",
    )


def _costs(results: Results) -> Table:
    rows = []
    for fleet in results.fleets:
        in_memory = results.in_memory_of(fleet)
        requests = sum(fleet.requests.values())
        writes = sum(n for request, n in fleet.requests.items() if request.split()[0] in {"create", "patch", "update"})
        rows.append(
            (
                _subject(fleet),
                megabytes(fleet.resident_bytes),
                megabytes(fleet.peak_bytes),
                f"{fleet.cpu_per_machine * 1000:.0f} ms",
                number(requests / fleet.machines),
                number(writes / fleet.machines),
                megabytes(in_memory.peak_bytes) if in_memory else "",
                f"{(in_memory.cpu.create + in_memory.cpu.delete) * 1000 / fleet.machines:.0f} ms" if in_memory else "",
            )
        )
    return Table(
        "What the provider costs",
        (
            "fleet",
            "memory at rest",
            "peak",
            "CPU a machine",
            "Kubernetes requests a machine, created",
            "writes among them",
            "in-memory provider: peak",
            "CPU a machine",
        ),
        tuple(rows),
        "CPU time to make and delete one machine. The in-memory provider runs through all sizes in one process.",
    )


def _processes(fleets: Sequence[FleetResult]) -> Table:
    rows = tuple(
        (_subject(each), *(seconds(each.cpu[name].create if name in each.cpu else None) for name in _DOMINANT))
        for each in fleets
    )
    return Table(
        "CPU time until provisioned",
        ("fleet", *_DOMINANT),
        rows,
        "What shares the processors while a fleet is made.",
    )


def _profiles() -> Table:
    names = ("instance_create", "instance_start", "instance_stop", "disk_create", "disk_delete", "address_change")
    rows = tuple((f"`{name}`", *(f"{getattr(PRESETS[profile], name):g} s" for profile in PROFILES)) for name in names)
    return Table(
        "The rack's two timings",
        ("what takes how long", *PROFILES),
        rows,
        _PROFILES,
    )


def _subject(fleet: FleetResult) -> str:
    return f"{fleet.machines}, {fleet.profile}"


def _rate(count: int, machines: int) -> str:
    return f"{number(count / machines)} ({count})" if count else "0"
