"""What all tests of the Oxide client have: their logs in a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from typing import Any


@pytest.fixture(autouse=True)
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Collect what is logged, instead of printing it."""
    with structlog.testing.capture_logs() as logs:
        yield logs
