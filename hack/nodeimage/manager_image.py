"""capox's own image for node images: the one that cloud controller managers run, under a name that says what is in it.

Its tag follows from capox's sources, so that a machine with older ones has no image of the name that is asked for, and
says so, instead of running them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane.paths import REPOSITORY
from hack.image.__main__ import NAME
from hack.image.archive import parse_reference
from hack.image.build import Inputs, build_image, is_unwanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hack.controlplane.progress import Reporter

PYTHON_SCRIPT: Final = "python.sh"
"""Of image-builder/ccm: makes what the image stands on."""

_LOCK: Final = "requirements/runtime.lock"
_COMPRESSION_LEVEL: Final = 1
"""Quick: the archive goes no farther than to this computer's Docker."""
_EPOCH_SECONDS: Final = 1_767_225_600
"""The time of every file, so that the same sources are the same bytes."""
_KEPT: Final = 3
"""How many archives stay: each change of the sources makes another one."""


@dataclass(frozen=True)
class ManagerImage:
    """The image.

    Attributes:
        key: of all that goes into it.
        archive: its archive, made or not.
    """

    key: str
    archive: Path

    @property
    def reference(self) -> str:
        """Its name with a tag."""
        return f"{NAME}:dev-{self.key}"


def manager_image(python_id: str, cache: Path, repository: Path = REPOSITORY) -> ManagerImage:
    """What the image of this tree is.

    Args:
        python_id: what the root file system with Python is identified by.
        cache: where archives are kept.
        repository: the tree.
    """
    digest = hashlib.sha256(json.dumps([python_id, _COMPRESSION_LEVEL, _EPOCH_SECONDS]).encode())
    for path in _sources(repository):
        digest.update(f"{path.relative_to(repository)}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    key = digest.hexdigest()[:12]
    return ManagerImage(key, cache / "containers" / f"{NAME}-{key}.tar")


def ensure(image: ManagerImage, python: Path, reporter: Reporter, repository: Path = REPOSITORY) -> None:
    """Make the archive where it is not there, and remove those that are old.

    Args:
        image: what `manager_image` has said.
        python: the root file system with Python, in a tar.
        reporter: where progress goes.
        repository: the tree.

    Raises:
        ImageError: it cannot be made.
    """
    if not image.archive.exists():
        lock = repository / _LOCK
        wheels = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
        inputs = Inputs(
            archive=python,
            directory=None,
            lock=lock,
            wheels=None,
            own_wheel=None,
            repository=repository,
            references=[parse_reference(image.reference)],
            epoch_seconds=_EPOCH_SECONDS,
            kept_wheels=image.archive.parents[1] / f"wheels-{wheels}",
            compression_level=_COMPRESSION_LEVEL,
        )
        build_image(inputs, image.archive, reporter)
    archives = sorted(image.archive.parent.glob(f"{NAME}-*.tar"), key=lambda path: path.stat().st_mtime)
    for old in archives[:-_KEPT]:
        if old != image.archive:
            old.unlink()


def _sources(repository: Path) -> Iterator[Path]:
    """What decides about the image, in an order that is the same everywhere."""
    yield repository / "pyproject.toml"
    yield repository / _LOCK
    yield from sorted((repository / "hack" / "image").glob("*.py"))
    for path in sorted((repository / "capox").rglob("*")):
        inside = str(path.relative_to(repository))
        if path.is_file() and "__pycache__" not in path.parts and not is_unwanted(inside):
            yield path
