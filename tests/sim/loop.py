"""An event loop on virtual time, in which a seed decides who comes first.

Time passes only when everything waits for it, and then at once. Steps of tasks that could run at the same moment run in
an order that the seed chooses, so that a hundred seeds see a hundred interleavings, and one seed always the same one.
Callbacks that are not steps of tasks keep their order, since asyncio's own parts count on it.

It is for code without input and output of its own: no sockets, no threads. (`looptime` makes time virtual too, but
leaves the order of steps alone, which is half of what a simulation is for; the rest of it is a pytest plugin.)
"""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable, Coroutine
    from selectors import SelectorKey

P = ParamSpec("P")
T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock when virtual time is 0."""

TURNS_LIMIT: Final = 200_000
"""How often the loop may turn without any time passing."""


class StandstillError(Exception):
    """Everything waits for something that nobody will do."""


class SpinningError(Exception):
    """The loop turns and turns, and time never passes."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout == 0:
            self._turns += 1
            if self._turns > TURNS_LIMIT:
                raise SpinningError(f"{TURNS_LIMIT} turns of the loop at {self.seconds:.3f} s")
            return super().select(0)
        self._turns = 0
        if timeout is None:
            raise StandstillError(f"at {self.seconds:.3f} s everything waits, and nothing is due")
        self.seconds += timeout
        return super().select(0)


class SimulationLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at 0.

    Args:
        seed: Decides the order of steps that could run at the same moment; None keeps asyncio's own order.
    """

    # Parts of asyncio's own loop that it does not declare.
    _ready: collections.deque[asyncio.Handle]

    def __init__(self, seed: int | None = None) -> None:
        self._jumping = _JumpingSelector()
        self._order = None if seed is None else random.Random(f"order {seed}")
        super().__init__(self._jumping)

    def time(self) -> float:
        """Give the virtual time in seconds."""
        return self._jumping.seconds

    def now(self) -> datetime:
        """Give the wall clock, which goes with the virtual time."""
        return EPOCH + timedelta(seconds=self._jumping.seconds)

    def _run_once(self) -> None:
        if self._order is not None and len(self._ready) > 1:
            self._shuffle_steps(self._order)
        super()._run_once()  # type: ignore[misc]  # asyncio does not declare it

    def _shuffle_steps(self, order: random.Random) -> None:
        handles = list(self._ready)
        places = [place for place, handle in enumerate(handles) if _is_step(handle)]
        if len(places) < 2:
            return
        shuffled = places[:]
        order.shuffle(shuffled)
        for place, source in zip(places, shuffled, strict=True):
            self._ready[place] = handles[source]


def _is_step(handle: asyncio.Handle) -> bool:
    callback: Any = getattr(handle, "_callback", None)
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


def simulate(main: Callable[[], Coroutine[Any, Any, T]], *, seed: int | None = None) -> T:
    """Run a coroutine function to its end in a simulation loop of its own, and give its result.

    Raises:
        StandstillError: Everything waits, and nothing is due.
        SpinningError: The loop turns for ever without time passing.
    """
    with asyncio.Runner(loop_factory=lambda: SimulationLoop(seed)) as runner:
        return runner.run(main())


def simulation_loop() -> SimulationLoop:
    """Give the running simulation loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop), "this belongs into a simulation"
    return loop


def seconds() -> float:
    """Give the running loop's time in seconds."""
    return asyncio.get_running_loop().time()


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test one that runs in a simulation loop of its own, in asyncio's own order of steps."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        simulate(lambda: test(*args, **kwargs))

    return run
