"""Layers: tar files that depend on their content only, compressed, with the two digests that an image names them by."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from _typeshed import ReadableBuffer

MEDIA_TYPE: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
CHUNK_BYTES: Final = 1 << 20
COMPRESSION_LEVEL: Final = 6


class Readable(Protocol):
    """What is read here: files, members of archives and what decompresses them have no type in common."""

    def read(self, size: int = ..., /) -> bytes:
        """Read up to so many bytes; none at the end."""


class Writable(Protocol):
    """What is written to here."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        """Write all of it."""


class EntryKind(Enum):
    """What a tar entry is."""

    FILE = tarfile.REGTYPE
    DIRECTORY = tarfile.DIRTYPE
    SYMLINK = tarfile.SYMTYPE
    HARD_LINK = tarfile.LNKTYPE


@dataclass(frozen=True)
class Entry:
    """One entry of a layer.

    Attributes:
        path: where it goes, without a leading slash.
        kind: what it is.
        mode: permission bits.
        mtime_seconds: its time of modification, in whole seconds since 1970.
        uid: its owner.
        gid: its group.
        target: where a link points to.
        size_bytes: how long a file is.
        open_content: opens a file's content; needed for files only.
    """

    path: str
    kind: EntryKind
    mode: int
    mtime_seconds: int
    uid: int = 0
    gid: int = 0
    target: str = ""
    size_bytes: int = 0
    open_content: Callable[[], AbstractContextManager[Readable]] | None = None


@dataclass(frozen=True)
class Layer:
    """A compressed layer on disk.

    Attributes:
        path: the file.
        digest: `sha256:...` of the file.
        size_bytes: how long the file is.
        diff_id: `sha256:...` of the tar inside.
        created_by: what made it, for the image's history.
    """

    path: Path
    digest: str
    size_bytes: int
    diff_id: str
    created_by: str


class HashingWriter(io.RawIOBase):
    """Passes bytes on and keeps their digest and number.

    Args:
        target: where they go.

    Attributes:
        size_bytes: how many have passed.
    """

    def __init__(self, target: Writable) -> None:
        super().__init__()
        self._target = target
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """How many bytes have passed; tarfile asks."""
        return self.size_bytes

    def write(self, data: ReadableBuffer, /) -> int:
        """Write to the target."""
        length = memoryview(data).nbytes
        self._hash.update(data)
        self.size_bytes += length
        self._target.write(data)
        return length

    @property
    def digest(self) -> str:
        """`sha256:...` of what has passed so far."""
        return f"sha256:{self._hash.hexdigest()}"


def write_layer(
    entries: Iterable[Entry], path: Path, created_by: str, *, compression_level: int = COMPRESSION_LEVEL
) -> Layer:
    """Write entries, in their order, as a compressed layer.

    Args:
        entries: what goes in; the directories that hold a thing come before it.
        path: the file to write.
        created_by: as in `Layer`.
        compression_level: 1, quick, to 9, small.
    """
    with path.open("wb") as file:
        outside = HashingWriter(file)
        with _compressor(outside, compression_level) as compressor:
            inside = HashingWriter(compressor)
            with tarfile.open(fileobj=inside, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for entry in entries:
                    _add(tar, entry)
        return Layer(path, outside.digest, outside.size_bytes, inside.digest, created_by)


def compress_layer(tar: Readable, path: Path, created_by: str, *, compression_level: int = COMPRESSION_LEVEL) -> Layer:
    """Compress a tar as it is.

    Args:
        tar: the tar, at its beginning.
        path: the file to write.
        created_by: as in `Layer`.
        compression_level: as in `write_layer`.
    """
    with path.open("wb") as file:
        outside = HashingWriter(file)
        with _compressor(outside, compression_level) as compressor:
            inside = HashingWriter(compressor)
            while chunk := tar.read(CHUNK_BYTES):
                inside.write(chunk)
        return Layer(path, outside.digest, outside.size_bytes, inside.digest, created_by)


def directories_above(paths: Iterable[str], mtime_seconds: int) -> list[Entry]:
    """The directories that hold these paths, outermost first, as anybody may read them."""
    found = set()
    for path in paths:
        parts = path.split("/")[:-1]
        found |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return [Entry(directory, EntryKind.DIRECTORY, 0o755, mtime_seconds) for directory in sorted(found)]


def _compressor(target: HashingWriter, level: int) -> gzip.GzipFile:
    """A gzip file without a name and a time, which would tell when and where it was made."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=target, mtime=0)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.type = entry.kind.value
    info.mode = entry.mode
    info.mtime = entry.mtime_seconds
    info.uid, info.gid = entry.uid, entry.gid
    info.linkname = entry.target
    if entry.kind is not EntryKind.FILE:
        tar.addfile(info)
        return
    assert entry.open_content is not None
    info.size = entry.size_bytes
    with entry.open_content() as content:
        tar.addfile(info, content)
