"""The tables say what was measured."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from tests.bench.fleet.report import page, show
from tests.bench.machine import Machine
from tests.unit.bench.fleets import fleet, results

MACHINE = Machine(
    date="2026-09-01", processors="2 processors (fast)", memory="24 GiB", versions={"Kubernetes": "v1.36.3"}
)


def test_the_page_has_every_table_and_where_it_was_measured() -> None:
    """Each table has a heading, a row a fleet, and as many cells in each row as columns."""
    lines = page(results(fleet(10), fleet(1000)), MACHINE).splitlines()

    assert sum(line.startswith("## ") for line in lines) == 9
    assert "Measured on 2026-09-01 with 2 processors (fast) and 24 GiB of memory" in "\n".join(lines)
    assert "| `instance_create` | 1 (10) | 1 (1000) |" in lines
    assert "| 10, quick | 115.0 s | 40.0 s | 60.0 s | 200.0 s | 150.0 s | 40.0 s |" in lines
    widths: list[set[int]] = [set()]
    for line in lines:
        if line.startswith("|"):
            widths[-1].add(line.count("|"))
        elif widths[-1]:
            widths.append(set())
    assert all(len(width) <= 1 for width in widths)


def test_the_page_tells_what_it_does_not_tell() -> None:
    """A run with small fleets only, or without the Lease that the Deployment has, says so; a whole one does not."""
    small = page(results(fleet(100)), dataclasses.replace(MACHINE, is_leader_elected=False))

    assert "What is asked of 1000 machines only, or by comparison with them, was not measured" in small
    assert "without a Lease" in small
    assert "**" not in page(results(fleet(100), fleet(1000)), MACHINE)


def test_what_was_missed_stands_out() -> None:
    """A limit that is missed is NO in its row."""
    good, bad = fleet(1000), fleet(1000, rest_readings=9)

    assert "NO" not in page(results(good), MACHINE)
    assert "| 1000 machines, quick | lists a minute at rest | 4.5 | at most 4 | NO |" in page(results(bad), MACHINE)


def test_the_terminal_shows_the_same() -> None:
    """Also where neither floor nor in-memory provider was measured."""
    output = io.StringIO()
    run = dataclasses.replace(results(fleet(10)), floors=(), in_memory=())

    show(run, Console(file=output, width=200))

    assert "writes a machine to create" in output.getvalue()
    assert "115.0 s" in output.getvalue()
