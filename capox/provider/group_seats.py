"""Places in anti-affinity groups that instances under way have taken, though no list shows them yet.

Many machines are made at once. Without this each of them would see room for one more in the same group, and the rack
would refuse all but a few. It is a help, not a promise: the rack counts for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from capox.oxide.clock import Clock

__all__ = ["Seats"]

SEAT_SECONDS: Final = 120.0
"""How long a place is kept for an instance that no list has shown."""


class Seats:
    """The places of one project.

    Args:
        clock: The time that they expire by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: dict[str, tuple[UUID, float]] = {}
        self._full: set[UUID] = set()

    @property
    def full(self) -> AbstractSet[UUID]:
        """Groups that took no more members, although by our marks they had room: somebody else has filled them."""
        return self._full

    def take(self, uid: str, group_id: UUID) -> None:
        """Take a place for a machine."""
        self._taken[uid] = (group_id, self._clock.monotonic())

    def leave(self, uid: str) -> None:
        """Give a machine's place back: its instance was refused."""
        self._taken.pop(uid, None)

    def close(self, group_id: UUID) -> None:
        """Offer no more places in a group."""
        self._full.add(group_id)

    def count(self, members: Mapping[UUID, AbstractSet[str]]) -> dict[UUID, int]:
        """How many are in each group, or will be.

        Args:
            members: The UIDs of the machines in each group, as a list has just shown them.
        """
        shown = set().union(*members.values())
        now_seconds = self._clock.monotonic()
        self._taken = {
            uid: (group_id, since)
            for uid, (group_id, since) in self._taken.items()
            if uid not in shown and now_seconds - since < SEAT_SECONDS
        }
        counts = {group_id: len(uids) for group_id, uids in members.items()}
        for group_id, _ in self._taken.values():
            counts[group_id] = counts.get(group_id, 0) + 1
        return counts
