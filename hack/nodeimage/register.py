"""What a rack is told of a node image: a small file beside it, and an entry for the rack's configuration.

The id follows from what the image holds: an image does not change under its id, on a real rack or here.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hack.controlplane.paths import cache_directory
from hack.nodeimage import debian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hack.nodeimage.build import Built

_NAMESPACE: Final = uuid.UUID("7b0a4f62-4d0c-4a52-9b53-51c3e2b4b7f1")
_FILES: Final = "node-*.json"
_MANAGER: Final = "cloud-controller-manager"
_GIBIBYTE: Final = 1 << 30


@dataclass(frozen=True)
class RegisteredImage:
    """A node image as a rack knows it.

    Attributes:
        id: the image's id in the rack.
        name: its name in the rack.
        description: what it is, for people.
        os: its operating system.
        version: the operating system's version.
        size_bytes: size of the image, whole gibibytes.
        kubernetes: the version of Kubernetes on it.
        reference: the name by which Docker knows it.
    """

    id: str
    name: str
    description: str
    os: str
    version: str
    size_bytes: int
    kubernetes: str
    reference: str

    def rack_entry(self) -> dict[str, Any]:
        """The entry of `images` in a rack's configuration."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "os": self.os,
            "version": self.version,
            "size": self.size_bytes,
            "guest": self.reference,
        }


def describe(built: Built) -> RegisteredImage:
    """What a rack is to be told of an image."""
    release = built.release
    return RegisteredImage(
        id=identity(release.name, built.key),
        name=release.name,
        description=f"Debian {debian.OS_VERSION}. {release.origin}",
        os=debian.OS,
        version=debian.OS_VERSION,
        size_bytes=rounded(built.size_bytes),
        kubernetes=release.version,
        reference=built.reference,
    )


def identity(name: str, key: str) -> str:
    """The id in a rack of the image with this name that holds what has this key."""
    return str(uuid.uuid5(_NAMESPACE, f"{name}/{key}"))


def rounded(size_bytes: int) -> int:
    """A size in whole gibibytes, as a rack has it."""
    return -(-size_bytes // _GIBIBYTE) * _GIBIBYTE


def directory(environ: Mapping[str, str]) -> Path:
    """Where the files are: `node-images` in our cache."""
    return cache_directory(environ) / "node-images"


def write(images: Sequence[RegisteredImage], manager: str, environ: Mapping[str, str]) -> None:
    """Note the images that were made together, and forget all others, whose upgrades lead elsewhere.

    Args:
        images: the images.
        manager: the name of capox's own image that is in all of them.
        environ: environment variables.
    """
    folder = directory(environ)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {_file(folder, image.name): json.dumps(asdict(image), indent=2) for image in images}
    for path, text in (texts | {folder / _MANAGER: manager}).items():
        partial = path.with_suffix(".partial")
        partial.write_text(f"{text}\n")
        partial.rename(path)
    for path in set(folder.glob(_FILES)) - texts.keys():
        path.unlink()


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def registered(environ: Mapping[str, str]) -> list[RegisteredImage]:
    """The images that the last `make node-image` has made, by name: the earlier version first."""
    paths = sorted(directory(environ).glob(_FILES))
    return [RegisteredImage(**json.loads(path.read_text())) for path in paths]


def manager(environ: Mapping[str, str]) -> str:
    """The name of capox's own image that these images hold, for `capox provider --ccm-image`; empty for none."""
    path = directory(environ) / _MANAGER
    return path.read_text().strip() if path.exists() else ""
