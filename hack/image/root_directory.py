"""A root file system in a directory, such as debootstrap makes, as the entries of a layer."""

from __future__ import annotations

import functools
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

from hack.image.errors import ImageError
from hack.image.layer import Entry, EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EMPTIED: Final = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "var/cache/apt", "var/lib/apt/lists", "var/log")
"""Directories that go in empty: a container gets its own, and what a package manager has fetched is of no use there."""


def entries(directory: Path, epoch_seconds: int) -> Iterator[Entry]:
    """What is in the directory, by path. Whoever owns the directory is root in the layer; other owners stay.

    Devices, sockets and pipes are left out, and so is what is mounted inside.

    Args:
        directory: the root.
        epoch_seconds: no entry is younger.

    Raises:
        ImageError: something cannot be read.
    """
    root = directory.stat()
    first_names: dict[int, str] = {}
    for path in _walk(directory, "", root.st_dev):
        status = (directory / path).lstat()
        entry = functools.partial(
            Entry,
            path,
            mode=stat.S_IMODE(status.st_mode),
            mtime_seconds=min(int(status.st_mtime), epoch_seconds),
            uid=0 if status.st_uid == root.st_uid else status.st_uid,
            gid=0 if status.st_gid == root.st_gid else status.st_gid,
        )
        if stat.S_ISDIR(status.st_mode):
            yield entry(kind=EntryKind.DIRECTORY)
        elif stat.S_ISLNK(status.st_mode):
            yield entry(kind=EntryKind.SYMLINK, target=os.readlink(directory / path))  # noqa: PTH115  Path would tidy up the target
        elif stat.S_ISREG(status.st_mode):
            first = first_names.setdefault(status.st_ino, path) if status.st_nlink > 1 else path
            if first != path:
                yield entry(kind=EntryKind.HARD_LINK, target=first)
            else:
                opener = functools.partial(_open, directory / path)
                yield entry(kind=EntryKind.FILE, size_bytes=status.st_size, open_content=opener)


def _walk(directory: Path, inside: str, device: int) -> Iterator[str]:
    """Paths below a directory, each directory before what it holds, in an order that is the same everywhere."""
    try:
        names = sorted(os.listdir(directory / inside))  # noqa: PTH208  names are all that is wanted
    except OSError as error:
        raise ImageError(f"--base-dir {directory}: {error}. Build as a user who may read all of it.") from error
    for name in names:
        path = f"{inside}/{name}" if inside else name
        yield path
        status = (directory / path).lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_dev == device and path not in EMPTIED:
            yield from _walk(directory, path, device)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise ImageError(f"--base-dir: {path} cannot be read: {error}. Build as a user who may.") from error
