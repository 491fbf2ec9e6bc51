"""What runs beside the work of a process: how its end is told, and that it ends with the work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from capox.kube.manager import background


async def test_what_ends_beside_the_work_is_told_at_once() -> None:
    """Nobody would hear of it before the process ends; then it is raised."""

    async def fail() -> None:
        """End early."""
        raise ValueError("a mistake")

    async def work(logs: list[Any]) -> None:
        """Go on beside it."""
        async with background(fail()):
            await asyncio.sleep(0.01)
            assert [each["event"] for each in logs] == ["What ran beside the work has ended"]

    with capture_logs() as logs, pytest.raises(ValueError, match="a mistake"):
        await work(logs)
    assert logs[0]["work"].endswith("fail")


async def test_what_runs_beside_the_work_ends_with_it() -> None:
    """And that is nothing to be told."""
    with capture_logs() as logs:
        async with background(asyncio.sleep(3600)):
            await asyncio.sleep(0)
    assert logs == []
