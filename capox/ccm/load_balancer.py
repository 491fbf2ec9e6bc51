"""The seam between a Service and whatever brings its traffic to the cluster.

`service.py` knows Kubernetes and this page, and nothing of floating IPs. Whoever implements `LoadBalancer` knows the
rack, and of Kubernetes only what `wanted` has. Oxide has floating IPs today (`floating_ip.py`); a load balancer of its
own would be a second implementation, and neither `service.py` nor a user's manifest would change.

An implementation is asked again and again with what is wanted now; it looks at what there is and does what is missing.
To move is a part of `ensure`: the targets are other ones than before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from capox.ccm.wanted import Entry, Outcome, Refusal, Surroundings, Wanted

__all__ = ["LoadBalancer", "Publish"]

Publish: TypeAlias = Callable[[tuple[Entry, ...]], Awaitable[None]]
"""Has the status say something at once, before the next step needs it."""


class LoadBalancer(Protocol):
    """What brings traffic from outside to a Service's ports on nodes."""

    def refusal(self, wanted: Wanted, surroundings: Surroundings) -> Refusal | None:
        """Say why something can never be had as it is wanted; nothing is called for that."""
        ...

    async def ensure(self, wanted: Wanted, surroundings: Surroundings, publish: Publish) -> Outcome:
        """Bring it as far as it goes now, and tell how far that is. What the rack refuses is a part of the outcome.

        Raises:
            OxideError: The rack could not be read, so nothing is known.
        """
        ...

    async def release(self, wanted: Wanted, surroundings: Surroundings) -> Outcome:
        """Give up everything that a Service has; also one that wants nothing that could be had.

        Raises:
            OxideError: The rack could not be read, so nothing is known.
        """
        ...

    def forget(self, uid: str) -> None:
        """Remember nothing of a Service any more; it is gone."""
        ...
