"""Each limit of the bench bites, and results that keep all of them pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.bench.fleet.limits import judge
from tests.bench.fleet.results import Costs, FleetResult, Results
from tests.bench.tables import MEGABYTE
from tests.unit.bench.fleets import calls, fleet, results

GOOD = fleet(1000)


def missed(run: Results) -> list[str]:
    """What a run missed."""
    return [verdict.what for verdict in judge(run) if not verdict.is_met]


def worse(found: FleetResult, phase: str, **counts: int) -> FleetResult:
    """A fleet with other counts of some operations in a phase."""
    before = getattr(found, phase).by_operation
    changed: dict[str, Any] = {phase: calls(**{**before, **counts})}
    return dataclasses.replace(found, **changed)


def test_results_at_every_limit_are_good() -> None:
    """What is exactly at its limits has reached them, and everything has been judged."""
    run = results(fleet(10), fleet(100), GOOD)

    assert missed(run) == []
    assert len({verdict.what for verdict in judge(run)}) == 9


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (worse(GOOD, "create", instance_create=1001), "writes a machine to create"),
        (worse(GOOD, "create", instance_create=999), "writes a machine to create"),
        (worse(GOOD, "create", instance_start=1), "writes a machine to create"),
        (worse(GOOD, "delete", instance_stop=1001), "writes a machine to delete"),
        (worse(GOOD, "delete", disk_delete=999), "writes a machine to delete"),
        (worse(GOOD, "delete", instance_view=4001), "reads by id a machine to delete"),
        (dataclasses.replace(GOOD, rest_readings=9), "lists a minute at rest"),
        (dataclasses.replace(GOOD, rest_seconds=119.0), "lists a minute at rest"),
        (dataclasses.replace(GOOD, rest_writes={"leases": 1, "events": 1}), "Kubernetes writes at rest"),
        (worse(GOOD, "create", instance_list=200), "reads a machine to provisioned"),
        (worse(GOOD, "create", instance_view=2), "reads a machine to provisioned"),
        (dataclasses.replace(GOOD, peak_bytes=151 * MEGABYTE), "peak memory, MB"),
        (
            dataclasses.replace(GOOD, times=dataclasses.replace(GOOD.times, provisioned=115.1)),
            "apply to provisioned / (floor + Cluster API)",
        ),
        (
            dataclasses.replace(GOOD, cpu={"provider": Costs(create=80.0, rest=0.0, delete=41.0)}),
            "CPU a machine / that at 100",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_limit_bites(found: FleetResult, what: str) -> None:
    """A fleet that misses one limit misses that one, and the others are not disturbed."""
    assert missed(results(fleet(100), found)) == [what]


def test_what_shows_at_a_thousand_only_is_not_asked_of_fewer() -> None:
    """Ten machines share a list with nobody: reads a machine, memory and growth say nothing about them."""
    few = worse(fleet(10), "create", instance_list=30)

    assert missed(results(few)) == []


def test_what_was_not_measured_is_not_judged() -> None:
    """Without a floor or Cluster API's own time there is no ratio of times, and without a smaller fleet no growth."""
    run = dataclasses.replace(results(GOOD), in_memory=())

    whats = {verdict.what for verdict in judge(run)}
    assert "apply to provisioned / (floor + Cluster API)" not in whats
    assert "CPU a machine / that at 100" not in whats


def test_fleets_are_compared_within_their_profile() -> None:
    """A fleet on a slow rack is held against the smaller fleet on the slow rack."""
    cheap = {"provider": Costs(create=1.0, rest=0.0, delete=1.0)}
    slow, quick = fleet(100, "realistic"), fleet(100, cpu=cheap)

    assert missed(results(quick, slow, fleet(1000, "realistic"))) == []
    assert missed(results(quick, slow, GOOD)) == ["CPU a machine / that at 100"]
