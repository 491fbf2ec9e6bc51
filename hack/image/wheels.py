"""Wheels: fetched for the interpreter of the image, judged by the lock's digests, unpacked into one directory.

pip fetches, since it knows where this machine gets its packages; what it brings is judged here again. Only wheels are
taken, nothing is built and no code of a package runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from hack.image.errors import ImageError
from hack.image.layer import COMPRESSION_LEVEL, Entry, EntryKind, directories_above, write_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from hack.image.interpreter import Interpreter
    from hack.image.layer import Layer
    from hack.image.requirements import Pin

SITE: Final = "opt/capox"
"""The directory in the image that is put on PYTHONPATH. Not the interpreter's own, which is elsewhere in each image."""

_FETCH_SECONDS: Final = 900
_BUILD_SECONDS: Final = 300
_EXECUTABLE: Final = 0o111


def fetch(pins: Iterable[Pin], interpreter: Interpreter, directory: Path) -> None:
    """Download the wheels of these pins.

    Args:
        pins: which ones.
        interpreter: what they must run on.
        directory: where they go.

    Raises:
        ImageError: pip failed; with its words.
    """
    requirements = directory / "requirements.txt"
    requirements.write_text("\n".join(pin.line() for pin in pins) + "\n")
    version = f"{interpreter.version[0]}.{interpreter.version[1]}"
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    # The lock is complete; following what packages ask for would answer their markers for this machine.
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={requirements}"]
    command += [f"--dest={directory}", "--implementation=cp", f"--python-version={version}"]
    command += [f"--abi=cp{version.replace('.', '')}"]
    command += [f"--platform={platform}" for platform in interpreter.platforms()]
    _run(command, _FETCH_SECONDS, "pip could not download the wheels")


def build_own_wheel(repository: Path, directory: Path) -> Path:
    """Build the wheel of this tree.

    Args:
        repository: the tree's root.
        directory: where the wheel goes; an empty one.

    Raises:
        ImageError: the build failed; with its words.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    _run(command, _BUILD_SECONDS, "hatchling could not build capox's wheel", working_directory=repository)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _run(command: list[str], timeout_seconds: int, complaint: str, working_directory: Path | None = None) -> None:
    try:
        answer = subprocess.run(
            command,
            cwd=working_directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"{complaint}: no end after {timeout_seconds} s") from None
    if answer.returncode != 0:
        raise ImageError(f"{complaint}: {(answer.stderr.strip() or answer.stdout.strip())[-2000:]}")


def select(directory: Path, pins: Iterable[Pin], interpreter: Interpreter) -> list[Path]:
    """Choose a wheel for each pin: one that runs on the interpreter and whose digest is in the lock.

    Returns:
        The wheels, by the names of their packages.

    Raises:
        ImageError: there is none for a pin.
    """
    ranks = {tag: rank for rank, tag in enumerate(interpreter.tags())}
    offered: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    for path in sorted(directory.glob("*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise ImageError(f"{path}: {error}") from None
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            offered.setdefault((name, str(version)), []).append((rank, path))
    chosen = []
    for pin in pins:
        candidates = sorted(offered.get((pin.name, pin.version), []))
        genuine = [path for _, path in candidates if _sha256(path) in pin.digests]
        if not genuine:
            what = "has another digest than the lock" if candidates else "is not there"
            raise ImageError(
                f"{directory}: a wheel of {pin.name} {pin.version} for Python "
                f"{interpreter.version[0]}.{interpreter.version[1]} on glibc {interpreter.glibc[0]}."
                f"{interpreter.glibc[1]} {what}."
            )
        chosen.append(genuine[0])
    return chosen


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_site_layer(
    wheels: Iterable[Path],
    path: Path,
    created_by: str,
    *,
    mtime_seconds: int,
    leave_out: Callable[[str], bool] = lambda _: False,
    compression_level: int = COMPRESSION_LEVEL,
) -> Layer:
    """Write what wheels put into the site directory as a layer: directories first, then files by path.

    Scripts, headers and data files of a wheel are left out: nothing in the image is started but Python.

    Args:
        wheels: the wheels.
        path: the file to write.
        created_by: as in `Layer`.
        mtime_seconds: time of everything.
        leave_out: whether a path inside a wheel is not wanted.
        compression_level: as in `write_layer`.

    Raises:
        ImageError: a wheel is broken, or two of them bring different files of one name.
    """
    with contextlib.ExitStack() as stack:
        archives = [stack.enter_context(_opened(wheel)) for wheel in wheels]
        entries = _entries(archives, mtime_seconds, leave_out)
        return write_layer(entries, path, created_by, compression_level=compression_level)


def _opened(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as error:
        raise ImageError(f"{wheel}: this is no wheel: {error}") from error


def _entries(
    archives: Iterable[zipfile.ZipFile], mtime_seconds: int, leave_out: Callable[[str], bool]
) -> Iterator[Entry]:
    files: dict[str, tuple[zipfile.ZipFile, zipfile.ZipInfo]] = {}
    for archive in archives:
        for member in archive.infolist():
            inside = _place(archive, member.filename)
            if inside is None or member.is_dir() or leave_out(inside):
                continue
            first, known = files.setdefault(f"{SITE}/{inside}", (archive, member))
            if (known.CRC, known.file_size) != (member.CRC, member.file_size):
                raise ImageError(f"{first.filename} and {archive.filename} both bring {inside}, with different content")
    yield from directories_above(files, mtime_seconds)
    for path, (archive, member) in sorted(files.items()):
        yield Entry(
            path,
            EntryKind.FILE,
            0o755 if member.external_attr >> 16 & _EXECUTABLE else 0o644,
            mtime_seconds,
            size_bytes=member.file_size,
            open_content=functools.partial(archive.open, member),
        )


def _place(archive: zipfile.ZipFile, name: str) -> str | None:
    """Where a member of a wheel belongs below the site directory; None for what is not wanted there."""
    parts = name.rstrip("/").split("/")
    if "\\" in name or ".." in parts or "" in parts:
        raise ImageError(f"{archive.filename}: its member {name!r} points out of it")
    if not parts[0].endswith(".data"):
        return name
    return "/".join(parts[2:]) or None if parts[1:2] in (["purelib"], ["platlib"]) else None
