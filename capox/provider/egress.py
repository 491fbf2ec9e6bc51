"""Under which addresses the instances of a project appear outside: remembered, because they hardly ever change.

Traffic from an instance to a floating IP leaves the rack and comes back, so a firewall sees the sender's external
address and not its private one (semantics 9.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from capox.oxide import models
from capox.oxide.clock import Clock
from capox.oxide.errors import ObjectNotFound
from capox.oxide.models.wire import IpAddress
from capox.oxide.operations import Operations

__all__ = ["EgressAddresses"]

KEPT_SECONDS: Final = 3600.0
"""How long they are believed. An instance keeps its outgoing address for life; an ephemeral one can be attached."""

READS_MAX: Final = 64
"""How many instances are asked for in one pass: one call each."""


class EgressAddresses:
    """The addresses of one project's instances, but for floating IPs: a list that is read anyway tells those.

    Args:
        client: The client.
        clock: The time that they are kept by.
    """

    def __init__(self, client: Operations, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[UUID, tuple[float, tuple[IpAddress, ...]]] = {}

    async def of(self, instances: Iterable[UUID]) -> tuple[frozenset[IpAddress], bool]:
        """The addresses of some instances, and whether those of all of them are known.

        Raises:
            OxideError: They could not be read.
        """
        found: set[IpAddress] = set()
        reads = 0
        for instance_id in instances:
            known = self._known.get(instance_id)
            if known is None or self._clock.monotonic() - known[0] >= KEPT_SECONDS:
                if reads >= READS_MAX:
                    found.update(known[1] if known is not None else ())
                    continue
                reads += 1
                known = self._known[instance_id] = (self._clock.monotonic(), await self._read(instance_id))
            found.update(known[1])
        return frozenset(found), reads < READS_MAX

    async def _read(self, instance_id: UUID) -> tuple[IpAddress, ...]:
        try:
            external = await self._client.instance_external_ip_list(instance_id).all()
        except ObjectNotFound:
            return ()
        own = tuple(each.ip for each in external if isinstance(each, models.EphemeralIp))
        # A shared address is used only by instances without one of their own; it lets others in that share it.
        return own or tuple(each.ip for each in external if isinstance(each, models.SnatIp))
