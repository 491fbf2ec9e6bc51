"""Numbers handed out lowest first: the addresses of pools and subnets."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class LowestFree:
    """A set of numbers from which the lowest free one is taken, in O(log n).

    Args:
        ranges: first and last number of each range, both included, not overlapping; in the order in which they are used
        up.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = sorted(ranges)
        self._taken: set[int] = set()
        # Everything below the cursor has been handed out once; what came back from there waits in the heap.
        self._returned: list[int] = []
        self._range = 0
        self._cursor = self._ranges[0][0] if self._ranges else 0

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._ranges)

    @property
    def taken_count(self) -> int:
        """How many are in use."""
        return len(self._taken)

    def is_taken(self, number: int) -> bool:
        """Whether this one is in use."""
        return number in self._taken

    def take(self) -> int | None:
        """Take the lowest free number; None when there is none."""
        while self._returned:
            number = heapq.heappop(self._returned)
            if number not in self._taken:
                self._taken.add(number)
                return number
        while self._range < len(self._ranges):
            last = self._ranges[self._range][1]
            while self._cursor <= last:
                number = self._cursor
                self._cursor += 1
                if number not in self._taken:
                    self._taken.add(number)
                    return number
            self._range += 1
            if self._range < len(self._ranges):
                self._cursor = self._ranges[self._range][0]
        return None

    def claim(self, number: int) -> bool:
        """Take this very number; False when it is in use or not one of ours."""
        if number in self._taken or number not in self:
            return False
        self._taken.add(number)
        return True

    def release(self, number: int) -> None:
        """Give a number back; it can be taken again at once."""
        self._taken.remove(number)
        heapq.heappush(self._returned, number)
