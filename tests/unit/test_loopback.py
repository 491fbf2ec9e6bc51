"""The guard that keeps tests on this machine."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback import OutsideLoopbackError, outside_loopback

if TYPE_CHECKING:
    from tests.loopback import LoopbackGuard

# Addresses of the documentation ranges: nothing answers there, and nothing is sent, since only audit events are raised.
_OUTSIDE_V4 = "192.0.2.1"
_OUTSIDE_V6 = "2001:db8::1"


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 80)),
        (socket.AF_INET, ("127.8.9.10", 80)),
        (socket.AF_INET, ("localhost", 80)),
        (socket.AF_INET6, ("::1", 80, 0, 0)),
        (socket.AF_UNIX, "/run/some.sock"),
    ],
)
def test_connections_that_stay_here_are_let_through(family: socket.AddressFamily, address: Any) -> None:
    """Loopback addresses of both families, their name, and unix sockets are not refused."""
    with socket.socket(family) as sock:
        assert outside_loopback("socket.connect", (sock, address)) is None


@pytest.mark.parametrize("event", ["socket.connect", "socket.sendto", "socket.sendmsg"])
@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, (_OUTSIDE_V4, 80)),
        (socket.AF_INET6, (_OUTSIDE_V6, 80, 0, 0)),
        (socket.AF_INET, ("rack.example", 80)),
    ],
)
def test_connections_that_leave_are_named(event: str, family: socket.AddressFamily, address: Any) -> None:
    """Whatever sends to another machine is refused, and the sentence names the address."""
    with socket.socket(family) as sock:
        assert str(address) in (outside_loopback(event, (sock, address)) or "")


@pytest.mark.parametrize("host", ["localhost", b"localhost", None, "", "::1", "0.0.0.0", _OUTSIDE_V4])  # noqa: S104 - nothing is bound
def test_look_ups_without_a_name_server_are_let_through(host: str | bytes | None) -> None:
    """Numbers and localhost need no name server; what is then done with a number is judged on its own."""
    assert outside_loopback("socket.getaddrinfo", (host, 80, 0, 0, 0)) is None


def test_look_ups_of_names_are_refused() -> None:
    """A name server is another machine too."""
    assert "rack.example" in (outside_loopback("socket.getaddrinfo", ("rack.example", 443, 0, 0, 0)) or "")


def test_refusals_are_raised_and_recorded(loopback_guard: LoopbackGuard) -> None:
    """The hook is in force in this process: it raises at the event and keeps a record for the end of the test."""
    with socket.socket(socket.AF_INET) as sock, pytest.raises(OutsideLoopbackError, match=_OUTSIDE_V4):
        sys.audit("socket.connect", sock, (_OUTSIDE_V4, 80))

    assert len(loopback_guard.refused) == 1
    loopback_guard.refused.clear()


def test_swallowed_refusal_fails_the_test(pytester: pytest.Pytester) -> None:
    """A test that catches the refusal and goes on fails all the same, with the address in the report."""
    pytester.makeconftest("from tests.conftest import loopback_guard, restored_environment")
    pytester.makepyfile(
        f"""
        import contextlib, os, socket, sys

        def test_swallows():
            with contextlib.suppress(Exception), socket.socket() as sock:
                sys.audit("socket.connect", sock, ("{_OUTSIDE_V4}", 80))

        def test_leaves_the_environment_changed():
            os.environ["CAPOX_LEFT_BEHIND"] = "yes"
        """
    )
    result = pytester.runpytest("-p", "no:randomly", "-o", "asyncio_default_fixture_loop_scope=function")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines([f"*{_OUTSIDE_V4}*"])
    assert "CAPOX_LEFT_BEHIND" not in os.environ
