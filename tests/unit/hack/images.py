"""Small stand-ins for what an image is made of: root file systems, saved images, wheels, a lock.

A file system here is a mapping from paths to content: bytes are a file, a string is where a symbolic link leads, None
is a directory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Files = Mapping[str, bytes | str | None]

LIBC = b"\x7fELF" + bytes(14) + b"\x3e\x00" + b"..GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n"
ROOT: Files = {
    "etc/ssl/certs/ca-certificates.crt": b"certificates",
    "lib": "usr/lib",
    "usr/lib/x86_64-linux-gnu/libc.so.6": LIBC,
    "usr/local/bin/python3": "python3.12",
    "usr/local/bin/python3.12": b"an interpreter",
    "usr/local/lib/python3.12/asyncio/__init__.py": b"",
    "usr/local/lib/python3.12/json/__init__.py": b"",
    "usr/local/lib/python3.12/ssl.py": b"",
}
"""A root file system as that of the official Python images, as far as anybody looks."""

ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "PYTHONPATH=/elsewhere"]


def tar_of(files: Files) -> bytes:
    """A tar of a file system, in the order of the mapping."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(f"./{path}")
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


def write_directory(directory: Path, files: Files) -> Path:
    """Lay a file system out in a directory."""
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            target.mkdir(exist_ok=True)
        elif isinstance(content, str):
            target.symlink_to(content)
        else:
            target.write_bytes(content)
    return directory


def config(layers: list[bytes], architecture: str = "amd64") -> dict[str, Any]:
    """The configuration of an image with these (uncompressed) layers."""
    return {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ENVIRONMENT, "Cmd": ["python3"], "Labels": {"maintainer": "somebody"}},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        "history": [{"created_by": "ENV", "empty_layer": True}] + [{"created_by": "COPY"} for _ in layers],
    }


def digest(content: bytes) -> str:
    """`sha256:...` of it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_docker_archive(path: Path, layers: list[bytes], **changed: Any) -> Path:
    """What older versions of `docker save` write: layers as plain tars.

    Args:
        path: the file.
        layers: uncompressed tars.
        **changed: fields of the configuration to change.
    """
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    files: dict[str, bytes] = dict(zip(names, layers, strict=True))
    files["config.json"] = json.dumps({**config(layers), **changed}).encode()
    files["manifest.json"] = json.dumps([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": names}]).encode()
    path.write_bytes(tar_of(files))
    return path


def write_oci_archive(path: Path, layers: list[bytes], *architectures: str) -> Path:
    """An OCI image layout: layers compressed, an index in the index, one image an architecture, and an attestation."""
    blobs: dict[str, bytes] = {}

    def descriptor(media_type: str, content: bytes, **further: Any) -> dict[str, Any]:
        blobs[f"blobs/{digest(content).replace(':', '/')}"] = content
        kind = f"application/vnd.oci.image.{media_type}"
        return {"mediaType": kind, "digest": digest(content), "size": len(content), **further}

    manifests = []
    for architecture in architectures:
        manifest = {
            "config": descriptor("config.v1+json", json.dumps(config(layers, architecture)).encode()),
            "layers": [descriptor("layer.v1.tar+gzip", gzip.compress(layer, mtime=0)) for layer in layers],
        }
        platform = {"os": "linux", "architecture": architecture}
        manifests.append(descriptor("manifest.v1+json", json.dumps(manifest).encode(), platform=platform))
    unknown = {"os": "unknown", "architecture": "unknown"}
    manifests.append(descriptor("manifest.v1+json", b'{"layers": []}', platform=unknown))
    inner = json.dumps({"manifests": manifests}).encode()
    index = {"manifests": [descriptor("index.v1+json", inner)]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    path.write_bytes(tar_of(files))
    return path


def write_wheel(directory: Path, name: str, files: Mapping[str, bytes], *, tag: str = "py3-none-any") -> Path:
    """Write a wheel of version 1.0.

    Args:
        directory: where.
        name: name of the package.
        files: what is in it, beside its metadata.
        tag: what it runs on.
    """
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-1.0-{tag}.whl"
    metadata = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nSummary: A summary\nLicense-Expression: Apache-2.0\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        for inside, content in files.items():
            info = zipfile.ZipInfo(inside)
            info.external_attr = (0o100755 if inside.endswith(".so") else 0o100600) << 16
            archive.writestr(info, content)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


def lock_of(*wheels: Path) -> str:
    """A lock that pins wheels that `write_wheel` wrote."""
    lines = []
    for wheel in wheels:
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{wheel.name.split('-')[0]}==1.0 \\\n    --hash=sha256:{sha256}\n    # via capox\n")
    return "".join(lines)
