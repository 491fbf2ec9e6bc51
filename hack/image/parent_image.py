"""Reading the image that ours is made on: a saved image, a root file system in a tar, or one in a directory."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from hack.image import root_directory
from hack.image.errors import ImageError
from hack.image.interpreter import is_of_interest
from hack.image.layer import CHUNK_BYTES, COMPRESSION_LEVEL, HashingWriter, Layer, compress_layer, write_layer
from hack.image.tree import FileTree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ARCHITECTURE: Final = "amd64"
SYSTEM: Final = "linux"
_INDEX_TYPES: Final = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)
_GZIP: Final = b"\x1f\x8b"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_INDEX_DEPTH_MAX: Final = 3
_SAVE: Final = "docker pull --platform linux/amd64 python:3.12-slim && docker save -o base.tar python:3.12-slim"


@dataclass(frozen=True)
class ParentImage:
    """An image for linux/amd64 whose layers are on disk, compressed.

    Attributes:
        layers: its layers, the lowest first.
        config: its OCI image configuration; that of a bare root file system says nothing but the platform.
        tree: its files, as `interpreter` wants them.
    """

    layers: tuple[Layer, ...]
    config: dict[str, Any]
    tree: FileTree

    @property
    def environment(self) -> dict[str, str]:
        """Its environment variables."""
        pairs = (self.config.get("config") or {}).get("Env") or []
        return dict(pair.split("=", 1) for pair in pairs)


def from_directory(directory: Path, scratch: Path, *, epoch_seconds: int) -> ParentImage:
    """Take a root file system from a directory, as one layer.

    Args:
        directory: its root.
        scratch: where the layer is kept; an empty directory.
        epoch_seconds: no file in the layer is younger.

    Raises:
        ImageError: it is no directory, or a file cannot be read.
    """
    if not directory.is_dir():
        raise ImageError(f"--base-dir {directory}: no directory is there. Give the root of a file system with Python.")
    entries = root_directory.entries(directory, epoch_seconds)
    layer = write_layer(entries, scratch / "root.tar.gz", "root file system of a directory")
    return ParentImage((layer,), _bare_config(), _tree([layer]))


def from_archive(path: Path, scratch: Path, *, compression_level: int = COMPRESSION_LEVEL) -> ParentImage:
    """Read an archive: an OCI image layout, what `docker save` writes, or a root file system.

    Args:
        path: the archive, possibly compressed with gzip.
        scratch: where its layers are kept; an empty directory.
        compression_level: of a root file system: 1, quick, to 9, small.

    Raises:
        ImageError: it is none of these, is not for linux/amd64, or is damaged.
    """
    if not path.is_file():
        raise ImageError(f"--base {path}: no file is there. With Docker, this makes one: {_SAVE}")
    try:
        with tarfile.open(path) as tar:
            archive = _Archive(tar, path)
            if archive.has("index.json"):
                config, blobs = archive.image_of_index()
            elif archive.has("manifest.json"):
                config, blobs = archive.image_of_manifest_list()
            else:
                return _from_root_archive(path, scratch, compression_level)
            _require_platform(path, config)
            return _with_layers(archive, config, blobs, scratch)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise ImageError(f"--base {path}: this is no complete tar archive: {error}") from error


class _Archive:
    """A saved image."""

    def __init__(self, tar: tarfile.TarFile, path: Path) -> None:
        self._tar = tar
        self._members = {member.name.removeprefix("./"): member for member in tar}
        self.path = path

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        file = self._tar.extractfile(self._members[name]) if name in self._members else None
        if file is None:
            raise ImageError(f"--base {self.path}: {name} is missing in it; save the image again: {_SAVE}")
        return file

    def read(self, name: str) -> Any:
        with self.open(name) as file:
            return json.load(file)

    def image_of_index(self) -> tuple[dict[str, Any], list[str]]:
        """Configuration and names of the layers, by the OCI image layout."""
        manifests = {digest: self.read(_blob(digest)) for digest in self._manifests(self.read("index.json"), 0)}
        found = []
        for manifest in manifests.values():
            config = self.read(_blob(manifest["config"]["digest"]))
            if (config.get("os"), config.get("architecture")) == (SYSTEM, ARCHITECTURE) or len(manifests) == 1:
                found.append((config, [_blob(layer["digest"]) for layer in manifest["layers"]]))
        return self._only(found)

    def _manifests(self, index: dict[str, Any], depth: int) -> list[str]:
        """Digests of the images' manifests below an index. Attestations and what was not saved are passed over."""
        found: list[str] = []
        for descriptor in index.get("manifests") or []:
            platform = descriptor.get("platform") or {}
            if platform.get("os") == "unknown" or not self.has(_blob(descriptor["digest"])):
                continue
            if descriptor.get("mediaType") not in _INDEX_TYPES:
                found.append(descriptor["digest"])
            elif depth < _INDEX_DEPTH_MAX:
                found += self._manifests(self.read(_blob(descriptor["digest"])), depth + 1)
        return found

    def image_of_manifest_list(self) -> tuple[dict[str, Any], list[str]]:
        """Configuration and names of the layers, as older versions of `docker save` write them."""
        return self._only([(self.read(entry["Config"]), entry["Layers"]) for entry in self.read("manifest.json")])

    def _only(self, images: list[tuple[dict[str, Any], list[str]]]) -> tuple[dict[str, Any], list[str]]:
        if len(images) != 1:
            raise ImageError(
                f"--base {self.path}: it holds {len(images)} images for linux/amd64, one is needed. Save one: {_SAVE}"
            )
        return images[0]


def _blob(digest: str) -> str:
    algorithm, _, encoded = digest.partition(":")
    return f"blobs/{algorithm}/{encoded}"


def _require_platform(path: Path, config: dict[str, Any]) -> None:
    platform = f"{config.get('os')}/{config.get('architecture')}"
    if platform != f"{SYSTEM}/{ARCHITECTURE}":
        raise ImageError(f"--base {path}: it is for {platform}, {SYSTEM}/{ARCHITECTURE} is needed: {_SAVE}")


def _with_layers(archive: _Archive, config: dict[str, Any], blobs: list[str], scratch: Path) -> ParentImage:
    diff_ids = config["rootfs"]["diff_ids"]
    made_by = [
        str(entry.get("created_by", "")) for entry in config.get("history") or [] if not entry.get("empty_layer")
    ]
    if len(made_by) != len(blobs):
        made_by = [""] * len(blobs)
    layers = []
    for number, (blob, diff_id) in enumerate(zip(blobs, diff_ids, strict=True)):
        layer = _keep(archive, blob, scratch / f"{number}.tar.gz", made_by[number])
        if layer.diff_id != diff_id:
            raise ImageError(
                f"--base {archive.path}: layer {blob} is damaged: its digest is {layer.diff_id}, the image says "
                f"{diff_id}. Save the image again."
            )
        layers.append(layer)
    return ParentImage(tuple(layers), config, _tree(layers))


def _keep(archive: _Archive, blob: str, path: Path, created_by: str) -> Layer:
    """Keep a layer: as it is when it is compressed, else compressed."""
    with archive.open(blob) as file:
        beginning = file.read(4)
    with archive.open(blob) as file:
        if beginning == _ZSTANDARD:
            raise ImageError(
                f"--base {archive.path}: layer {blob} is compressed with zstd; gzip or none is needed. Save the image "
                "in Docker's form, for example with: skopeo copy oci-archive:OLD.tar docker-archive:NEW.tar"
            )
        if not beginning.startswith(_GZIP):
            return compress_layer(file, path, created_by)
        with path.open("wb") as target:
            kept = HashingWriter(target)
            while chunk := file.read(CHUNK_BYTES):
                kept.write(chunk)
    return Layer(path, kept.digest, kept.size_bytes, _diff_id(path), created_by)


def _diff_id(path: Path) -> str:
    digest = hashlib.sha256()
    with gzip.open(path) as plain:
        while chunk := plain.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _from_root_archive(path: Path, scratch: Path, compression_level: int) -> ParentImage:
    with path.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    with gzip.open(path) if is_compressed else path.open("rb") as plain:
        layer = compress_layer(
            plain, scratch / "root.tar.gz", "root file system of an archive", compression_level=compression_level
        )
    return ParentImage((layer,), _bare_config(), _tree([layer]))


def _bare_config() -> dict[str, Any]:
    return {"architecture": ARCHITECTURE, "os": SYSTEM, "config": {}}


def _tree(layers: Iterable[Layer]) -> FileTree:
    tree = FileTree(is_of_interest)
    for layer in layers:
        with tarfile.open(layer.path, mode="r|gz") as tar:
            tree.add_layer(tar)
    return tree
