"""Leader election on coordination Leases, with client-go's record and times, so that Go programs can take part.

A process leads while it holds all of its Leases. Others' Leases are judged by how long ago *we* saw them change, by our
own steady clock: the times that are stored are for people, and clocks that differ do no harm. A holder whose renewals
fail gives up before any other may take over: it stops at the renew deadline, which is shorter than the Lease. There is
no fencing in this, so whatever leads must also be right when somebody else leads beside it for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import structlog

from capox.kube import errors
from capox.kube.client import KubeAPI
from capox.kube.kind import Kind
from capox.kube.metrics import LeaseMetrics
from capox.kube.objects import KubeModel, Resource
from capox.kube.workqueue import Request

__all__ = ["LEASES", "LeaderElection", "Lease", "LeaseLostError", "LeaseTimes"]

T = TypeVar("T")

RELEASE_SECONDS: Final = 5.0
"""How long giving up a Lease in the end may take."""

_JITTER: Final = 1.2
"""By how much of itself, at most, the pause between two attempts to take a Lease is longer."""


class LeaseSpec(KubeModel):
    """Who holds a Lease (`coordination.k8s.io/v1`). Times are kept as text: nobody compares them."""

    holder_identity: str | None = None
    """Who holds it; None when nobody does."""

    lease_duration_seconds: int | None = None
    """For how long after a change nobody else may take it."""

    acquire_time: str | None = None
    """Since when it is held."""

    renew_time: str | None = None
    """When it was last renewed."""

    lease_transitions: int | None = None
    """How often it has changed hands."""


class Lease(Resource):
    """A Lease."""

    spec: LeaseSpec = LeaseSpec()
    """Who holds it."""


LEASES: Final = Kind(Lease, "coordination.k8s.io", "v1", "leases")


class LeaseLostError(Exception):
    """A Lease that was held is not ours any more, or could not be renewed in time."""


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of an election; controller-runtime's unless told otherwise.

    Attributes:
        lease_seconds: For how long after its last change a Lease belongs to its holder.
        renew_deadline_seconds: After how long without a renewal the holder gives up.
        retry_seconds: The pause between two renewals, and the shortest one between two attempts to take.
    """

    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_deadline_seconds > _JITTER * self.retry_seconds > 0:
            raise ValueError(
                f"lease {self.lease_seconds:g} s, renew deadline {self.renew_deadline_seconds:g} s, retry "
                f"{self.retry_seconds:g} s: each has to be longer than the next, the deadline {_JITTER} times"
            )


@dataclasses.dataclass(slots=True)
class _Held:
    """A Lease that is ours.

    Attributes:
        lease: As it was stored last.
        renewed_at: When the last renewal that succeeded was sent, by our clock.
        renewed_time: The same by the wall clock, which goes on while a machine sleeps.
    """

    lease: Lease
    renewed_at: float
    renewed_time: datetime


class LeaderElection:
    """Takes Leases, holds them while some work is done, and gives them up.

    Args:
        kube: The API.
        leases: Namespace and name of each Lease. They are taken one after the other, so every process that takes part
            has to name them in the same order, or two could wait for each other for ever.
        identity: Who we are; no two processes may be the same.
        times: The times of the election.
        on_lost: Called at once when a Lease is lost, before anything else happens.
        now: The wall clock, for what is stored.
        randomness: Where jitter comes from.
        metrics: Where it is told which Leases are held.
    """

    def __init__(
        self,
        kube: KubeAPI,
        leases: Sequence[Request],
        *,
        identity: str,
        on_lost: Callable[[], None],
        now: Callable[[], datetime],
        randomness: random.Random,
        metrics: LeaseMetrics,
        times: LeaseTimes | None = None,
    ) -> None:
        assert identity, "an empty identity holds nothing"
        self._kube = kube
        self._leases = tuple(leases)
        self._identity = identity
        self._times = times or LeaseTimes()
        self._on_lost = on_lost
        self._now = now
        self._randomness = randomness
        self._metrics = metrics
        self._log = structlog.get_logger().bind(identity=identity)
        self._held: list[_Held] = []
        # Each Lease as it was last seen, and since when it is so.
        self._seen: dict[Request, tuple[LeaseSpec, float]] = {}
        for lease in self._leases:
            metrics.on_change(lease.name, is_held=False)

    def is_leading(self) -> bool:
        """Whether all Leases are surely ours at this moment: renewed so lately that nobody else may have taken one.

        Asked before a write that another leader's must not meet. It says no before the loss is noticed otherwise, as in
        a process that has slept; the wall clock is asked too, because the steady one stands still in a machine that is
        paused.
        """
        deadline_seconds = self._times.renew_deadline_seconds
        return len(self._held) == len(self._leases) and all(
            _time() - held.renewed_at < deadline_seconds
            and (self._now() - held.renewed_time).total_seconds() < deadline_seconds
            for held in self._held
        )

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Take all Leases, then work; give them up when the work has ended, however it has.

        Cancelling it while it waits gives up what it holds so far. Cancelling it while it works cancels the work, and
        gives the Leases up when that has ended.

        Raises:
            LeaseLostError: A Lease was lost, and the work has been cancelled.
        """
        held = self._held
        renewing: list[asyncio.Task[None]] = []
        is_lost = False
        try:
            for name in self._leases:
                held.append(await self._alongside(self._take(name), renewing))
                self._metrics.on_change(name.name, is_held=True)
                self._log.info("Leading", lease=str(name))
                renewing.append(asyncio.create_task(self._renew_for_ever(held[-1]), name=f"lease {name}"))
            return await self._alongside(work(), renewing)
        except LeaseLostError:
            is_lost = True
            raise
        finally:
            await _end(renewing)
            self._held = []
            for each in held:
                self._metrics.on_change(each.lease.metadata.name, is_held=False)
                if not is_lost:
                    await self._release(each)

    async def _alongside(self, work: Awaitable[T], renewing: Sequence[asyncio.Task[None]]) -> T:
        """Wait for something while Leases are renewed.

        Raises:
            LeaseLostError: One of them was lost; what was waited for is cancelled.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, *renewing), return_when=asyncio.FIRST_COMPLETED)
            for each in renewing:
                if each.done():
                    each.result()
            return await task
        finally:
            await _end([task])

    # Taking.

    async def _take(self, name: Request) -> _Held:
        """Try until the Lease is ours.

        The Leases behind it are looked at as well: their holder's silence counts from now on, not from when it is their
        turn, or a holder of two that died would be waited for twice.
        """
        while True:
            began = (_time(), self._now())
            try:
                lease = await self._look_at(name)
                if lease is None:
                    return _Held(await self._make(name), *began)
                if self._is_free(*self._seen[name]):
                    return _Held(await self._write(lease, self._taken(lease.spec)), *began)
                for later in self._leases[self._leases.index(name) + 1 :]:
                    await self._look_at(later)
            except errors.KubeError as error:
                self._log.debug("Taking a lease failed", lease=str(name), error=str(error))
            await asyncio.sleep(self._times.retry_seconds * (1 + _JITTER * self._randomness.random()))

    def _is_free(self, spec: LeaseSpec, seen_at: float) -> bool:
        if spec.holder_identity in (None, "", self._identity):
            return True
        lease_seconds = spec.lease_duration_seconds or self._times.lease_seconds
        return _time() - seen_at > lease_seconds

    async def _look_at(self, name: Request) -> Lease | None:
        """Read a Lease, and note when it was first seen as it is now."""
        lease = await self._read(name)
        if lease is not None and (name not in self._seen or self._seen[name][0] != lease.spec):
            self._seen[name] = (lease.spec, _time())
        return lease

    async def _read(self, name: Request) -> Lease | None:
        try:
            return await self._kube.get(LEASES, name.namespace, name.name)
        except errors.NotFound:
            return None

    async def _make(self, name: Request) -> Lease:
        document = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.name,
            "metadata": {"name": name.name, "namespace": name.namespace},
            "spec": {**self._taken(LeaseSpec()), "leaseTransitions": 0},
        }
        return await self._kube.create(LEASES, name.namespace, document)

    def _taken(self, before: LeaseSpec) -> dict[str, Any]:
        is_ours = before.holder_identity == self._identity
        now = _micro_time(self._now())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.lease_seconds)),
            "acquireTime": before.acquire_time if is_ours else now,
            "renewTime": now,
            "leaseTransitions": (before.lease_transitions or 0) + (0 if is_ours else 1),
        }

    async def _write(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        metadata = lease.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "spec": spec}
        return await self._kube.patch(LEASES, metadata.namespace, metadata.name, patch)

    # Holding.

    async def _renew_for_ever(self, held: _Held) -> None:
        """Renew until cancelled.

        Raises:
            LeaseLostError: It is somebody else's, or the deadline has passed.
        """
        name = held.lease.metadata.name
        while True:
            await asyncio.sleep(self._times.retry_seconds)
            try:
                async with asyncio.timeout_at(held.renewed_at + self._times.renew_deadline_seconds):
                    await self._renew(held)
            except TimeoutError:
                self._lose(name, f"not renewed for {self._times.renew_deadline_seconds:g} s")
            except _TakenByAnotherError as error:
                self._lose(name, str(error))

    async def _renew(self, held: _Held) -> None:
        """Renew once, in as many attempts as it takes."""
        while True:
            began, began_time = _time(), self._now()
            try:
                held.lease = await self._write(held.lease, self._taken(held.lease.spec))
            except errors.Conflict:
                # Somebody has written it: another holder, or only its labels, or we ourselves with a lost answer.
                await self._read_again(held)
                continue
            except errors.NotFound:
                with contextlib.suppress(errors.KubeError):
                    metadata = held.lease.metadata
                    held.lease = await self._make(Request(metadata.namespace, metadata.name))
                    held.renewed_at, held.renewed_time = began, began_time
                    return
            except errors.KubeError as error:
                self._log.warning("Renewing a lease failed", lease=held.lease.metadata.name, error=str(error))
            else:
                held.renewed_at, held.renewed_time = began, began_time
                return
            await asyncio.sleep(self._times.retry_seconds)

    async def _read_again(self, held: _Held) -> None:
        metadata = held.lease.metadata
        try:
            lease = await self._read(Request(metadata.namespace, metadata.name))
        except errors.KubeError:
            await asyncio.sleep(self._times.retry_seconds)
            return
        if lease is None:
            return
        if lease.spec.holder_identity != self._identity:
            raise _TakenByAnotherError(f"held by {lease.spec.holder_identity or 'nobody'}")
        held.lease = lease

    def _lose(self, name: str, why: str) -> None:
        """A Lease is lost.

        Raises:
            LeaseLostError: Always.
        """
        self._on_lost()
        self._log.error("Lost a lease", lease=name, why=why)
        raise LeaseLostError(f"lease {name}: {why}")

    # Giving up.

    async def _release(self, held: _Held) -> None:
        """Let others take over at once. If it does not work, they wait for the Lease to run out."""
        now = _micro_time(self._now())
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._write(held.lease, spec)
        except (TimeoutError, errors.KubeError) as error:
            self._log.warning("Releasing a lease failed", lease=held.lease.metadata.name, error=str(error))


class _TakenByAnotherError(Exception):
    """Somebody else holds it."""


async def _end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel the tasks that have not ended, and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _time() -> float:
    return asyncio.get_running_loop().time()


def _micro_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
