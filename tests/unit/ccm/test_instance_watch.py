"""The watch of the rack's instances goes on, whatever a look comes to."""

from __future__ import annotations

import asyncio
from typing import cast

from structlog.testing import capture_logs

from capox.ccm.instance_watch import InstanceWatch
from capox.ccm.rack import Rack
from capox.oxide.clock import LoopClock
from capox.oxide.shared_list import REST_SECONDS
from tests.sim.loop import simulated


@simulated
async def test_a_mistake_in_a_look_does_not_end_the_watch() -> None:
    """It is told, and the next look comes as always."""
    looks = 0

    def is_needed() -> bool:
        """Fail at the first look."""
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("a mistake")
        return False

    watch = InstanceWatch(cast("Rack", None), LoopClock(), [], is_needed=is_needed, wake=lambda: None)
    with capture_logs() as logs:
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(2.5 * REST_SECONDS)
        task.cancel()
    assert looks == 3
    assert [each["event"] for each in logs] == ["Looking at the instances failed"]
