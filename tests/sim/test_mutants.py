"""Every invariant bites: a bug that is planted in the provider is caught, and for what it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sim.mutants import MUTANTS, SOURCE, Mutant

SEEDS = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    """The simulation tells the bug by the invariant that it breaks."""
    command = [sys.executable, "-m", "tests.sim.mutants", mutant.name, str(SEEDS)]

    run = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=280)

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert mutant.caught_by in run.stdout.partition("\n")[0]
