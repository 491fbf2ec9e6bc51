"""The bench of the cloud controller manager: each limit bites, the page says what was measured, and what is shipped."""

from __future__ import annotations

import dataclasses
import io
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.bench.ccm import shipped
from tests.bench.ccm.limits import judge
from tests.bench.ccm.report import page, show
from tests.bench.ccm.results import Failovers, Rest, Results
from tests.bench.machine import Machine
from tests.bench.tables import MEGABYTE

MACHINE = Machine(date="2026-01-02", processors="2 processors (M)", memory="8 GiB", versions={"Python": "3.11.7"})

GOOD = Results(
    profile="realistic",
    nodes=100,
    services=50,
    initialised_seconds=60.0,
    served_seconds=30.0,
    collisions=0,
    rest=Rest(
        seconds=300.0,
        writes={},
        lease_renewals=150,
        rack_calls={"instance_list": 10, "floating_ip_list": 10},
        cpu_seconds=0.6,
    ),
    resident_bytes=90 * MEGABYTE,
    peak_bytes=95 * MEGABYTE,
    failovers=Failovers(floor=(1.0, 1.2, 0.9), stopped=(4.0, 38.0), silent=(33.0, 38.0)),
)
"""Results at every limit."""


def missed(results: Results) -> list[str]:
    """What a run missed."""
    return [verdict.what for verdict in judge(results) if not verdict.is_met]


def test_results_at_every_limit_are_good() -> None:
    """What is exactly at its limits has reached them, and everything has been judged."""
    assert missed(GOOD) == []
    assert len(judge(GOOD)) == 6


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"collisions": 1}, "one port twice on a node"),
        ({"rest": dataclasses.replace(GOOD.rest, writes={"events": 1})}, "Kubernetes writes at rest"),
        ({"rest": dataclasses.replace(GOOD.rest, rack_calls={"instance_list": 21})}, "rack calls a minute at rest"),
        ({"resident_bytes": 90 * MEGABYTE + 1}, "memory at rest, MB"),
        (
            {"failovers": dataclasses.replace(GOOD.failovers, stopped=(4.0, 38.1))},
            "failover from stopped, slowest, beyond 30 s / detach and attach",
        ),
        (
            {"failovers": dataclasses.replace(GOOD.failovers, silent=(38.1, 33.0))},
            "failover from silent, slowest, beyond 30 s / detach and attach",
        ),
    ],
)
def test_one_limit_is_missed(change: dict[str, Any], what: str) -> None:
    """A little more than the limit is too much, and only that is said."""
    assert missed(dataclasses.replace(GOOD, **change)) == [what]


def test_memory_is_judged_at_its_size_only() -> None:
    """A smaller cluster says nothing about the limit of a large one."""
    assert "memory at rest, MB" not in [each.what for each in judge(dataclasses.replace(GOOD, nodes=99))]


def test_page_and_terminal_say_what_was_measured() -> None:
    """Both have the verdicts, the failovers and the calls by operation."""
    said = io.StringIO()
    show(GOOD, Console(file=said, width=200))
    text = page(GOOD, MACHINE)

    assert "| stopped | 4.0 s | 21.0 s | 38.0 s | 2 |" in text
    assert "| rack call `instance_list` | 10 |" in text
    assert "| 100 Nodes, 50 Services | memory at rest, MB | 90 | at most 90 | yes |" in text
    assert text.startswith("<!-- Written by ")
    for word in ("detach and attach", "rack calls a minute", "reached"):
        assert word in said.getvalue()


def test_the_shipped_program_finds_its_packages_and_no_others(tmp_path: Path) -> None:
    """What the lock of the image has can be imported; the developers' tools cannot."""
    script = "import capox.ccm.main, importlib.util as u; print(u.find_spec('rich'), u.find_spec('pytest'))"
    command = [*shipped.program()[:-2], "-c", script]
    done = subprocess.run(command, env=shipped.variables(tmp_path), capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("None None\n", "")
