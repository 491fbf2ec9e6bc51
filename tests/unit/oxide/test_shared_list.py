"""Who may use which reading of a list, and who makes the next one. On virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
import structlog

from capox.oxide import LoopClock, Moment, SharedList, errors
from tests.sim.loop import seconds, simulated


@dataclass(frozen=True)
class Reading:
    """What the world looked like when it was read."""

    began: Moment
    world: int
    objects: int = 1

    def __len__(self) -> int:
        return self.objects


@dataclass
class World:
    """Something that changes, and the list of it that takes a while to read.

    Attributes:
        value: What it is now.
        objects: How many objects are in it.
        takes_seconds: How long a reading takes.
        fails: Errors of the next readings.
        begun: When each reading began.
    """

    value: int = 0
    objects: int = 1
    takes_seconds: float = 0.5
    fails: list[errors.OxideError] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)

    async def read(self, began: Moment) -> Reading:
        """Read it: what is seen is as old as the beginning."""
        self.begun.append(seconds())
        seen = self.value
        await asyncio.sleep(self.takes_seconds)
        if self.fails:
            raise self.fails.pop(0)
        return Reading(began, seen, self.objects)


def _shared(world: World) -> SharedList[Reading]:
    return SharedList(world.read, clock=LoopClock(), transition_seconds=1.5, rest_seconds=30.0)


def _now() -> Moment:
    return Moment.now(LoopClock())


BUSY = errors.ServiceUnavailable("no", operation="instance_list", status=503)


@simulated
async def test_moments_are_never_equal() -> None:
    """Two moments of one tick of the clock still have an order."""
    first, second = _now(), _now()

    assert first.seconds == second.seconds
    assert first < second
    assert first != second


@simulated
async def test_a_thousand_who_wait_share_one_reading() -> None:
    """The number of readings does not depend on the number of those who ask."""
    world = World()
    shared = _shared(world)

    readings = await asyncio.gather(*(shared.fresh_since(_now()) for _ in range(1000)))

    assert len({id(reading) for reading in readings}) == 1
    assert world.begun == [0.0]


@simulated
async def test_a_reading_under_way_is_not_used_for_an_act_that_came_later() -> None:
    """It began before the act, and does not show it although it ends after it."""
    world = World(takes_seconds=1.0)
    shared = _shared(world)
    early = asyncio.create_task(shared.fresh_since(_now()))
    await asyncio.sleep(0.5)

    world.value = 7  # the act
    late = await shared.fresh_since(_now())

    assert (await early).world == 0
    assert late.world == 7
    assert world.begun == [0.0, 1.5]


@simulated
async def test_an_act_in_the_same_tick_as_the_beginning_is_not_covered() -> None:
    """However coarse the clock, a reading that began first does not judge what followed."""
    world = World(takes_seconds=0.0)
    shared = _shared(world)
    await shared.fresh_since(_now())

    world.value = 7
    moment = _now()

    assert seconds() == 0.0
    assert (await shared.fresh_since(moment)).world == 7


@simulated
async def test_a_reading_that_waits_for_its_turn_is_joined() -> None:
    """Who comes while the next reading has not begun yet needs no further one."""
    world = World(takes_seconds=0.1)
    shared = _shared(world)
    await shared.fresh_since(_now())
    first = asyncio.create_task(shared.fresh_since(_now()))
    await asyncio.sleep(0.5)

    world.value = 7
    second = await shared.fresh_since(_now())

    assert await first is second
    assert second.world == 7
    assert world.begun == [0.0, 1.5]


@simulated
async def test_in_transition_there_is_one_reading_each_interval() -> None:
    """A hundred objects that poll as fast as they can make forty readings a minute."""
    world = World(takes_seconds=0.2)
    shared = _shared(world)

    async def poll() -> None:
        """Wait for the next reading, again and again."""
        while seconds() < 60:
            await shared.fresh_since(_now())

    await asyncio.gather(*(poll() for _ in range(100)))

    assert world.begun == pytest.approx([1.5 * number for number in range(len(world.begun))])
    assert len(world.begun) == 41


@simulated
@pytest.mark.parametrize(("objects", "interval_seconds"), [(150, 1.5), (1000, 10.0), (2000, 20.0), (100_000, 30.0)])
async def test_a_list_of_many_is_read_less_often(objects: int, interval_seconds: float) -> None:
    """So the reads while a fleet is made do not grow with it; never less often than at rest, though."""
    world = World(objects=objects)
    shared = _shared(world)

    for _ in range(3):
        await shared.fresh_since(_now())

    assert world.begun == pytest.approx([0.0, interval_seconds, 2 * interval_seconds])


@simulated
async def test_no_reading_is_too_old_before_the_next_may_begin() -> None:
    """Whoever asks for a younger one than there can be need not wait for it, unless an act of his own is to be seen."""
    world = World(objects=1000)
    shared = _shared(world)
    await shared.fresh_since(_now())
    await asyncio.sleep(3)
    act, world.value = _now(), 1

    assert (await shared.recent(1.5)).world == 0
    assert (await shared.recent(1.5, after=act)).world == 1
    assert world.begun == [0.0, 10.0]


@simulated
async def test_at_rest_one_reading_each_interval_serves_all() -> None:
    """A hundred objects that look every second make one reading in thirty seconds."""
    world = World(takes_seconds=0.2)
    shared = _shared(world)

    async def look() -> None:
        """Look every second."""
        while seconds() < 299:
            await shared.recent()
            assert shared.age_seconds is not None
            assert shared.age_seconds <= 30
            await asyncio.sleep(1)

    await asyncio.gather(*(look() for _ in range(100)))

    assert 9 <= len(world.begun) <= 10


@simulated
async def test_a_recent_reading_from_before_an_act_does_not_do() -> None:
    """Young enough is not enough for who has acted since; a reading from after the act serves without another one."""
    world = World()
    shared = _shared(world)
    await shared.recent()
    act, world.value = _now(), 1

    assert (await shared.recent()).world == 0
    assert (await shared.recent(after=act)).world == 1
    assert (await shared.recent(after=act)).world == 1
    assert world.begun == [0.0, 1.5]


@simulated
async def test_a_stuck_reading_is_not_called_recent() -> None:
    """A reading that began too long ago is too old when it ends, too."""
    world = World(takes_seconds=40.0)
    shared = _shared(world)
    first = asyncio.create_task(shared.recent())
    await asyncio.sleep(35)

    world.value, world.takes_seconds = 7, 1.0

    assert (await shared.recent()).world == 7
    assert (await first).world == 0


@simulated
async def test_a_failure_reaches_all_who_waited_and_leaves_the_latest_as_it_was() -> None:
    """It is nobody's reading. The next one waits for the interval, so that a broken rack is not hammered."""
    world = World(value=1)
    shared = _shared(world)
    before = await shared.recent()
    world.fails.append(BUSY)
    moment = _now()

    results = await asyncio.gather(*(shared.fresh_since(moment) for _ in range(5)), return_exceptions=True)

    assert results == [BUSY] * 5
    assert shared.latest is before
    world.value = 2
    assert (await shared.fresh_since(moment)).world == 2
    assert world.begun == [0.0, 1.5, 3.0]


@simulated
async def test_a_failure_of_an_older_reading_is_not_the_later_ones() -> None:
    """Who could not use the reading that fails gets the next one instead of its error."""
    world = World(takes_seconds=1.0, fails=[BUSY])
    shared = _shared(world)
    early = asyncio.create_task(shared.fresh_since(_now()))
    await asyncio.sleep(0.5)

    assert (await shared.fresh_since(_now())).world == 0
    with pytest.raises(errors.ServiceUnavailable):
        await early


@simulated
async def test_who_gives_up_does_not_take_the_reading_from_the_others() -> None:
    """One is cancelled, another's own deadline passes; the third still gets what they waited for."""
    world = World(takes_seconds=1.0)
    shared = _shared(world)
    first = asyncio.create_task(shared.fresh_since(_now()))
    third = asyncio.create_task(shared.fresh_since(_now()))
    await asyncio.sleep(0.1)

    first.cancel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.fresh_since(_now()), 0.1)

    assert (await third).world == 0
    assert first.cancelled()
    assert world.begun == [0.0]


@simulated
async def test_a_reading_that_all_gave_up_on_ends_by_itself() -> None:
    """It serves whoever comes next, and a failure that nobody waits for is not reported as forgotten."""
    world = World(takes_seconds=1.0)
    shared = _shared(world)
    for _ in range(2):
        waiting = asyncio.create_task(shared.fresh_since(_now()))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(5)
        world.fails.append(BUSY)

    assert shared.latest is not None
    assert shared.age_seconds == pytest.approx(10.2)


@simulated
async def test_closing_gives_up_what_is_being_read() -> None:
    """Nothing is left running, whether it had begun, was waiting for its turn, or was never started."""
    for wait_seconds in (0.0, 0.2, 1.0):
        world = World()
        shared = _shared(world)
        await shared.fresh_since(_now())
        waiting = asyncio.create_task(shared.fresh_since(_now()))
        await asyncio.sleep(wait_seconds)

        await shared.aclose()
        await asyncio.wait([waiting])
        await shared.aclose()

        assert waiting.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@simulated
async def test_a_reading_bears_nobodys_name() -> None:
    """What the first one who asked has bound to its log lines is not bound to those of the reading that serves all."""
    bound: list[dict[str, object]] = []

    async def read(began: Moment) -> Reading:
        """Note what is bound."""
        bound.append(dict(structlog.contextvars.get_contextvars()))
        return Reading(began, 0)

    shared: SharedList[Reading] = SharedList(read, clock=LoopClock())
    with structlog.contextvars.bound_contextvars(reconcileID="of the first"):
        await shared.recent()

    assert bound == [{}]
