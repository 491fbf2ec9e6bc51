"""Services in a simulated cluster: seeded faults, crashes, invariants after each step, and convergence after."""

from __future__ import annotations

import pytest

from tests.sim.loop import simulate
from tests.sim.service_stories import life_of_services
from tests.sim.world import Weather

SEEDS = range(1, 41)


def test_in_fair_weather() -> None:
    """Nothing fails."""
    simulate(lambda: life_of_services(0, weather=Weather(), crashes=0), seed=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_bad_weather(seed: int) -> None:
    """Both APIs fail one call in five, the process is killed again and again; nothing is lost, doubled or left."""
    weather = Weather(kube=0.05 + seed % 4 * 0.05, rack=0.05 + seed % 5 * 0.05)
    simulate(lambda: life_of_services(seed, weather=weather, crashes=seed % 4), seed=seed)
