"""Settings and guards of all tests.

Order and examples are random, and one number repeats them: the header of a run shows it, `make test-unit SEED=<number>`
brings it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.loopback import LoopbackGuard
from tests.plain_logs import PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Iterator

# No deadline: nothing here is judged by the clock. Random also in CI, where hypothesis left alone would choose the same
# examples for ever: a seed that fails is news, and seed and blob make it repeatable. CI keeps no database of examples
# and forgives a slow machine.
settings.register_profile("dev", deadline=None, derandomize=False, print_blob=True)
settings.register_profile(
    "ci", deadline=None, derandomize=False, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# The guards below are tested by a run of pytest inside a test.
pytest_plugins = ["pytester"]

_guard = LoopbackGuard()
_guard.install()


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Have every test begin with logs as text, whatever the test before it configured."""
    structlog.configure(processors=PROCESSORS)


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    """Give every test the environment variables that the run began with."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def loopback_guard() -> Iterator[LoopbackGuard]:
    """Fail a test that tried to reach another machine, even when nobody noticed the refusal."""
    yield _guard
    refused = list(_guard.refused)
    _guard.refused.clear()
    if refused:
        pytest.fail("\n".join(refused), pytrace=False)
