"""A client of the store: what a process holds, with the weather between it and the API, and an end that can come."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from capox.kube import errors
from capox.kube.client import KubeAPI, Labels, Patch
from capox.kube.kind import Kind
from capox.kube.objects import Resource
from tests.sim.store import Store

__all__ = ["Call", "FairWeather", "ProcessGoneError", "SeededWeather", "StoreClient", "Weather"]

R = TypeVar("R", bound=Resource)


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of the API.

    Attributes:
        verb: `get`, `list`, `create`, `patch`, `apply` or `delete`.
        kind: The kind, as in `oxidemachines.infrastructure.cluster.x-k8s.io`.
        namespace: The namespace; empty for all.
        name: The object's name; empty for a list or a generated name.
        subresource: The subresource; empty for the object itself.
    """

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str = ""

    @property
    def is_write(self) -> bool:
        """Whether the call changes something."""
        return self.verb not in ("get", "list")


class ProcessGoneError(BaseException):
    """The process that makes this call is dead. Not an `Exception`: nothing in a dead process handles it."""


class Weather(Protocol):
    """What happens on the way to the API and back. Either may take time, and end the call with a `KubeError`."""

    async def before(self, call: Call) -> None:
        """Before the API has seen the call; an error here means that nothing was done."""
        ...

    async def after(self, call: Call) -> None:
        """After the API has done it; an error here loses the answer."""
        ...


class FairWeather:
    """Every call arrives and is answered, at once, but not without others having a turn."""

    async def before(self, call: Call) -> None:  # noqa: ARG002  # as the protocol has it
        """Let others go first."""
        await asyncio.sleep(0)

    async def after(self, call: Call) -> None:
        """Nothing happens."""


class SeededWeather:
    """Weather by a seed.

    Args:
        randomness: Decides.
        latency_seconds: The least and the most that each way takes.
        refused_rate: How many calls of 1 are answered with 503 and not done.
        lost_request_rate: How many of 1 never arrive.
        lost_answer_rate: How many of 1 are done, and nobody hears of it.

    Attributes:
        is_fair: Whether there are no errors now; latency stays.
    """

    def __init__(
        self,
        randomness: random.Random,
        *,
        latency_seconds: tuple[float, float] = (0.001, 0.02),
        refused_rate: float = 0.0,
        lost_request_rate: float = 0.0,
        lost_answer_rate: float = 0.0,
    ) -> None:
        self._randomness = randomness
        self._latency_seconds = latency_seconds
        self._refused_rate = refused_rate
        self._lost_request_rate = lost_request_rate
        self._lost_answer_rate = lost_answer_rate
        self.is_fair = False

    async def before(self, call: Call) -> None:
        """Take time; refuse the call or lose it.

        Raises:
            Unavailable: The API refuses.
            NoAnswer: The request is lost.
        """
        await self._pass_time()
        chance = self._randomness.random()
        if self.is_fair:
            return
        if chance < self._refused_rate:
            raise errors.Unavailable(503, "ServiceUnavailable", f"the simulated API refuses {call.verb} {call.name}")
        if chance < self._refused_rate + self._lost_request_rate:
            raise errors.NoAnswer(f"simulated: the request {call.verb} {call.name} is lost")

    async def after(self, call: Call) -> None:
        """Take time; lose the answer.

        Raises:
            NoAnswer: The answer is lost.
        """
        await self._pass_time()
        if self._randomness.random() < self._lost_answer_rate and not self.is_fair:
            raise errors.NoAnswer(f"simulated: the answer to {call.verb} {call.name} is lost")

    async def _pass_time(self) -> None:
        await asyncio.sleep(self._randomness.uniform(*self._latency_seconds))


class StoreClient(KubeAPI):
    """`KubeAPI` over the store, for one simulated process.

    Args:
        store: The cluster.
        weather: What is between.

    Attributes:
        calls: The calls that the API has carried out or refused, in order.
    """

    def __init__(self, store: Store, weather: Weather | None = None) -> None:
        self._store = store
        self._weather: Weather = weather or FairWeather()
        self._is_cut = False
        self.calls: list[Call] = []

    def cut(self) -> None:
        """End the process as SIGKILL does: what is under way may be done, but nothing is heard or said any more."""
        self._is_cut = True

    async def get(self, kind: Kind[R], namespace: str, name: str) -> R:
        """Read one object."""
        call = await self._begin("get", kind, namespace, name)
        document = self._store.get(kind, namespace, name)
        await self._end(call)
        return kind.parse(document)

    async def list(self, kind: Kind[R], namespace: str | None, labels: Labels | None = None) -> list[R]:
        """Read all objects of a kind that have these labels."""
        call = await self._begin("list", kind, namespace or "", "")
        documents = self._store.list(kind, namespace, labels)
        await self._end(call)
        return [kind.parse(document) for document in documents]

    async def create(self, kind: Kind[R], namespace: str, document: Mapping[str, Any]) -> R:
        """Make an object."""
        call = await self._begin("create", kind, namespace, (document.get("metadata") or {}).get("name") or "")
        stored = self._store.create(kind, namespace, document)
        await self._end(call)
        return kind.parse(stored)

    async def patch(
        self, kind: Kind[R], namespace: str, name: str, patch: Patch, *, subresource: str | None = None
    ) -> R:
        """Merge a patch into an object or its status."""
        call = await self._begin("patch", kind, namespace, name, subresource or "")
        stored = self._store.patch(kind, namespace, name, patch, subresource=subresource)
        await self._end(call)
        return kind.parse(stored)

    async def apply(self, kind: Kind[R], namespace: str, name: str, document: Mapping[str, Any]) -> R:
        """Apply a document server-side."""
        call = await self._begin("apply", kind, namespace, name)
        stored = self._store.apply(kind, namespace, name, document)
        await self._end(call)
        return kind.parse(stored)

    async def delete(
        self,
        kind: Kind[Any],
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for an object's deletion."""
        call = await self._begin("delete", kind, namespace, name)
        self._store.delete(kind, namespace, name, uid=uid, resource_version=resource_version)
        await self._end(call)

    async def _begin(self, verb: str, kind: Kind[Any], namespace: str, name: str, subresource: str = "") -> Call:
        call = Call(verb, str(kind), namespace, name, subresource)
        self._check_alive()
        await self._weather.before(call)
        # A request that had left before the end came may still arrive; one that had not, never does.
        self._check_alive()
        self.calls.append(call)
        return call

    async def _end(self, call: Call) -> None:
        await self._weather.after(call)
        self._check_alive()

    def _check_alive(self) -> None:
        if self._is_cut:
            raise ProcessGoneError
