"""Books of numbers: lowest free numbers, blocks and shares, against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capox.rack.addresses import PORTS, PORTS_PER_SHARE, LowestFree, PortShares

# Small enough that everything is taken, collides and comes back within one example.
RANGES = [(3, 9), (10, 10), (20, 31), (40, 47)]
NUMBERS = [number for first, last in RANGES for number in range(first, last + 1)]
SIZES = [1, 2, 4, 8]


class LowestFreeBehavesLikeASet(RuleBasedStateMachine):
    """A book does what a set of free numbers would do."""

    @initialize(ranges=st.permutations(RANGES))
    def open(self, ranges: list[tuple[int, int]]) -> None:
        """Begin with a full book, whatever the order of its ranges."""
        self.book = LowestFree(ranges)
        self.free = set(NUMBERS)
        self.blocks: list[tuple[int, int]] = []

    @rule()
    def take(self) -> None:
        """The lowest free number is taken, or none when there is none."""
        expected = min(self.free, default=None)
        assert self.book.peek() == expected
        assert self.book.take() == expected
        if expected is not None:
            self.hold(expected, 1)

    @rule(number=st.integers(0, 50))
    def claim(self, number: int) -> None:
        """A number can be claimed when it is ours and free."""
        assert self.book.claim(number) == (number in self.free)
        if number in self.free:
            self.hold(number, 1)

    @rule(size=st.sampled_from(SIZES))
    def claim_lowest_block(self, size: int) -> None:
        """The lowest aligned block of free numbers is found."""
        expected = next((first for first in range(0, 64, size) if self.is_free(first, size)), None)
        assert self.book.peek_block(size) == expected
        if expected is not None:
            assert self.book.claim_block(expected, size)
            self.hold(expected, size)

    @rule(first=st.integers(0, 50), size=st.sampled_from(SIZES))
    def claim_block(self, first: int, size: int) -> None:
        """A block is claimed whole or not at all."""
        assert self.book.claim_block(first, size) == self.is_free(first, size)
        if self.is_free(first, size):
            self.hold(first, size)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """What comes back can be taken again."""
        first, size = data.draw(st.sampled_from(self.blocks))
        self.blocks.remove((first, size))
        self.book.release_block(first, size)
        self.free.update(range(first, first + size))

    @invariant()
    def says_what_is_taken(self) -> None:
        """Count and membership agree with the set."""
        taken = set(NUMBERS) - self.free
        assert self.book.taken_count == len(taken)
        assert {number for number in range(64) if self.book.is_taken(number)} == taken
        assert {number for number in range(64) if number in self.book} == set(NUMBERS)

    def hold(self, first: int, size: int) -> None:
        """Note what has been taken."""
        self.blocks.append((first, size))
        self.free.difference_update(range(first, first + size))

    def is_free(self, first: int, size: int) -> bool:
        """Whether all of a block is free. The set does not know where one range ends and the next begins."""
        return self.free.issuperset(range(first, first + size))


TestLowestFree = LowestFreeBehavesLikeASet.TestCase


class PortSharesNeverOverlap(RuleBasedStateMachine):
    """Shares of addresses, beside whole addresses out of the same book."""

    @initialize()
    def open(self) -> None:
        """Begin with four addresses."""
        self.book = LowestFree([(1, 4)])
        self.shares = PortShares(self.book)
        self.held: list[tuple[int, int]] = []
        self.whole: list[int] = []

    @rule()
    def take_share(self) -> None:
        """The lowest address with room is shared; a free one counts as one with room."""
        full = {address for address, _ in self.held if sum(1 for held in self.held if held[0] == address) == 4}
        expected = min(set(range(1, 5)) - full - set(self.whole), default=None)
        share = self.shares.take()
        if expected is None:
            assert share is None
            return
        assert share is not None
        address, first_port = share
        assert address == expected
        assert first_port in range(0, PORTS, PORTS_PER_SHARE)
        assert share not in self.held
        assert all(port > first_port for port in self.free_ports(address) - {first_port})
        self.held.append(share)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_share(self, data: st.DataObject) -> None:
        """With the last share the address is whole again."""
        share = data.draw(st.sampled_from(self.held))
        self.held.remove(share)
        self.shares.release(*share)

    @rule()
    def take_whole(self) -> None:
        """A whole address is one of which nobody has a share."""
        address = self.book.take()
        assert (address is None) == (len({*self.whole, *(held for held, _ in self.held)}) == 4)
        if address is not None:
            assert address not in {held for held, _ in self.held}
            self.whole.append(address)

    @precondition(lambda self: self.whole)
    @rule(data=st.data())
    def release_whole(self, data: st.DataObject) -> None:
        """It comes back to the book."""
        address = data.draw(st.sampled_from(self.whole))
        self.whole.remove(address)
        self.book.release(address)

    @invariant()
    def takes_an_address_once(self) -> None:
        """The book counts an address once, however many share it."""
        assert self.book.taken_count == len({*self.whole, *(address for address, _ in self.held)})

    def free_ports(self, address: int) -> set[int]:
        """The shares of an address that nobody has."""
        return set(range(0, PORTS, PORTS_PER_SHARE)) - {port for held, port in self.held if held == address}


TestPortShares = PortSharesNeverOverlap.TestCase


@given(count=st.integers(0, 40))
def test_everything_that_is_released_can_be_taken_in_order_again(count: int) -> None:
    """After any number of takes and their release in reverse the book begins anew."""
    book = LowestFree(RANGES)
    taken = [number for _ in range(count) if (number := book.take()) is not None]
    for number in reversed(taken):
        book.release(number)

    assert book.taken_count == 0
    assert [book.take() for _ in NUMBERS] == NUMBERS
    assert book.take() is None


def test_explicit_number_above_does_not_jump_the_queue_when_it_comes_back() -> None:
    """A number that was claimed and released is taken in its turn, not first."""
    book = LowestFree([(0, 9)])
    assert book.claim(7)
    book.release(7)

    assert [book.take() for _ in range(10)] == list(range(10))


def test_book_without_ranges_has_nothing() -> None:
    """No range, no number."""
    book = LowestFree([])

    assert book.peek() is None
    assert book.take() is None
    assert not book.claim(0)
    assert 0 not in book


def test_book_of_an_ipv6_subnet_is_as_cheap_as_a_small_one() -> None:
    """Numbers are kept as intervals, so a range of 2**64 of them can be opened and used."""
    first = 0xFD00 << 112
    book = LowestFree([(first, first + 2**64 - 1)])

    assert book.take() == first
    assert book.claim(first + 2**63)
    assert book.take() == first + 1
    assert book.taken_count == 3


@pytest.mark.parametrize("number", [5, 99])
def test_giving_back_what_nobody_had_is_a_mistake_of_the_rack(number: int) -> None:
    """Neither a free number nor a foreign one can come back."""
    book = LowestFree([(0, 9)])

    with pytest.raises(AssertionError):
        book.release(number)
