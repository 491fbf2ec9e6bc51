"""A run that goes on: what was measured is not measured again, and comes back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.fleet.parts import Parts
from tests.bench.fleet.results import FleetResult, FloorResult
from tests.unit.bench.fleets import fleet


def test_a_part_is_measured_once(tmp_path: Path) -> None:
    """The second run of the same directory gets what the first one has kept, all of it."""
    measured = Parts(tmp_path / "parts").ensure("fleet", FleetResult, lambda: fleet(100))

    def measure() -> FleetResult:
        """Nobody asks for this."""
        raise AssertionError("measured again")

    assert Parts(tmp_path / "parts").ensure("fleet", FleetResult, measure) == measured == fleet(100)


def test_a_part_that_was_interrupted_is_measured_again(tmp_path: Path) -> None:
    """Nothing is kept of it."""
    parts = Parts(tmp_path)

    def fail() -> FleetResult:
        """End in the middle."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.ensure("fleet", FleetResult, fail)
    assert parts.ensure("fleet", FleetResult, lambda: fleet(10)).machines == 10


def test_a_part_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Rather than be taken for it."""
    Parts(tmp_path).ensure("one", FleetResult, lambda: fleet(10))
    with pytest.raises(ValueError, match="FloorResult"):
        Parts(tmp_path).ensure("one", FloorResult, lambda: pytest.fail("measured"))
