"""The simulated rack on the running event loop's time, and Oxide clients of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import SecretStr

from capox.oxide import OxideClient, models
from capox.rack.clock import PassingClock
from capox.rack.faults import FaultRule
from tests.rack import START, RackUnderTest

if TYPE_CHECKING:
    from uuid import UUID


class LiveRack(RackUnderTest):
    """The rack of `RackUnderTest`, on which time passes with the event loop: virtual where the loop's is."""

    def __init__(self) -> None:
        super().__init__()
        self.state.clock = PassingClock(asyncio.get_running_loop().time, START)

    def client(self, user: str = "admin", **options: Any) -> OxideClient:
        """Make a client with a user's credentials."""
        options.setdefault("token", SecretStr(f"oxide-token-{user}"))
        return OxideClient(host="http://rack", transport=httpx.ASGITransport(self.app), **options)

    @staticmethod
    async def until(oxide: OxideClient, instance: UUID, state: models.InstanceState) -> models.Instance:
        """Wait until an instance is in a state; a minute at most."""
        seen = await oxide.instance_view(instance)
        for _ in range(600):
            if seen.run_state is state:
                return seen
            await asyncio.sleep(0.1)
            seen = await oxide.instance_view(instance)
        raise AssertionError(f"the instance is {seen.run_state}, not {state}")

    def play(self, kind: str, operation: str, **options: Any) -> None:
        """Put a fault to work; once unless told otherwise."""
        rule = {"kind": kind, "operation": operation, "times": 1, **options}
        self.app.faults.add(FaultRule.model_validate(rule))

    def asked(self, operation: str) -> int:
        """Count the requests of an operation."""
        return sum(1 for call in self.app.log.entries() if call.operation == operation)
