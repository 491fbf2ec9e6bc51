"""The results of a run as tables, on a terminal and as a page. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table as RichTable

from capox.rack.timing import PRESETS
from tests.bench.fleet.limits import LARGE, Verdict, judge
from tests.bench.fleet.racks import PROFILES
from tests.bench.fleet.results import MEGABYTE, FleetResult, RackCalls, Results

__all__ = ["Machine", "page", "show"]

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run took place.

    Attributes:
        date: The day, as ISO 8601 has it.
        processors: What the processors are, and how many.
        memory: How much there is.
        versions: What ran, by name.
        is_leader_elected: Whether the provider held a Lease, as its Deployment has it.
    """

    date: str
    processors: str
    memory: str
    versions: dict[str, str]
    is_leader_elected: bool = True


@dataclasses.dataclass(frozen=True)
class _Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    for table in _tables(results):
        shown = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


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
        "Counts are the same on any machine. Times are worth something beside each other only; on two processors the",
        "control plane takes most of them.",
        *_reservations(results, machine),
    ]
    for table in _tables(results):
        lines += ["", f"## {table.title}", ""]
        lines += [*table.text.strip().splitlines(), ""] if table.text else []
        lines += _markdown(table)
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


def _markdown(table: _Table) -> list[str]:
    rows = [table.columns, ("---", *["---:"] * (len(table.columns) - 1)), *table.rows]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _tables(results: Results) -> tuple[_Table, ...]:
    return (
        _limits(judge(results)),
        _times(results),
        _phases(results.fleets),
        _calls("Rack calls a machine, created", [(each, each.create) for each in results.fleets], results.fleets),
        _calls("Rack calls a machine, deleted", [(each, each.delete) for each in results.fleets], results.fleets),
        _rest(results.fleets),
        _costs(results),
        _processes(results.fleets),
        _profiles(),
    )


def _limits(verdicts: Iterable[Verdict]) -> _Table:
    rows = tuple(
        (
            each.subject,
            each.what,
            _number(each.measured),
            ("exactly " if each.is_exact else "at most ") + _number(each.limit),
            "yes" if each.is_met else "NO",
        )
        for each in verdicts
    )
    return _Table(
        "What has to be reached",
        ("fleet", "what", "measured", "limit", "reached"),
        rows,
        "`make bench` ends with an error when one of these is missed.",
    )


def _times(results: Results) -> _Table:
    rows = []
    for fleet in results.fleets:
        floor, in_memory = results.floor_of(fleet), results.in_memory_of(fleet)
        rows.append(
            (
                _subject(fleet),
                _seconds(fleet.times.provisioned),
                _seconds(floor.create_seconds if floor else None),
                _seconds(in_memory.times.provisioned if in_memory else None),
                _seconds(fleet.times.deleted),
                _seconds(floor.delete_seconds if floor else None),
                _seconds(in_memory.times.deleted if in_memory else None),
            )
        )
    return _Table(
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


def _phases(fleets: Sequence[FleetResult]) -> _Table:
    rows = tuple(
        (
            _subject(each),
            _seconds(each.times.applied),
            _seconds(each.times.identified),
            _seconds(each.times.infrastructure),
            _seconds(each.times.provisioned),
        )
        for each in fleets
    )
    return _Table(
        "Where the time goes",
        ("fleet", "all applied", "all made", "all infrastructure provisioned", "all Machines provisioned"),
        rows,
        _PHASES,
    )


def _calls(title: str, calls: Sequence[tuple[FleetResult, RackCalls]], fleets: Sequence[FleetResult]) -> _Table:
    operations = sorted({operation for _, each in calls for operation in each.by_operation})
    rows = tuple(
        (
            f"`{operation}`",
            *(_rate(each.by_operation.get(operation, 0), fleet.machines) for fleet, each in calls),
        )
        for operation in operations
    )
    totals = (("all reads", *(_rate(each.reads, fleet.machines) for fleet, each in calls)),)
    return _Table(
        title,
        ("operation", *map(_subject, fleets)),
        rows + totals,
        "Calls by machine; in parentheses all of them. Every page of a list is a call.",
    )


def _rest(fleets: Sequence[FleetResult]) -> _Table:
    rows = tuple(
        (
            _subject(each),
            f"{each.rest_seconds:.0f} s",
            _number(each.readings_a_minute),
            _number(sum(each.rest.by_operation.values()) * 60 / each.rest_seconds),
            str(each.writes_at_rest),
            str(each.rest_writes.get("leases", 0)),
            _number(each.cpu["provider"].rest * 1000 / each.rest_seconds),
        )
        for each in fleets
    )
    return _Table(
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


def _costs(results: Results) -> _Table:
    rows = []
    for fleet in results.fleets:
        in_memory = results.in_memory_of(fleet)
        requests = sum(fleet.requests.values())
        writes = sum(n for request, n in fleet.requests.items() if request.split()[0] in {"create", "patch", "update"})
        rows.append(
            (
                _subject(fleet),
                _megabytes(fleet.resident_bytes),
                _megabytes(fleet.peak_bytes),
                f"{fleet.cpu_per_machine * 1000:.0f} ms",
                _number(requests / fleet.machines),
                _number(writes / fleet.machines),
                _megabytes(in_memory.peak_bytes) if in_memory else "",
                f"{(in_memory.cpu.create + in_memory.cpu.delete) * 1000 / fleet.machines:.0f} ms" if in_memory else "",
            )
        )
    return _Table(
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


def _processes(fleets: Sequence[FleetResult]) -> _Table:
    rows = tuple(
        (_subject(each), *(_seconds(each.cpu[name].create if name in each.cpu else None) for name in _DOMINANT))
        for each in fleets
    )
    return _Table(
        "CPU time until provisioned",
        ("fleet", *_DOMINANT),
        rows,
        "What shares the processors while a fleet is made.",
    )


def _profiles() -> _Table:
    names = ("instance_create", "instance_start", "instance_stop", "disk_create", "disk_delete", "address_change")
    rows = tuple((f"`{name}`", *(f"{getattr(PRESETS[profile], name):g} s" for profile in PROFILES)) for name in names)
    return _Table(
        "The rack's two timings",
        ("what takes how long", *PROFILES),
        rows,
        _PROFILES,
    )


def _subject(fleet: FleetResult) -> str:
    return f"{fleet.machines}, {fleet.profile}"


def _rate(count: int, machines: int) -> str:
    return f"{_number(count / machines)} ({count})" if count else "0"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _megabytes(value: int) -> str:
    return f"{value / MEGABYTE:.0f} MB"
