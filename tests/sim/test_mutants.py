"""Every invariant bites: a bug that is planted in the provider is caught, and for what it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sim import service_mutants
from tests.sim.mutants import MUTANTS, SOURCE, Mutant

SEEDS = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    """The simulation of the provider tells the bug by the invariant that it breaks."""
    _expect_caught("tests.sim.mutants", mutant)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", service_mutants.MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_of_services_is_caught(mutant: Mutant) -> None:
    """The simulation of Services tells the bug by the invariant that it breaks."""
    _expect_caught("tests.sim.service_mutants", mutant)


def _expect_caught(module: str, mutant: Mutant) -> None:
    command = [sys.executable, "-m", module, mutant.name, str(SEEDS)]

    run = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=280)

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert mutant.caught_by in run.stdout.partition("\n")[0]
