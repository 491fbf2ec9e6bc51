"""Which node carries which address: pure, from what is attached where and what each node may carry (CCM rules 4.4).

A floating IP is translated one to one to a node's private address, ports as they are. Two Services with one protocol
and port on one node would therefore get each other's packets, so they are never put together; whoever finds no node
has none. Everything else is preference: an address stays where it is as long as it works there and goes nowhere when
a node comes back (S13, S25), control planes come last, and the rest is spread by count and by a hash.

All seats are placed at once, oldest first. Each Service then carries out its own part of the same answer, in whatever
order and after whatever restart.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias
from uuid import UUID

__all__ = [
    "CAPACITY",
    "Candidate",
    "Decision",
    "Family",
    "Lack",
    "Port",
    "Protocol",
    "Seat",
    "assign",
    "has_reserve",
]

CAPACITY: Final = 32
"""How many external addresses an instance may have beside the one of its outgoing connections (semantics 4.4)."""

Protocol: TypeAlias = Literal["TCP", "UDP", "SCTP"]
"""A protocol as Kubernetes writes it."""

Family: TypeAlias = Literal["IPv4", "IPv6"]
"""An address family as Kubernetes writes it."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Port:
    """A protocol and a port number."""

    protocol: Protocol
    number: int

    def __str__(self) -> str:
        return f"{self.protocol.lower()}/{self.number}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that could carry addresses, or does.

    Attributes:
        instance_id: Its instance.
        name: The Node's name.
        uid: The Node's UID.
        may_take: Whether it may get an address that it has not (S12).
        failing: Why an address should leave it when another node can take over; empty when nothing is wrong (S13).
        closed: Why it must not carry any address, even where nobody else can; empty when it may.
        families: The families that its primary interface has.
        taken: What pods of it occupy by host ports (V6).
        is_control_plane: Whether it belongs to the control plane.
        other_addresses: How many external addresses it has that are not seats.
        capacity: How many it may have.
    """

    instance_id: UUID
    name: str
    uid: str
    may_take: bool
    failing: str = ""
    closed: str = ""
    families: frozenset[Family] = frozenset({"IPv4"})
    taken: frozenset[Port] = frozenset()
    is_control_plane: bool = False
    other_addresses: int = 0
    capacity: int = CAPACITY


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """An address of a Service that needs a node.

    Attributes:
        owner: The Service's UID. Addresses of one Service never stand in each other's way.
        address: Which of the Service's addresses it is: its id on the rack.
        owner_name: Namespace and name of the Service, for people.
        created: When the Service was made: the older one has the better right.
        family: The address's family.
        ports: What the Service wants now.
        settled: What it had when it was last placed; a port that came later gives no right against a neighbour's.
        at: The instance that has the address; None when none does.
        going: The instance that it is on its way to; None while it stays.
        barred: Instances that have just been refused by the rack.
        prefers: The instance that has another address of the same Service and family, which this one replaces.
    """

    owner: str
    address: str
    owner_name: str
    created: datetime.datetime
    family: Family
    ports: frozenset[Port]
    settled: frozenset[Port]
    at: UUID | None = None
    going: UUID | None = None
    barred: frozenset[UUID] = frozenset()
    prefers: UUID | None = None

    @property
    def rank(self) -> tuple[datetime.datetime, str, str]:
        """Who comes first."""
        return self.created, self.owner, self.address


class Lack(enum.Enum):
    """Why there is no node for a seat."""

    NODES = "no node may carry it"
    FAMILY = "no node has the address family"
    PORTS = "a port is taken on every node that could carry it"
    ROOM = "no node has room for one more address"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is decided for a seat.

    Attributes:
        node: Where it belongs; None when nowhere.
        lack: Why nowhere, or why it stays at a node that it should leave; None when it is well placed.
        detail: The words that belong to that, the same as long as the reason is the same.
    """

    node: Candidate | None
    lack: Lack | None = None
    detail: str = ""


def assign(seats: Collection[Seat], candidates: Collection[Candidate]) -> dict[str, Decision]:
    """Give every seat, by its `address`, the node where it belongs.

    No two seats of different owners are given one node with a common family, protocol and port.
    """
    nodes = {candidate.instance_id: candidate for candidate in candidates}
    board = _Board(seats)
    decisions: dict[str, Decision] = {}
    movers: list[Seat] = []
    for seat in sorted(seats, key=lambda each: each.rank):
        node = nodes.get(seat.at) if seat.at is not None else None
        if node is None or _should_leave(seat, node, board):
            movers.append(seat)
        else:
            decisions[seat.address] = Decision(node)
    for seat in movers:
        node = nodes.get(seat.at) if seat.at is not None else None
        better = _choose(seat, nodes.values(), board)
        if better is not None:
            board.put(seat, better.instance_id)
            decisions[seat.address] = Decision(better)
            continue
        lack, detail = _lack(seat, nodes.values(), board)
        # A node that works badly is better than none; one that must not, or where it would take a neighbour's
        # packets, is worse.
        stays = node is not None and not node.closed and not _gives_way(seat, board)
        decisions[seat.address] = Decision(node if stays else None, lack, detail)
    return decisions


def has_reserve(seat: Seat, node: Candidate, seats: Collection[Seat], candidates: Collection[Candidate]) -> bool:
    """Whether another node could take the seat over now if its own was lost."""
    board = _Board(seats)
    others = [candidate for candidate in candidates if candidate.instance_id != node.instance_id]
    return _choose(seat, others, board) is not None


class _Board:
    """Who is where: each seat where it is, and also where it is going, until it has left."""

    def __init__(self, seats: Iterable[Seat]) -> None:
        self._at: dict[UUID, list[Seat]] = {}
        for seat in seats:
            for place in {seat.at, seat.going} - {None}:
                self.put(seat, place)

    def put(self, seat: Seat, instance_id: UUID | None) -> None:
        """Have a seat at a node too."""
        if instance_id is not None:
            self._at.setdefault(instance_id, []).append(seat)

    def at(self, instance_id: UUID) -> Sequence[Seat]:
        """The seats at a node."""
        return self._at.get(instance_id, ())

    def rivals(self, seat: Seat, instance_id: UUID) -> list[Seat]:
        """Those at a node with which a seat cannot be."""
        return [
            other
            for other in self.at(instance_id)
            if other.owner != seat.owner and other.family == seat.family and _has(other) & seat.ports
        ]


def _has(seat: Seat) -> frozenset[Port]:
    # What a Service has given up is still programmed somewhere until it has settled anew.
    return seat.ports | seat.settled


def _should_leave(seat: Seat, node: Candidate, board: _Board) -> bool:
    return bool(node.closed or node.failing or node.taken & seat.ports) or _gives_way(seat, board)


def _gives_way(seat: Seat, board: _Board) -> bool:
    """Whether a neighbour at the same node has the better right to a common port (4.4: the changed Service moves)."""
    if seat.at is None:
        return False
    for other in board.at(seat.at):
        if other.owner == seat.owner or other.family != seat.family or other.at != seat.at:
            continue
        for port in other.ports & seat.ports:
            if (port not in other.settled, other.rank) < (port not in seat.settled, seat.rank):
                return True
    return False


def _is_open(seat: Seat, node: Candidate) -> bool:
    return node.may_take and not node.closed and not node.failing and node.instance_id not in seat.barred


def _has_room(seat: Seat, node: Candidate, board: _Board) -> bool:
    others = {each.address for each in board.at(node.instance_id)} - {seat.address}
    return len(others) + node.other_addresses < node.capacity


def _choose(seat: Seat, candidates: Iterable[Candidate], board: _Board) -> Candidate | None:
    fit = [
        node
        for node in candidates
        if _is_open(seat, node)
        and seat.family in node.families
        and not node.taken & seat.ports
        and not board.rivals(seat, node.instance_id)
        and _has_room(seat, node, board)
    ]
    return min(fit, key=lambda node: _preference(seat, node, board), default=None)


def _preference(seat: Seat, node: Candidate, board: _Board) -> tuple[bool, bool, bool, int, str, str]:
    count = len({each.address for each in board.at(node.instance_id)}) + node.other_addresses
    digest = hashlib.sha256(f"{seat.owner} {node.uid}".encode()).hexdigest()
    return (
        node.instance_id not in {seat.at, seat.going},
        node.instance_id != seat.prefers,
        node.is_control_plane,
        count,
        digest,
        node.name,
    )


def _lack(seat: Seat, candidates: Iterable[Candidate], board: _Board) -> tuple[Lack, str]:
    """Why nobody is fit, by the last hurdle that somebody came to."""
    opened = [node for node in candidates if _is_open(seat, node)]
    if not opened:
        return Lack.NODES, "no node is Ready, running and allowed to carry it"
    related = [node for node in opened if seat.family in node.families]
    if not related:
        return Lack.FAMILY, f"no node that may carry it has an {seat.family} address"
    unrivalled = [node for node in related if not node.taken & seat.ports and not board.rivals(seat, node.instance_id)]
    if unrivalled:
        return Lack.ROOM, "every node that could carry it has as many external addresses as the rack allows"
    return Lack.PORTS, _conflict(seat, related, board)


def _conflict(seat: Seat, nodes: Sequence[Candidate], board: _Board) -> str:
    holders: Mapping[Port, set[str]] = {port: set() for port in sorted(seat.ports)}
    for node in nodes:
        for port in node.taken & seat.ports:
            holders[port].add("host ports of pods")
        for rival in board.rivals(seat, node.instance_id):
            for port in _has(rival) & seat.ports:
                holders[port].add(rival.owner_name)
    parts = [f"{port} ({', '.join(sorted(names)[:3])})" for port, names in holders.items() if names]
    return f"each node that could carry it has one of these ports in use: {'; '.join(parts[:5])}"
