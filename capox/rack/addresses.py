"""Numbers handed out lowest first: addresses of pools and subnets, blocks of them, and the ports of shared addresses.

Free numbers are kept as intervals, so a book costs what is fragmented in it and not what it holds; an IPv6 subnet is as
cheap as a pool of ten addresses, and everything takes O(log n) but the search for a block, which walks the intervals
that are too small for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sortedcontainers import SortedDict, SortedList

PORTS = 65_536
"""How many ports an address has."""

PORTS_PER_SHARE = 16_384
"""How many of them an instance gets when it shares an address for source NAT (semantics 4.4)."""


class LowestFree:
    """A set of numbers from which the lowest free one is taken.

    Args:
        ranges: first and last number of each range, both included, not overlapping.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        # First and last number of each run of numbers, all of them and the free ones. Runs never touch each other.
        self._ranges: SortedDict[int, int] = SortedDict()
        for first, last in sorted(ranges):
            _join(self._ranges, first, last)
        self._free: SortedDict[int, int] = SortedDict(self._ranges)
        self._taken_count = 0

    def __contains__(self, number: int) -> bool:
        return _covers(self._ranges, number, number)

    @property
    def taken_count(self) -> int:
        """How many are in use."""
        return self._taken_count

    def is_taken(self, number: int) -> bool:
        """Whether this one is ours and in use."""
        return number in self and not _covers(self._free, number, number)

    def peek(self) -> int | None:
        """The lowest free number, which stays free; None when there is none."""
        return self._free.keys()[0] if self._free else None

    def take(self) -> int | None:
        """Take the lowest free number; None when there is none."""
        first = self.peek()
        if first is not None:
            self._cut(first, first, first)
        return first

    def peek_block(self, size: int) -> int | None:
        """The first of the lowest `size` free numbers that begin at a multiple of `size`; None when there are none."""
        for first, last in self._free.items():
            start = -(-first // size) * size
            if start + size - 1 <= last:
                return start
        return None

    def claim(self, number: int) -> bool:
        """Take this very number; False when it is in use or not one of ours."""
        return self.claim_block(number, 1)

    def claim_block(self, first: int, size: int) -> bool:
        """Take these very numbers; False when one of them is in use or not ours."""
        last = first + size - 1
        if not _covers(self._free, first, last):
            return False
        self._cut(_run_at(self._free, first), first, last)
        return True

    def release(self, number: int) -> None:
        """Give a number back; it can be taken again at once."""
        self.release_block(number, 1)

    def release_block(self, first: int, size: int) -> None:
        """Give numbers back that were taken together."""
        last = first + size - 1
        below = _run_at(self._free, last)
        assert below is None or self._free[below] < first, "a number is given back that nobody had"
        assert _covers(self._ranges, first, last), "a number is given back that is not ours"
        self._taken_count -= size
        _join(self._free, first, last)

    def _cut(self, run: int | None, first: int, last: int) -> None:
        """Take `first` to `last` out of the run of free numbers that begins at `run`."""
        assert run is not None, "nothing can be cut out of no run"
        end = self._free.pop(run)
        if run < first:
            self._free[run] = first - 1
        if last < end:
            self._free[last + 1] = end
        self._taken_count += last - first + 1


class PortShares:
    """The ports of addresses that several users share: four shares an address.

    An address is taken from a book of addresses with its first share and given back with its last.

    Args:
        addresses: where the addresses come from.
    """

    def __init__(self, addresses: LowestFree) -> None:
        self._addresses = addresses
        # The free shares of each shared address, lowest port first, and the addresses that have any.
        self._free_ports: dict[int, list[int]] = {}
        self._with_room: SortedList[int] = SortedList()

    def take(self) -> tuple[int, int] | None:
        """Take a share of the lowest address that has one.

        Returns:
            The address, and the first of the share's ports; None when there is neither a share nor an address.
        """
        address = self._with_room[0] if self._with_room else None
        unused = self._addresses.peek()
        if address is None or (unused is not None and unused < address):
            address = self._addresses.take()
            if address is None:
                return None
            self._free_ports[address] = list(range(0, PORTS, PORTS_PER_SHARE))
            self._with_room.add(address)
        ports = self._free_ports[address]
        first_port = ports.pop(0)
        if not ports:
            self._with_room.remove(address)
        return address, first_port

    def release(self, address: int, first_port: int) -> None:
        """Give a share back."""
        ports = self._free_ports[address]
        assert first_port not in ports, "a share is given back that nobody had"
        if not ports:
            self._with_room.add(address)
        ports.append(first_port)
        ports.sort()
        if len(ports) * PORTS_PER_SHARE == PORTS:
            self._with_room.remove(address)
            del self._free_ports[address]
            self._addresses.release(address)


def _join(runs: SortedDict[int, int], first: int, last: int) -> None:
    """Add a run, and make it one with those that it touches."""
    below = _run_at(runs, first)
    if below is not None and runs[below] == first - 1:
        first = below
    if last + 1 in runs:
        last = runs.pop(last + 1)
    runs[first] = last


def _run_at(runs: SortedDict[int, int], number: int) -> int | None:
    """Where the last run begins that begins at a number or below it."""
    index = runs.bisect_right(number) - 1
    return runs.keys()[index] if index >= 0 else None


def _covers(runs: SortedDict[int, int], first: int, last: int) -> bool:
    """Whether one run holds all of `first` to `last`."""
    run = _run_at(runs, first)
    return run is not None and last <= runs[run]
