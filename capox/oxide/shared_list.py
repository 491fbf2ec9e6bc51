"""One list that everybody shares: who may use which reading of it, and who makes the next one.

A reading is judged by when it *began*. What the rack shows may be as old as that, so a reading that began before an
act says nothing about the act's effect, however late it ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from capox.oxide.clock import Clock

_order = itertools.count(1)

TRANSITION_SECONDS: Final = 1.5
"""Between the beginnings of two readings while somebody waits for a change."""

REST_SECONDS: Final = 30.0
"""The age up to which a reading serves those who wait for nothing."""

OBJECTS_PER_SECOND: Final = 100.0
"""How many objects a second are read at most, so that a list of many is read less often: the reads while a fleet is
made do not grow with it then, nor does what the rack has to do for them. Up to 150 objects it changes nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in this process's history. Two moments are never equal, however coarse the clock.

    Take one right *after* an act has been answered, and ask for a reading since then. After an act without an answer (a
    `TransportError` whose outcome is unknown) no moment is late enough to be sure: the rack may still carry it out.

    Attributes:
        order: Its place among all moments; this alone is compared.
        seconds: The clock's time, for ages.
    """

    order: int
    seconds: float = field(compare=False)

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        """Take the present moment."""
        return cls(order=next(_order), seconds=clock.monotonic())


class Reading(Protocol):
    """What a list is read into.

    Attributes:
        began: When the reading began.
    """

    @property
    def began(self) -> Moment:
        """When the reading began."""
        ...

    def __len__(self) -> int:
        """How many objects were read."""
        ...


ReadingT = TypeVar("ReadingT", bound=Reading)
ReadingT_co = TypeVar("ReadingT_co", bound=Reading, covariant=True)


class SharedList(Generic[ReadingT_co]):
    """The latest reading of one list, and at most one that is under way.

    A reading that fails is nobody's reading: those who waited for it get the error, and the latest one stays what it
    was, with its age.
    """

    def __init__(
        self,
        read: Callable[[Moment], Awaitable[ReadingT_co]],
        *,
        clock: Clock,
        transition_seconds: float = TRANSITION_SECONDS,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        """Prepare it; nothing is read until somebody asks.

        Args:
            read: Reads the whole list, or raises; it is given the moment of its beginning.
            clock: The time that ages and pauses go by.
            transition_seconds: The least time between the beginnings of two readings; a long list takes more.
            rest_seconds: The age up to which a reading serves those who wait for nothing.
        """
        self._read = read
        self._clock = clock
        self._transition_seconds = transition_seconds
        self._rest_seconds = rest_seconds
        self._latest: ReadingT_co | None = None
        self._last_began: Moment | None = None
        self._flight: _Flight[ReadingT_co] | None = None

    @property
    def latest(self) -> ReadingT_co | None:
        """The latest reading, of whatever age; None before the first. For looking at, not for deciding."""
        return self._latest

    @property
    def age_seconds(self) -> float | None:
        """How long ago the latest reading began; None before the first."""
        return None if self._latest is None else self._clock.monotonic() - self._latest.began.seconds

    async def recent(self, max_age_seconds: float | None = None, *, after: Moment | None = None) -> ReadingT_co:
        """Give a reading that is not too old, for those who wait for nothing in particular.

        Args:
            max_age_seconds: The age that is too old; the interval at rest when absent. No reading is too old before the
                next one may begin.
            after: The moment that it also has to have begun after, such as one's own last act; absent, any will do.

        Raises:
            OxideError: A new reading was needed and failed.
        """
        limit = self._rest_seconds if max_age_seconds is None else max(max_age_seconds, self._interval_seconds())
        oldest = self._clock.monotonic() - limit
        return await self._reading(lambda began: began.seconds >= oldest and (after is None or began > after))

    async def fresh_since(self, moment: Moment) -> ReadingT_co:
        """Give a reading that began after a moment, waiting for the interval so that all who wait share one.

        Args:
            moment: A moment that has been; usually right after an act whose effect is to be seen.

        Raises:
            OxideError: The reading failed.
        """
        return await self._reading(lambda began: began > moment)

    async def aclose(self) -> None:
        """Give up the reading that is under way."""
        if self._flight is not None:
            flight, self._flight = self._flight, None
            flight.task.cancel()
            await asyncio.wait([flight.task])

    def _interval_seconds(self) -> float:
        """The least time between the beginnings of two readings."""
        objects = 0 if self._latest is None else len(self._latest)
        return min(self._rest_seconds, max(self._transition_seconds, objects / OBJECTS_PER_SECOND))

    async def _reading(self, will_do: Callable[[Moment], bool]) -> ReadingT_co:
        """Give the latest reading, or join one, whose beginning will do."""
        while True:
            if self._latest is not None and will_do(self._latest.began):
                return self._latest
            flight = self._flight or self._depart()
            if flight.began is None or will_do(flight.began):
                # Shielded: whoever stops waiting must not take the reading from the others.
                return await asyncio.shield(flight.task)
            # It began too early to be of use here, and how it ends does not matter.
            await asyncio.wait([flight.task])

    def _depart(self) -> _Flight[ReadingT_co]:
        flight: _Flight[ReadingT_co] = _Flight()
        # In a context of its own: it serves everybody, so its log lines must not bear the first one's identity.
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight), context=contextvars.Context())
        flight.task.add_done_callback(_look_at_the_error)
        self._flight = flight
        return flight

    async def _fly(self, flight: _Flight[ReadingT_co]) -> ReadingT_co:
        try:
            if self._last_began is not None:
                pause = self._last_began.seconds + self._interval_seconds() - self._clock.monotonic()
                if pause > 0:
                    await self._clock.sleep(pause)
            flight.began = self._last_began = Moment.now(self._clock)
            self._latest = await self._read(flight.began)
            return self._latest
        finally:
            # Before those who waited run again, so that they find it landed.
            if self._flight is flight:
                self._flight = None


class _Flight(Generic[ReadingT]):
    """A reading that is about to begin or under way.

    Attributes:
        task: The task that reads.
        began: When it began; None while it waits for its turn.
    """

    task: asyncio.Task[ReadingT]

    def __init__(self) -> None:
        self.began: Moment | None = None


def _look_at_the_error(task: asyncio.Task[ReadingT]) -> None:
    """Take note of an error that nobody waited for, so that asyncio does not report it as forgotten."""
    if not task.cancelled():
        task.exception()
