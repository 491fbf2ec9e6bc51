"""The results of a run as tables, on a terminal and as a page. Pure."""

from __future__ import annotations

import statistics
from typing import Final

from rich.console import Console

from tests.bench.ccm.limits import judge
from tests.bench.ccm.results import Results
from tests.bench.machine import Machine
from tests.bench.tables import Table, as_markdown, limits_table, megabytes, number, seconds, show_tables

__all__ = ["page", "show"]

COMMAND: Final = "make bench CCM_REPORT=docs/reference/ccm-performance.md"

_INTRODUCTION: Final = """\
What the cloud controller manager asks of a rack, of an apiserver and of the node that it runs on, measured by
`make bench` with a cluster on the simulated rack: instances that run without a guest, Nodes that come with the taint of
a cloud provider, kubelets that renew their Leases, and Services on five ports. The apiserver is real. The process has
the packages, the variables and the flags of the shipped image and DaemonSet, and holds the Lease.
"""

_FAILOVER: Final = """\
How long an address took to get to another instance. *Stopped*: the instance was stopped while its Node stayed Ready, so
that only the shared list of instances tells of it, which is read every 30 s at rest; counted from when the rack called
it stopped. *Silent*: the Node was no longer Ready while its instance went on running; that has to last for 30 s before
its addresses go. *Detach and attach*: a bare script on the same rack that looks for the end of each every 20 ms.
"""


_REST: Final = """\
The writes are those of the apiserver's audit log. A list counts as one call, however many pages it has; the last one is
always empty, as it is with Oxide.
"""


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    show_tables(_tables(results), console)


def page(results: Results, machine: Machine) -> str:
    """Give the reference page as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    lines = [
        f"<!-- Written by `{COMMAND}`. Do not edit. -->",
        "",
        "# Performance of the cloud controller manager",
        "",
        *_INTRODUCTION.splitlines(),
        "",
        f"Measured on {machine.date} with {machine.processors} and {machine.memory} of memory, on which everything ran",
        f"at once. {versions}. Counts are the same on any machine; times are worth something beside each other only.",
        *as_markdown(_tables(results)),
    ]
    return "\n".join(lines) + "\n"


def _tables(results: Results) -> tuple[Table, ...]:
    return (limits_table("cluster", judge(results)), _failovers(results), _rest(results), _costs(results))


def _failovers(results: Results) -> Table:
    failovers = results.failovers
    named = (("stopped", failovers.stopped), ("silent", failovers.silent), ("detach and attach", failovers.floor))
    rows = tuple(
        (name, *(seconds(value) for value in (min(trials), statistics.median(trials), max(trials))), str(len(trials)))
        for name, trials in named
    )
    title = f"Failover, rack with {results.profile} timing"
    return Table(title, ("from", "fastest", "median", "slowest", "trials"), rows, _FAILOVER)


def _rest(results: Results) -> Table:
    rest = results.rest
    operations = tuple((f"rack call `{name}`", str(count)) for name, count in sorted(rest.rack_calls.items()))
    rows = (
        ("observed for", f"{rest.seconds:.0f} s"),
        ("Kubernetes writes", str(sum(rest.writes.values()))),
        ("Lease renewals", str(rest.lease_renewals)),
        ("rack calls a minute", number(rest.rack_calls_a_minute)),
        *operations,
        ("CPU, ms a second", number(rest.cpu_seconds * 1000 / rest.seconds)),
    )
    return Table("At rest", ("what", "measured"), rows, _REST)


def _costs(results: Results) -> Table:
    row = (
        f"{results.nodes}, {results.services}",
        megabytes(results.resident_bytes),
        megabytes(results.peak_bytes),
        seconds(results.initialised_seconds),
        seconds(results.served_seconds),
    )
    columns = ("Nodes, Services", "memory at rest", "peak", "all Nodes initialised", "all Services served")
    return Table("Memory and beginning", columns, (row,), "Memory is what is resident, shared libraries included.")
