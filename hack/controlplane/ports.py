"""Ports on loopback that several control planes do not take from each other.

Asking the kernel for a free port and closing it again leaves a gap in which anybody else may get the same port, and the
programs of a control plane cannot be handed an open socket. So a port is *leased*: a file named after it is locked for
as long as the leaseholder lives. The range lies below the one from which Linux takes the ports of outgoing connections
(32768 and up), so no client of ours wanders into it. Strangers are noticed by a trial bind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FIRST_PORT: Final = 20000
LAST_PORT: Final = 29999


class NoPortError(Exception):
    """Fewer ports are free than were asked for."""


class PortLeases:
    """The ports that one process holds.

    Args:
        directory: where the lock files are; shared by everybody who must not collide. Made when it is missing.
        start: where in the range the search begins; a random place by default, so that holders who do not share a
            directory rarely meet.
        first: lowest port of the range.
        last: highest port of the range.
    """

    def __init__(
        self,
        directory: Path,
        *,
        start: int | None = None,
        first: int = FIRST_PORT,
        last: int = LAST_PORT,
    ) -> None:
        self._directory = directory
        self._first = first
        self._last = last
        # Not a secret: any port will do.
        self._next = start if start is not None else random.randint(first, last)  # noqa: S311
        self._descriptors: dict[int, int] = {}

    def lease(self, count: int) -> list[int]:
        """Take ports. They are held until `release` or the end of this process.

        Args:
            count: how many.

        Raises:
            NoPortError: the whole range was tried and fewer are free. Those found meanwhile are given back.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: list[int] = []
        for _ in range(self._last - self._first + 1):
            if len(found) == count:
                break
            port = self._next
            self._next = self._first + (port + 1 - self._first) % (self._last - self._first + 1)
            if self._take(port):
                found.append(port)
        if len(found) < count:
            for port in found:
                os.close(self._descriptors.pop(port))
            raise NoPortError(
                f"{count} free ports are needed on 127.0.0.1 between {self._first} and {self._last}, {len(found)} were "
                "found; stop what listens there (`python -m hack.controlplane down --all` stops our own)",
            )
        return found

    def release(self) -> None:
        """Give all ports back."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _take(self, port: int) -> bool:
        if port in self._descriptors:
            return False
        descriptor = os.open(self._directory / f"{port}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if not _is_free(port):
            os.close(descriptor)
            return False
        self._descriptors[port] = descriptor
        return True


def _is_free(port: int) -> bool:
    """Whether a server could listen there, on loopback as well as on every interface.

    SO_REUSEADDR as Go's servers set it: connections of an earlier server in TIME_WAIT are no hindrance.
    """
    for address in ("127.0.0.1", "0.0.0.0"):  # noqa: S104  a trial, nothing listens
        with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
            except OSError:
                return False
    return True
