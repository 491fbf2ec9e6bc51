"""Container images as archives: one layer with the program, for some of them on a layer with the firewall tools.

An archive is made once for what determines it: its names, the program, the floor below it and this format.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hack.image.archive import Reference, parse_reference, write_archive
from hack.image.layer import Entry, EntryKind, Layer, compress_layer, directories_above, write_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hack.nodeimage.releases import ContainerImage

_FORMAT: Final = 1
"""To be raised when this module makes something else of the same inputs."""
_COMPRESSION_LEVEL: Final = 1
"""Quick: the archives go no farther than to this computer's Docker."""
_EPOCH_SECONDS: Final = 1_767_225_600
"""The time of every file: the build date that the programs themselves report."""
_CREATED: Final = "2026-01-01T00:00:00Z"
_SEARCH_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Archives:
    """The archives in the cache.

    Args:
        directory: where they are.
        firewall: the root file system with the firewall tools, in a tar.
        firewall_id: what the content of that tar is identified by.
    """

    def __init__(self, directory: Path, firewall: Path, firewall_id: str) -> None:
        self._directory = directory
        self._firewall = firewall
        self._firewall_id = firewall_id

    def path_of(self, image: ContainerImage, binary: Path) -> Path:
        """Where the archive of an image is, made or not."""
        status = binary.stat()
        parts = [_FORMAT, image.references, image.path, image.has_entrypoint]
        # Hashing 700 MB at each look would cost more than all the rest.
        parts += [str(binary), status.st_size, status.st_mtime_ns]
        if image.on_firewall:
            parts.append(self._firewall_id)
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        return self._directory / f"{image.program.name}-{image.program.version}-{key}.tar"

    def ensure(self, image: ContainerImage, binary: Path) -> Path:
        """The archive of an image, from the cache or made now.

        Args:
            image: which one.
            binary: its program.
        """
        path = self.path_of(image, binary)
        if path.exists():
            return path
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".image-", dir=self._directory) as temporary:
            scratch = Path(temporary)
            layers = [self._floor(scratch / "firewall.tar.gz")] if image.on_firewall else []
            layers.append(_program_layer(image, binary, scratch / "program.tar.gz"))
            write_archive(
                path,
                config=image_config(image, layers),
                layers=layers,
                references=references_of(image),
                annotations={},
                epoch_seconds=_EPOCH_SECONDS,
            )
        return path

    def _floor(self, path: Path) -> Layer:
        with self._firewall.open("rb") as tar:
            return compress_layer(tar, path, "Debian's firewall programs", compression_level=_COMPRESSION_LEVEL)


def references_of(image: ContainerImage) -> list[Reference]:
    """Its names."""
    return [parse_reference(reference) for reference in image.references]


def image_config(image: ContainerImage, layers: Sequence[Layer]) -> dict[str, Any]:
    """The image's configuration. It says of which version the program is, whatever version the tag is kubeadm's."""
    config: dict[str, Any] = {
        "Env": [_SEARCH_PATH],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": image.program.name,
            "org.opencontainers.image.version": image.program.version,
            "org.opencontainers.image.description": "Built from Go modules for a node image.",
        },
    }
    if image.has_entrypoint:
        config["Entrypoint"] = [f"/{image.path}"]
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": _CREATED, "created_by": layer.created_by} for layer in layers],
    }


def _program_layer(image: ContainerImage, binary: Path, path: Path) -> Layer:
    above = directories_above([image.path, "etc/.", "var/."], _EPOCH_SECONDS)
    above.append(Entry("tmp", EntryKind.DIRECTORY, 0o1777, _EPOCH_SECONDS))
    size = binary.stat().st_size
    program = Entry(
        image.path, EntryKind.FILE, 0o755, _EPOCH_SECONDS, size_bytes=size, open_content=lambda: binary.open("rb")
    )
    created_by = f"{image.program.name} {image.program.version}"
    return write_layer([*above, program], path, created_by, compression_level=_COMPRESSION_LEVEL)
