"""Ports are leased to one holder at a time."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from hack.controlplane.ports import NoPortError, PortLeases

if TYPE_CHECKING:
    from pathlib import Path

FIRST = 29000


def leases(directory: Path, *, count: int = 10, start: int = FIRST) -> PortLeases:
    """Leases in a small range."""
    return PortLeases(directory, start=start, first=FIRST, last=FIRST + count - 1)


def test_two_holders_share_nothing(tmp_path: Path) -> None:
    """Who comes second gets other ports, although nobody listens on the first ones yet."""
    first, second = leases(tmp_path), leases(tmp_path)

    held = [*first.lease(3), *second.lease(3), *first.lease(1)]

    assert len(set(held)) == len(held)
    first.release()
    second.release()


def test_released_ports_come_back(tmp_path: Path) -> None:
    """What one holder gives back another can have."""
    first, second = leases(tmp_path, count=4), leases(tmp_path, count=4)
    held = first.lease(4)
    first.release()

    assert sorted(second.lease(4)) == sorted(held)
    second.release()


def test_a_port_that_somebody_listens_on_is_left_alone(tmp_path: Path) -> None:
    """Strangers hold no lease; their sockets are noticed."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as stranger:
        taken = stranger.getsockname()[1]
        found = PortLeases(tmp_path, start=taken, first=taken, last=taken)

        with pytest.raises(
            NoPortError, match=f"1 free ports are needed on 127.0.0.1 between {taken} and {taken}, 0 were"
        ):
            found.lease(1)


def test_a_lease_that_cannot_be_met_holds_nothing(tmp_path: Path) -> None:
    """Half of what was asked for is given back with the refusal."""
    first, second = leases(tmp_path, count=4), leases(tmp_path, count=4)
    with pytest.raises(NoPortError):
        first.lease(5)

    assert len(second.lease(4)) == 4
    second.release()


def test_the_search_goes_round(tmp_path: Path) -> None:
    """It begins anywhere in the range and goes on at its other end."""
    found = leases(tmp_path, count=4, start=FIRST + 2)

    assert found.lease(4) == [FIRST + 2, FIRST + 3, FIRST, FIRST + 1]
    found.release()
