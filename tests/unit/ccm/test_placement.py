"""Placement: which node carries which address (CCM rules S12, S13, S25, V6, 4.4)."""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Mapping, Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from capox.ccm.placement import Candidate, Decision, Lack, Port, Seat, assign, has_reserve

HTTPS = Port("TCP", 443)
HTTP = Port("TCP", 80)
QUIC = Port("UDP", 443)


def node(number: int, **changes: object) -> Candidate:
    """A node that may carry anything, unless told otherwise."""
    fields: dict[str, object] = {
        "instance_id": UUID(int=number),
        "name": f"node-{number}",
        "uid": f"uid-{number}",
        "may_take": True,
    }
    return Candidate(**{**fields, **changes})  # type: ignore[arg-type]


def seat(number: int, *ports: Port, at: int | None = None, **changes: object) -> Seat:
    """The one address of a Service, made later the higher its number."""
    fields: dict[str, object] = {
        "owner": f"service-{number}",
        "address": f"address-{number}",
        "owner_name": f"default/service-{number}",
        "created": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=number),
        "family": "IPv4",
        "ports": frozenset(ports),
        "settled": frozenset(ports),
        "at": None if at is None else UUID(int=at),
    }
    return Seat(**{**fields, **changes})  # type: ignore[arg-type]


def where(decisions: Mapping[str, Decision]) -> dict[str, str | None]:
    """The node's name by address."""
    nodes = {address: decision.node for address, decision in decisions.items()}
    return {address: None if found is None else found.name for address, found in nodes.items()}


def test_two_services_with_one_port_get_different_nodes() -> None:
    """4.4: never co-locate."""
    decisions = assign([seat(1, HTTPS), seat(2, HTTPS)], [node(1), node(2)])

    assert set(where(decisions).values()) == {"node-1", "node-2"}


def test_the_youngest_of_three_waits_and_is_told_for_whom() -> None:
    """4.4: a port used by more Services than nodes refuses the youngest, in words that stay the same."""
    seats = [seat(1, HTTPS), seat(2, HTTPS), seat(3, HTTPS)]

    decision = assign(seats, [node(1), node(2)])["address-3"]

    assert decision.node is None
    assert decision.lack is Lack.PORTS
    assert "tcp/443 (default/service-1, default/service-2)" in decision.detail


def test_tcp_and_udp_of_one_number_share_a_node() -> None:
    """4.4: a claim is family, protocol and port."""
    decisions = assign([seat(1, HTTPS), seat(2, QUIC)], [node(1)])

    assert set(where(decisions).values()) == {"node-1"}


def test_families_do_not_conflict() -> None:
    """4.4: data planes keep the families apart."""
    both = node(1, families=frozenset({"IPv4", "IPv6"}))

    decisions = assign([seat(1, HTTPS), seat(2, HTTPS, family="IPv6")], [both])

    assert set(where(decisions).values()) == {"node-1"}


def test_addresses_of_one_service_share_a_node() -> None:
    """S22: the replacement of an address is placed where the old one is."""
    old = seat(1, HTTPS, at=2, address="old")
    new = dataclasses.replace(old, address="new", at=None, prefers=UUID(int=2))

    decisions = assign([old, new], [node(1), node(2), node(3)])

    assert where(decisions) == {"old": "node-2", "new": "node-2"}


def test_a_port_that_comes_later_moves_the_service_that_changed() -> None:
    """4.4: when a port list grows into a conflict, the changed Service moves, though it is the older one."""
    changed = seat(1, HTTP, HTTPS, at=1, settled=frozenset({HTTP}))
    neighbour = seat(2, HTTPS, at=1)

    decisions = assign([changed, neighbour], [node(1), node(2)])

    assert where(decisions) == {"address-1": "node-2", "address-2": "node-1"}


def test_a_port_that_comes_later_and_has_no_other_node_puts_the_changed_service_off() -> None:
    """4.4: never co-locate, whatever it costs the one that changed."""
    changed = seat(1, HTTP, HTTPS, at=1, settled=frozenset({HTTP}))

    decision = assign([changed, seat(2, HTTPS, at=1)], [node(1)])["address-1"]

    assert (decision.node, decision.lack) == (None, Lack.PORTS)


def test_of_two_with_equal_right_the_older_stays() -> None:
    """4.4: earlier creationTimestamp, then UID."""
    decisions = assign([seat(1, HTTPS, at=1), seat(2, HTTPS, at=1)], [node(1), node(2)])

    assert where(decisions) == {"address-1": "node-1", "address-2": "node-2"}


def test_the_holder_keeps_its_address_when_a_better_node_comes() -> None:
    """S13, S25: nothing moves back."""
    control_plane = node(1, is_control_plane=True)

    decisions = assign([seat(1, HTTPS, at=1)], [control_plane, node(2), node(3)])

    assert where(decisions) == {"address-1": "node-1"}


def test_a_failing_holder_gives_its_address_away() -> None:
    """S13."""
    decisions = assign([seat(1, HTTPS, at=1)], [node(1, may_take=False, failing="NotReady"), node(2)])

    assert where(decisions) == {"address-1": "node-2"}


def test_when_all_fail_nothing_moves() -> None:
    """S13: trouble of the apiserver or the network is no reason to let go."""
    nodes = [node(number, may_take=False, failing="NotReady") for number in (1, 2, 3)]

    decision = assign([seat(1, HTTPS, at=2)], nodes)["address-1"]

    assert decision.node is not None
    assert decision.node.name == "node-2"
    assert decision.lack is Lack.NODES


def test_a_closed_node_keeps_nothing() -> None:
    """3.5: an excluded node carries no address, also where nobody else can."""
    decision = assign([seat(1, HTTPS, at=1)], [node(1, may_take=False, closed="excluded by label")])["address-1"]

    assert (decision.node, decision.lack) == (None, Lack.NODES)


def test_an_address_on_its_way_still_takes_its_place() -> None:
    """S15: between two steps of one Service's move no other takes the port at its target."""
    moving = seat(1, HTTPS, at=1, going=UUID(int=2))

    decisions = assign([moving, seat(2, HTTPS)], [node(1, may_take=False, failing="stopped"), node(2), node(3)])

    assert where(decisions) == {"address-1": "node-2", "address-2": "node-3"}


def test_control_planes_come_last() -> None:
    """4.4: they carry an address only where nobody else can."""
    assert where(assign([seat(1, HTTPS)], [node(1, is_control_plane=True), node(2)])) == {"address-1": "node-2"}
    assert where(assign([seat(1, HTTPS)], [node(1, is_control_plane=True)])) == {"address-1": "node-1"}


def test_host_ports_of_pods_are_avoided_and_left() -> None:
    """V6: a host port counts as taken; a holder leaves it when it can, and only then."""
    taken = node(1, taken=frozenset({HTTPS}))

    assert where(assign([seat(1, HTTPS)], [taken, node(2)])) == {"address-1": "node-2"}
    assert where(assign([seat(1, HTTPS, at=1)], [taken, node(2)])) == {"address-1": "node-2"}
    assert where(assign([seat(1, HTTPS, at=1)], [taken])) == {"address-1": "node-1"}
    assert "tcp/443 (host ports of pods)" in assign([seat(1, HTTPS)], [taken])["address-1"].detail


def test_a_full_node_takes_no_more() -> None:
    """4.4: the rack refuses the 33rd address of an instance."""
    seats = [seat(number, Port("TCP", number), at=1) for number in range(1, 33)]

    assert where(assign([*seats, seat(40, HTTPS)], [node(1), node(2)]))["address-40"] == "node-2"
    assert assign([*seats, seat(40, HTTPS)], [node(1)])["address-40"].lack is Lack.ROOM


def test_a_barred_node_is_passed_over() -> None:
    """V7: where the rack has just refused, the next candidate is tried."""
    decisions = assign([seat(1, HTTPS, barred=frozenset({UUID(int=1)}))], [node(1), node(2)])

    assert where(decisions) == {"address-1": "node-2"}


def test_a_family_that_no_node_has() -> None:
    """S12: the primary interface has to have the family."""
    assert assign([seat(1, HTTPS, family="IPv6")], [node(1)])["address-1"].lack is Lack.FAMILY


def test_reserve() -> None:
    """4.4: to survive the loss of a node a port needs one node more than Services."""
    first, second, nodes = seat(1, HTTPS, at=1), seat(2, HTTPS, at=2), [node(1), node(2), node(3)]

    assert has_reserve(first, nodes[0], [first, second], nodes)
    assert not has_reserve(first, nodes[0], [first, second], nodes[:2])


PORTS = st.frozensets(st.sampled_from([HTTP, HTTPS, QUIC, Port("TCP", 25)]), min_size=1, max_size=2)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Seat], list[Candidate]]:
    """Some nodes and Services, at whatever places."""
    nodes = [
        node(
            number,
            may_take=draw(st.booleans()),
            failing=draw(st.sampled_from(["", "", "NotReady"])),
            closed=draw(st.sampled_from(["", "", "", "excluded"])),
            taken=draw(st.one_of(st.just(frozenset()), PORTS)),
            is_control_plane=draw(st.booleans()),
            capacity=draw(st.integers(1, 4)),
            families=frozenset(draw(st.sampled_from([("IPv4",), ("IPv6",), ("IPv4", "IPv6")]))),
        )
        for number in range(1, draw(st.integers(1, 5)) + 1)
    ]
    places = st.one_of(st.none(), st.integers(1, 6))
    seats = [
        seat(
            number,
            *draw(PORTS),
            at=draw(places),
            settled=draw(PORTS),
            going=draw(st.one_of(st.none(), st.none(), st.integers(1, 5).map(lambda at: UUID(int=at)))),
            family=draw(st.sampled_from(["IPv4", "IPv6"])),
        )
        for number in range(1, draw(st.integers(1, 7)) + 1)
    ]
    return seats, nodes


def settle(seats: Sequence[Seat], decisions: Mapping[str, Decision]) -> list[Seat]:
    """The seats after everybody has gone where he belongs."""
    settled = []
    for each in seats:
        place = decisions[each.address].node
        at = place.instance_id if place is not None else None
        settled.append(
            dataclasses.replace(each, at=at, going=None, settled=each.ports if place is not None else each.settled)
        )
    return settled


@given(clusters())
def test_never_two_claims_on_one_node(cluster: tuple[list[Seat], list[Candidate]]) -> None:
    """4.4: whatever was before, no node is given one family, protocol and port for two Services."""
    seats, nodes = cluster

    decisions = assign(seats, nodes)

    claims: dict[tuple[object, ...], str] = {}
    for each in seats:
        place = decisions[each.address].node
        for port in each.ports if place is not None else ():
            assert place is not None
            assert claims.setdefault((place.name, each.family, port), each.owner) == each.owner


@given(clusters(), st.randoms(use_true_random=False))
def test_order_of_observation_decides_nothing(cluster: tuple[list[Seat], list[Candidate]], dice: random.Random) -> None:
    """S25: the same after a restart, in whatever order things are seen."""
    seats, nodes = cluster
    expected = assign(seats, nodes)
    dice.shuffle(seats)
    dice.shuffle(nodes)

    assert assign(seats, nodes) == expected


@given(clusters())
def test_who_has_arrived_stays(cluster: tuple[list[Seat], list[Candidate]]) -> None:
    """S25: a second look at what the first one made moves nothing that is well placed."""
    seats, nodes = cluster
    first = assign(seats, nodes)
    arrived = settle(seats, first)

    second = assign(arrived, nodes)

    for address, decision in first.items():
        if decision.node is not None and decision.lack is None:
            assert second[address].node == decision.node


@given(clusters())
def test_nobody_is_sent_where_he_may_not_be(cluster: tuple[list[Seat], list[Candidate]]) -> None:
    """S12: whoever moves goes to an open node with the family, room and free ports."""
    seats, nodes = cluster

    for address, decision in assign(seats, nodes).items():
        mover = next(each for each in seats if each.address == address)
        if decision.node is None or decision.node.instance_id == mover.at:
            continue
        assert decision.node.may_take
        assert not decision.node.closed
        assert not decision.node.failing
        assert mover.family in decision.node.families
        assert not decision.node.taken & mover.ports


@given(clusters())
def test_the_loss_of_a_node_moves_only_what_it_carried(cluster: tuple[list[Seat], list[Candidate]]) -> None:
    """4.4: little movement."""
    seats, nodes = cluster
    arrived = settle(seats, assign(seats, nodes))
    lost, *left = nodes

    decisions = assign(arrived, left)

    for each in arrived:
        before = assign(arrived, nodes)[each.address]
        if each.at not in (None, lost.instance_id) and before.lack is None:
            assert decisions[each.address].node == before.node
