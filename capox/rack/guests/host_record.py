"""What the racks of one computer keep together about its settings: who uses them, and what they were before.

The settings concern the whole computer and racks overlap, so no rack can put back what it found: it may have found what
another one has set. The first value that was seen is kept in one file until the last rack has put it back. A user is a
process; one that was killed counts no longer, and what it left to do is done by the next who is last.

What a person has set meanwhile is not undone. It is known by being neither what was there before nor what a rack or a
guest writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Self

import pydantic

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LOCK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
# Of a process that has ended and whose parent has not asked about it yet.
_ENDED: Final = frozenset({"X", "Z"})


class RecordError(Exception):
    """The record cannot be kept; the message says why and what to do."""


class User(pydantic.BaseModel):
    """A process that uses the settings.

    Attributes:
        pid: its id, which another process can get later.
        started: when it was started, in the kernel's ticks, which no other one with its id has.
    """

    model_config = pydantic.ConfigDict(frozen=True)

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process of this id; None when it has ended."""
        try:
            # The command in parentheses may hold anything; the state follows it, and 19 fields later the start.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in _ENDED else cls(pid=pid, started=int(fields[19]))

    @property
    def is_alive(self) -> bool:
        """Whether it is still the process that it was."""
        return self.of(self.pid) == self


class HostRecord(pydantic.BaseModel):
    """The record.

    Attributes:
        boot: the boot of the computer for which it holds; afterwards all settings are others.
        users: who uses the settings.
        before: what each setting was, by name.
        written: what racks and guests set each setting to, by name.
    """

    boot: str
    users: tuple[User, ...] = ()
    before: dict[str, str] = {}
    written: dict[str, tuple[str, ...]] = {}

    def joined(self, user: User, found: Mapping[str, str], written: Mapping[str, str]) -> HostRecord:
        """The record with one user more.

        Args:
            user: who.
            found: what the settings are.
            written: what the user or its guests are going to set some of them to.
        """
        before = dict(self.before)
        for name, value in found.items():
            if name not in before or not self._is_of_racks(name, value):
                before[name] = value
        all_written = dict(self.written)
        for name, value in written.items():
            all_written[name] = tuple(dict.fromkeys((*all_written.get(name, ()), value)))
        users = (*(each for each in self.users if each.is_alive and each != user), user)
        return HostRecord(boot=self.boot, users=users, before=before, written=all_written)

    def left(self, user: User | None) -> HostRecord:
        """The record without a user, and without those that have ended."""
        users = tuple(each for each in self.users if each.is_alive and each != user)
        return self.model_copy(update={"users": users})

    def to_put_back(self, found: Mapping[str, str]) -> dict[str, str]:
        """What to set, and to which value, when the settings are as found."""
        return {
            name: value
            for name, value in self.before.items()
            if name in found and found[name] != value and self._is_of_racks(name, found[name])
        }

    def to_leave(self, found: Mapping[str, str]) -> dict[str, str]:
        """The settings, as found, that somebody else has changed."""
        return {name: value for name, value in found.items() if not self._is_of_racks(name, value)}

    def _is_of_racks(self, name: str, value: str) -> bool:
        return value == self.before.get(name) or value in self.written.get(name, ())


class HostRecordFile:
    """Where the record is kept.

    Args:
        directory: the same for all racks of the computer.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "host-settings.json"

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep all other racks from reading and writing it, and the settings.

        Raises:
            RecordError: it cannot be written here, or another rack does not let go of it.
        """
        lock = self._directory / "host-settings.lock"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RecordError(f"{lock} cannot be written: {error.strerror}; racks with guests share it") from None
        # The kernel lets go of it however the process ends.
        with os.fdopen(descriptor) as held:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _is_locked(held.fileno()):
                if time.monotonic() > deadline:
                    raise RecordError(f"{lock}: another rack has held it for {_LOCK_SECONDS:.0f} s; is it stopped?")
                await asyncio.sleep(_POLL_SECONDS)
            yield

    def read(self) -> HostRecord:
        """The record; an empty one when there is none of this boot.

        Raises:
            RecordError: the file holds something else.
        """
        boot = _BOOT_ID.read_text().strip()
        try:
            found = HostRecord.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return HostRecord(boot=boot)
        except ValueError:
            raise RecordError(f"{self._path} is not what a rack wrote; remove it when no rack has guests") from None
        return found if found.boot == boot else HostRecord(boot=boot)

    def write(self, record: HostRecord) -> None:
        """Keep the record. It is written beside and renamed, so that it is there as a whole or not at all."""
        draft = self._path.with_name(f".{self._path.name}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(record.model_dump_json())
        draft.replace(self._path)

    def remove(self) -> None:
        """Forget the record."""
        self._path.unlink(missing_ok=True)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
