"""Writing the image: one tar that is an OCI image layout and a Docker archive at once."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hack.image.errors import ImageError
from hack.image.layer import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hack.image.layer import Layer

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"

_DEFAULT_HOST: Final = "docker.io"
_REFERENCE: Final = re.compile(
    r"(?P<name>(?:[\w.-]+(?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*):(?P<tag>\w[\w.-]{0,127})"
)


@dataclass(frozen=True)
class Reference:
    """A name and a tag.

    Attributes:
        name: the name as it was given, possibly with a registry in front.
        tag: the tag.
    """

    name: str
    tag: str

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def full(self) -> str:
        """The reference as container runtimes store it: with a registry, Docker's when none was given."""
        first, slash, _ = self.name.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return str(self)
        return f"{_DEFAULT_HOST}/{self}" if slash else f"{_DEFAULT_HOST}/library/{self}"


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        manifest_digest: `sha256:...` of the image's manifest, by which a registry will know it.
        config_digest: `sha256:...` of its configuration, Docker's image id.
        size_bytes: size of the archive.
    """

    manifest_digest: str
    config_digest: str
    size_bytes: int


def parse_reference(text: str) -> Reference:
    """Read a name and a tag, such as `registry.example.com/team/name:v1`.

    Raises:
        ImageError: it is none.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ImageError(
            f"--tag {text}: a name of lower-case letters, digits and .-_ with a tag is expected, "
            "such as registry.example.com/cluster-api-provider-oxide-controller:v0.1.0"
        )
    return Reference(match["name"], match["tag"])


def write_archive(
    path: Path,
    *,
    config: dict[str, Any],
    layers: Sequence[Layer],
    references: Sequence[Reference],
    annotations: dict[str, str],
    epoch_seconds: int,
) -> Written:
    """Write an image. The file is there completely or not at all.

    Args:
        path: the file.
        config: the OCI image configuration.
        layers: the layers, the lowest first.
        references: the names that it is given when it is loaded.
        annotations: annotations of the manifest.
        epoch_seconds: time of every entry.
    """
    config_text = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, _digest(config_text), len(config_text)),
        "layers": [_descriptor(MEDIA_TYPE, layer.digest, layer.size_bytes) for layer in layers],
        "annotations": annotations,
    }
    manifest_text = _json(manifest)
    blobs: dict[str, bytes | Path] = {_digest(text): text for text in (config_text, manifest_text)}
    blobs |= {layer.digest: layer.path for layer in layers}
    described = _descriptor(MANIFEST_TYPE, _digest(manifest_text), len(manifest_text))
    described["platform"] = {"architecture": config["architecture"], "os": config["os"]}
    named = [{**described, "annotations": _names(reference)} for reference in references]
    docker = {
        "Config": _blob(_digest(config_text)),
        "RepoTags": [str(reference) for reference in references],
        "Layers": [_blob(layer.digest) for layer in layers],
    }
    texts = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": named}),
        "manifest.json": _json([docker]),
    }
    partial = path.with_name(f"{path.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("blobs", "blobs/sha256"):
            tar.addfile(_entry(name, 0, epoch_seconds, is_directory=True))
        for digest in sorted(blobs):
            content = blobs[digest]
            if isinstance(content, bytes):
                tar.addfile(_entry(_blob(digest), len(content), epoch_seconds), io.BytesIO(content))
                continue
            with content.open("rb") as file:
                tar.addfile(_entry(_blob(digest), content.stat().st_size, epoch_seconds), file)
        for name, text in sorted(texts.items()):
            tar.addfile(_entry(name, len(text), epoch_seconds), io.BytesIO(text))
    partial.rename(path)
    return Written(_digest(manifest_text), _digest(config_text), path.stat().st_size)


def _names(reference: Reference) -> dict[str, str]:
    return {"io.containerd.image.name": reference.full, "org.opencontainers.image.ref.name": reference.tag}


def _descriptor(media_type: str, digest: str, size_bytes: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size_bytes}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _entry(name: str, size_bytes: int, epoch_seconds: int, *, is_directory: bool = False) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE if is_directory else tarfile.REGTYPE
    info.mode = 0o755 if is_directory else 0o644
    info.size = size_bytes
    info.mtime = epoch_seconds
    return info
