"""Making the image: parent image, dependencies, capox, one after the other."""

from __future__ import annotations

import contextlib
import datetime
import tempfile
import zipfile
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hack.image import parent_image, wheels
from hack.image.archive import Reference, Written, write_archive
from hack.image.interpreter import SEARCH_PATH, Interpreter, find_interpreter
from hack.image.layer import COMPRESSION_LEVEL
from hack.image.requirements import parse_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hack.controlplane.progress import Reporter
    from hack.image.layer import Layer
    from hack.image.parent_image import ParentImage
    from hack.image.requirements import Pin

USER: Final = "65532:65532"
"""A user without a name, a home or a file; the one that distroless images call nonroot."""

ENVIRONMENT: Final = {
    # A user without a name has no home of its own, and libraries ask for one when they are imported.
    "HOME": "/",
    "PYTHONPATH": f"/{wheels.SITE}",
    # The working directory is not a place to import from.
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    # Large blocks, such as the buffers of TLS connections, go back to the system when they are freed: once glibc has
    # seen one freed it would keep the likes of it in its heap. One arena for the few threads there are. Measured with
    # 100 Nodes: 2 MB.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "1",
}
"""What the image adds to the environment of its parent."""


@dataclass(frozen=True)
class Inputs:
    """What an image is made of.

    Attributes:
        archive: the parent image or root file system in a tar; or
        directory: a root file system in a directory. Exactly one of the two.
        lock: the lock file.
        wheels: a directory with every wheel of the lock; None downloads them.
        own_wheel: capox's wheel; None builds it from the repository.
        repository: root of this tree.
        references: names of the image.
        epoch_seconds: the time that everything says it was made at.
        kept_wheels: a directory for the wheels that are downloaded, which are taken from there the next time.
        compression_level: 1, quick, to 9, small.
    """

    archive: Path | None
    directory: Path | None
    lock: Path
    wheels: Path | None
    own_wheel: Path | None
    repository: Path
    references: Sequence[Reference]
    epoch_seconds: int
    kept_wheels: Path | None = None
    compression_level: int = COMPRESSION_LEVEL


@dataclass(frozen=True)
class Built:
    """What came out.

    Attributes:
        written: digests and size of the archive.
        interpreter: the Python in it.
        parent_layers: layers of the parent image.
        dependencies: the layer of the packages that capox needs.
        own: capox's own layer.
    """

    written: Written
    interpreter: Interpreter
    parent_layers: Sequence[Layer]
    dependencies: Layer
    own: Layer


def build_image(inputs: Inputs, output: Path, reporter: Reporter) -> Built:
    """Make the image.

    Args:
        inputs: what it is made of.
        output: the archive to write; its directory is made when it is missing.
        reporter: where progress goes.

    Raises:
        ImageError: it cannot be made.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside the output: a layer may be larger than what /tmp holds.
    with tempfile.TemporaryDirectory(prefix=".image-", dir=output.parent) as temporary:
        scratch = Path(temporary)
        with reporter.stage("Reading the base image"):
            parent = _parent(inputs, _made(scratch / "parent"))
            interpreter = find_interpreter(parent.tree, parent.environment)
        pins = parse_lock(inputs.lock.read_text(), interpreter.marker_environment())
        directory = inputs.wheels or _fetched(inputs, pins, interpreter, scratch, reporter)
        with reporter.stage("Writing the layers"):
            chosen = wheels.select(directory, pins, interpreter)
            own_wheel = inputs.own_wheel or wheels.build_own_wheel(inputs.repository, _made(scratch / "own"))
            labels = _labels(own_wheel, inputs.epoch_seconds)
            dependencies = wheels.write_site_layer(
                chosen,
                scratch / "dependencies.tar.gz",
                f"packages of {inputs.lock.name}",
                mtime_seconds=inputs.epoch_seconds,
                compression_level=inputs.compression_level,
            )
            own = wheels.write_site_layer(
                [own_wheel],
                scratch / "capox.tar.gz",
                f"capox {labels['org.opencontainers.image.version']}",
                mtime_seconds=inputs.epoch_seconds,
                leave_out=is_unwanted,
                compression_level=inputs.compression_level,
            )
        with reporter.stage("Writing the archive"):
            written = write_archive(
                output,
                config=image_config(parent, [dependencies, own], interpreter, labels, inputs.epoch_seconds),
                layers=[*parent.layers, dependencies, own],
                references=inputs.references,
                annotations=labels,
                epoch_seconds=inputs.epoch_seconds,
            )
    return Built(written, interpreter, parent.layers, dependencies, own)


def image_config(
    parent: ParentImage, added: Sequence[Layer], interpreter: Interpreter, labels: dict[str, str], epoch_seconds: int
) -> dict[str, Any]:
    """The image's configuration: the parent's environment and history, and our command.

    Args:
        parent: the parent image.
        added: our layers on top of its.
        interpreter: the Python that is started.
        labels: labels of the image.
        epoch_seconds: when it says it was made.
    """
    created = _time(epoch_seconds)
    environment = {"PATH": SEARCH_PATH, **parent.environment, **ENVIRONMENT}
    history = list(parent.config.get("history") or [])
    if sum(not entry.get("empty_layer") for entry in history) != len(parent.layers):
        history = [{"created": created, "created_by": layer.created_by} for layer in parent.layers]
    history += [{"created": created, "created_by": layer.created_by} for layer in added]
    return {
        "architecture": parent_image.ARCHITECTURE,
        "os": parent_image.SYSTEM,
        "created": created,
        "config": {
            "User": USER,
            "WorkingDir": "/",
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Entrypoint": [interpreter.path, "-m", "capox"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in (*parent.layers, *added)]},
        "history": history,
    }


def _parent(inputs: Inputs, scratch: Path) -> ParentImage:
    if inputs.archive is not None:
        return parent_image.from_archive(inputs.archive, scratch, compression_level=inputs.compression_level)
    assert inputs.directory is not None
    return parent_image.from_directory(inputs.directory, scratch, epoch_seconds=inputs.epoch_seconds)


def _fetched(inputs: Inputs, pins: Sequence[Pin], interpreter: Interpreter, scratch: Path, reporter: Reporter) -> Path:
    """A directory with the wheels of the lock: what an earlier run has kept, or downloaded now."""
    kept = inputs.kept_wheels
    version = f"{interpreter.version[0]}.{interpreter.version[1]}"
    if kept is not None:
        kept = kept.with_name(f"{kept.name}-{version}")
        if kept.is_dir():
            return kept
    directory = _made(scratch / "wheels")
    with reporter.stage(f"Fetching {len(pins)} wheels for Python {version}"):
        wheels.fetch(pins, interpreter, directory)
    if kept is not None:
        # All of them or none: a directory that is there is complete. It is there when somebody else was quicker.
        with contextlib.suppress(OSError):
            return directory.rename(kept)
    return directory


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def is_unwanted(path: str) -> bool:
    """Whether a file of capox stays out: the rack is a program of its own, and the list of files would name it."""
    return path.startswith("capox/rack/") or path.endswith(".dist-info/RECORD")


def _labels(own_wheel: Path, epoch_seconds: int) -> dict[str, str]:
    with zipfile.ZipFile(own_wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name), headersonly=True)
    return {
        "org.opencontainers.image.created": _time(epoch_seconds),
        "org.opencontainers.image.title": "cluster-api-provider-oxide-controller",
        "org.opencontainers.image.description": str(metadata["Summary"] or ""),
        "org.opencontainers.image.version": str(metadata["Version"]),
        "org.opencontainers.image.licenses": str(metadata["License-Expression"] or ""),
    }


def _time(epoch_seconds: int) -> str:
    return datetime.datetime.fromtimestamp(epoch_seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
