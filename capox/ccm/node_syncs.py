"""How Services follow changes of the Nodes, in numbers: upstream's node sync, which has no queue of its own here.

A change of a Node wakes every Service. That is one sync: it ends when each of them has had a pass that began after the
change. What changes while one is under way makes one more sync after it, however many changes there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from capox.kube.workqueue import Request
from capox.oxide.clock import Clock

__all__ = ["NodeSyncs", "SyncCounter"]


class SyncCounter(Protocol):
    """Where it is counted."""

    def on_sync(self) -> None:
        """A pass over a load balancer has ended, however it did."""
        ...

    def on_hosts_update(self, seconds: float, *, is_success: bool) -> None:
        """It was the first one after a change of the Nodes."""
        ...

    def on_node_sync(self, seconds: float) -> None:
        """Every load balancer has had its pass after a change of the Nodes."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Sync:
    """One sync.

    Attributes:
        since_seconds: On the clock, when the change was that began it.
        followers: Who has still to follow, and from when on a pass counts.
    """

    since_seconds: float
    followers: dict[Request, float]


class NodeSyncs:
    """The syncs of one process.

    Args:
        clock: What times go by.
        counter: Where they are counted; None counts nothing.
    """

    def __init__(self, clock: Clock, counter: SyncCounter | None = None) -> None:
        self._clock = clock
        self._counter = counter
        # What is under way, and what is to follow it.
        self._syncs: list[_Sync] = []

    def began(self, requests: Iterable[Request]) -> None:
        """The Nodes have changed, and these Services have to follow; where there are none nothing begins."""
        now_seconds = self._clock.monotonic()
        followers = dict.fromkeys(requests, now_seconds)
        if not followers or self._counter is None:
            return
        if len(self._syncs) < 2:
            self._syncs.append(_Sync(now_seconds, followers))
        else:
            # Who has followed the first of these changes has to follow the last one, too.
            self._syncs[-1].followers.update(followers)

    def ended(self, request: Request, began_seconds: float, *, is_success: bool) -> None:
        """A pass over a Service has ended; a failed one counts as well, since the next is a matter of its own.

        Args:
            request: The Service.
            began_seconds: When the pass began, on the clock.
            is_success: Whether all that is wanted is there.
        """
        if self._counter is None:
            return
        self._counter.on_sync()
        followed = [each for each in self._syncs if each.followers.get(request, began_seconds + 1) <= began_seconds]
        if followed:
            self._counter.on_hosts_update(self._clock.monotonic() - began_seconds, is_success=is_success)
        for each in followed:
            del each.followers[request]
        self._finish()

    def forget(self, request: Request) -> None:
        """A Service has no load balancer any more."""
        for each in self._syncs:
            each.followers.pop(request, None)
        self._finish()

    def _finish(self) -> None:
        while self._syncs and not self._syncs[0].followers:
            ended = self._syncs.pop(0)
            if self._counter is not None:
                self._counter.on_node_sync(self._clock.monotonic() - ended.since_seconds)
