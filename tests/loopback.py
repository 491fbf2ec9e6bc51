"""Keeps the tests of this process on this machine: each connection, datagram and look-up is judged before it happens.

An audit hook of the interpreter sees them all, whichever library asks. What is refused is also recorded, so that a test
fails even when the code under test swallowed the refusal. Processes that a test starts are not seen: give them loopback
addresses only.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any

_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_SENDS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


class OutsideLoopbackError(Exception):
    """A test tried to reach another machine. Not an OSError, which a client would retry as if it were bad weather."""


class LoopbackGuard:
    """Refuses what leaves this machine.

    Attributes:
        refused: What was refused since the list was last emptied, one sentence each.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []

    def install(self) -> None:
        """Start judging. An audit hook cannot be taken away, so this is done once a process."""
        sys.addaudithook(self.judge)

    def judge(self, event: str, args: tuple[Any, ...]) -> None:
        """Audit hook: raise for an event that leaves this machine.

        Raises:
            OutsideLoopbackError: The event is a connection, datagram or look-up beyond loopback and unix sockets.
        """
        outside = outside_loopback(event, args)
        if outside:
            self.refused.append(outside)
            raise OutsideLoopbackError(outside)


def outside_loopback(event: str, args: tuple[Any, ...]) -> str | None:
    """Say what an audit event would reach outside this machine; None when it stays here or is another kind of event."""
    if event in _LOOKUPS:
        name = _text(args[0])
        # A number needs no name server, and None and the empty string mean this machine.
        if not name or name == "localhost" or _is_number(name):
            return None
        return f"{event}: a test looked up the name {name!r}; only localhost and addresses may be"
    if event in _SENDS:
        sock, address = args
        if address is None or sock.family not in {socket.AF_INET, socket.AF_INET6} or _is_loopback(_text(address[0])):
            return None
        return f"{event}: a test wrote to {address!r}; only loopback and unix sockets may be"
    return None


def _text(host: str | bytes | bytearray | None) -> str:
    """The host as text, however it was given."""
    return bytes(host).decode() if isinstance(host, bytes | bytearray) else host or ""


def _is_number(host: str) -> bool:
    """Is it an address rather than a name?"""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    """Does a connection to it stay on this machine?"""
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
