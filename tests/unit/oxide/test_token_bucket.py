"""How fast the clients of one rack may ask it."""

from __future__ import annotations

import asyncio

import pytest

from capox.oxide import TokenBucket, TokenBuckets
from tests.sim.loop import seconds, simulated


async def _take(bucket: TokenBucket, name: str, served: list[tuple[str, float]]) -> None:
    await bucket.acquire()
    served.append((name, round(seconds(), 6)))


@simulated
async def test_a_burst_is_free_and_the_rest_comes_at_the_rate_in_order() -> None:
    """Whoever comes first is served first; after the burst, one each tenth of a second."""
    bucket = TokenBucket(rate_per_second=10, burst=2)
    served: list[tuple[str, float]] = []

    await asyncio.gather(*(_take(bucket, name, served) for name in "abcde"))

    assert served == [("a", 0.0), ("b", 0.0), ("c", 0.1), ("d", 0.2), ("e", 0.3)]


@simulated
async def test_a_pause_fills_the_bucket_no_further_than_its_burst() -> None:
    """A night of silence does not allow a storm in the morning."""
    bucket = TokenBucket(rate_per_second=10, burst=3)
    await asyncio.gather(*(bucket.acquire() for _ in range(3)))
    await asyncio.sleep(3600)
    served: list[tuple[str, float]] = []

    await asyncio.gather(*(_take(bucket, name, served) for name in "abcd"))

    assert served == [("a", 3600.0), ("b", 3600.0), ("c", 3600.0), ("d", 3600.1)]


@simulated
async def test_who_is_cancelled_takes_nothing_and_holds_up_nobody() -> None:
    """Of three who wait, the first and the second give up; the third is served as if they had never come."""
    bucket = TokenBucket(rate_per_second=1, burst=1)
    await bucket.acquire()
    served: list[tuple[str, float]] = []
    waiting = [asyncio.create_task(_take(bucket, name, served)) for name in "abc"]
    await asyncio.sleep(0.5)

    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.wait(waiting)

    assert served == [("c", 1.0)]


@simulated
async def test_a_crowd_is_served_in_the_order_of_its_coming() -> None:
    """Fifty who come one after the other, faster than tokens do, are served one after the other."""
    bucket = TokenBucket(rate_per_second=1, burst=1)
    served: list[tuple[str, float]] = []

    async def come(number: int) -> None:
        """Come at a time of one's own."""
        await asyncio.sleep(0.3 * number)
        await _take(bucket, str(number), served)

    await asyncio.gather(*(come(number) for number in range(50)))

    assert [name for name, _ in served] == [str(number) for number in range(50)]
    assert [at for _, at in served] == pytest.approx(range(50))


@simulated
async def test_nobody_overtakes_while_others_wait() -> None:
    """A newcomer at the very moment a token comes back does not get it."""
    bucket = TokenBucket(rate_per_second=1, burst=1)
    await bucket.acquire()
    served: list[tuple[str, float]] = []
    first = asyncio.create_task(_take(bucket, "first", served))
    await asyncio.sleep(1.0)

    await asyncio.gather(_take(bucket, "newcomer", served), first)

    assert served == [("first", 1.0), ("newcomer", 2.0)]


class _EarlyClock:
    """A clock whose sleeps end a little early, as those of real ones may."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Give its time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Pass nine tenths of what was asked for, or all of very little."""
        self.now += seconds * 0.9 if seconds > 1e-3 else seconds


@simulated
async def test_an_early_clock_does_not_give_tokens_away() -> None:
    """Ten tokens after the burst take their ten seconds, whoever wakes early."""
    clock = _EarlyClock()
    bucket = TokenBucket(rate_per_second=1, burst=1, clock=clock)

    for _ in range(11):
        await bucket.acquire()

    assert clock.now == pytest.approx(10.0)


def test_a_rack_has_one_bucket_whatever_its_address_looks_like() -> None:
    """Clients of one rack share a bucket even when their users spell it differently; another rack has its own."""
    buckets = TokenBuckets()

    assert buckets.of("oxide.example.com") is buckets.of("https://OXIDE.example.com:443/")
    assert buckets.of("oxide.example.com") is not buckets.of("other.example.com")


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_of_nothing_is_refused(rate: float) -> None:
    """A bucket that never fills would stop everything silently."""
    with pytest.raises(ValueError, match="rate_per_second"):
        TokenBucket(rate_per_second=rate)


def test_a_burst_of_nothing_is_refused() -> None:
    """A bucket that holds no token gives none."""
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(burst=0)
