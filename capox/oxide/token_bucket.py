"""How fast the clients of one rack may ask it, all together.

The rack has no limiter of its own (semantics 1.4), so a fleet that is too eager would only be felt by everybody
else on the rack. One bucket a rack, shared by the clients of all credentials, bounds what this process asks of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from capox.oxide.clock import Clock, LoopClock
from capox.oxide.origin import parse_origin

DEFAULT_RATE_PER_SECOND: Final = 20.0
"""Requests a second in the long run."""

DEFAULT_BURST: Final = 40
"""Requests at once after a pause."""

_ROUNDING_TOKENS: Final = 1e-6


class TokenBucket:
    """Tokens that come back at a steady rate; a request takes one.

    Callers are served in the order in which they came. One that is cancelled while it waits takes nothing and holds
    up nobody.
    """

    def __init__(
        self,
        *,
        rate_per_second: float = DEFAULT_RATE_PER_SECOND,
        burst: int = DEFAULT_BURST,
        clock: Clock | None = None,
    ) -> None:
        """Make a full bucket.

        Args:
            rate_per_second: Tokens that come back each second; more than 0.
            burst: Tokens that it holds at most; at least 1.
            clock: The time it goes by; the event loop's when absent.

        Raises:
            ValueError: One of the two numbers is out of its bounds.
        """
        if not rate_per_second > 0:
            raise ValueError(f"rate_per_second is {rate_per_second}, it must be more than 0")
        if burst < 1:
            raise ValueError(f"burst is {burst}, it must be at least 1")
        self._rate_per_second = rate_per_second
        self._burst = burst
        self._clock = clock or LoopClock()
        self._tokens = float(burst)
        self._counted_at: float | None = None
        # asyncio's lock wakes its waiters in the order of their coming, which is all the fairness that is needed.
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Wait for a token and take it."""
        async with self._turn:
            # A loop, because a clock may wake a sleeper a little early. Not to the last bit, because a clock that has
            # run for long cannot tell moments apart that are so close, and the loop would never end.
            while (missing := 1.0 - self._count()) > _ROUNDING_TOKENS:
                await self._clock.sleep(missing / self._rate_per_second)
            self._tokens -= 1.0

    def _count(self) -> float:
        now = self._clock.monotonic()
        if self._counted_at is not None:
            gained = (now - self._counted_at) * self._rate_per_second
            self._tokens = min(float(self._burst), self._tokens + gained)
        self._counted_at = now
        return self._tokens


class TokenBuckets:
    """One bucket for each rack, made when it is first asked for."""

    def __init__(
        self,
        *,
        rate_per_second: float = DEFAULT_RATE_PER_SECOND,
        burst: int = DEFAULT_BURST,
        clock: Clock | None = None,
    ) -> None:
        """Take what every bucket is made with; see `TokenBucket`."""
        self._rate_per_second = rate_per_second
        self._burst = burst
        self._clock = clock
        self._by_origin: dict[str, TokenBucket] = {}

    def of(self, host: str) -> TokenBucket:
        """Give the bucket of a rack.

        Args:
            host: The rack's address; two spellings of one address share a bucket.

        Raises:
            ValueError: It is no such address; see `parse_origin`.
        """
        origin = parse_origin(host)
        if origin not in self._by_origin:
            self._by_origin[origin] = TokenBucket(
                rate_per_second=self._rate_per_second, burst=self._burst, clock=self._clock
            )
        return self._by_origin[origin]
