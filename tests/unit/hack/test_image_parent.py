"""Base images are taken in every form that people have them in, and refused with a way out otherwise."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from pathlib import Path

import pytest

from hack.image import parent_image
from hack.image.errors import ImageError
from tests.unit.hack.images import ROOT, digest, tar_of, write_directory, write_docker_archive, write_oci_archive

LOWER = tar_of(ROOT)
UPPER = tar_of({"usr/local/bin/pip": b"", "etc/.wh.hostname": b""})


def read(path: Path) -> parent_image.ParentImage:
    """Read an archive, with a scratch directory beside it."""
    scratch = path.with_suffix(".scratch")
    scratch.mkdir()
    return parent_image.from_archive(path, scratch)


@pytest.mark.parametrize("form", ["docker", "oci"])
def test_a_saved_image(tmp_path: Path, form: str) -> None:
    """Layers, environment and history arrive, whether an old Docker, a new one or skopeo saved it."""
    path = tmp_path / "base.tar"
    if form == "docker":
        write_docker_archive(path, [LOWER, UPPER])
    else:
        write_oci_archive(path, [LOWER, UPPER], "arm64", "amd64")

    parent = read(path)

    assert [layer.diff_id for layer in parent.layers] == [digest(LOWER), digest(UPPER)]
    assert [digest(layer.path.read_bytes()) for layer in parent.layers] == [layer.digest for layer in parent.layers]
    assert [gzip.decompress(layer.path.read_bytes()) for layer in parent.layers] == [LOWER, UPPER]
    assert parent.environment["LANG"] == "C.UTF-8"
    assert parent.tree.resolve("usr/local/bin/python3") == "usr/local/bin/python3.12"
    assert parent.tree.exists("usr/local/bin/pip")


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_root_file_system_in_a_tar(tmp_path: Path, is_compressed: bool) -> None:
    """What `docker export` and mmdebstrap write is one layer of an image that says nothing."""
    path = tmp_path / "root.tar"
    path.write_bytes(gzip.compress(LOWER) if is_compressed else LOWER)

    parent = read(path)

    assert [layer.diff_id for layer in parent.layers] == [digest(LOWER)]
    assert parent.environment == {}
    assert parent.tree.exists("usr/local/bin/python3")


def test_a_root_file_system_in_a_directory(tmp_path: Path) -> None:
    """It goes in as it is, but for what only the machine that made it has: owner, times, caches, devices."""
    root = write_directory(
        tmp_path / "root", {**ROOT, "tmp/junk": b"", "var/cache/apt/archives/a.deb": b"", "dev": None}
    )
    (root / "usr/second").hardlink_to(root / "usr/local/bin/python3.12")
    (root / "usr/local/bin/python3.12").chmod(0o755)
    os.mkfifo(root / "usr/pipe")
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    parent = parent_image.from_directory(root, scratch, epoch_seconds=1000)

    (layer,) = parent.layers
    with tarfile.open(layer.path) as tar:
        members = {member.name: member for member in tar}
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 1000)}
    assert members["usr/local/bin/python3"].linkname == "python3.12"
    assert members["usr/local/bin/python3.12"].mode == 0o755
    assert members["usr/second"].islnk()
    assert members["usr/second"].linkname == "usr/local/bin/python3.12"
    assert members["tmp"].isdir()
    assert not {"tmp/junk", "usr/pipe", "var/cache/apt/archives"} & set(members)
    assert list(members) == sorted(members, key=lambda name: name.split("/"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The message has the commands that make one."""
    with pytest.raises(ImageError, match=r"no file is there.*docker save -o base.tar"):
        parent_image.from_archive(tmp_path / "base.tar", tmp_path)
    with pytest.raises(ImageError, match="no directory is there"):
        parent_image.from_directory(tmp_path / "root", tmp_path, epoch_seconds=0)


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    """A file that is no tar, or only the beginning of one, is called that."""
    noise, half = tmp_path / "noise.tar", tmp_path / "half.tar"
    noise.write_bytes(b"not a tar" * 100)
    half.write_bytes(write_docker_archive(tmp_path / "whole.tar", [LOWER]).read_bytes()[:3000])

    for path in (noise, half):
        with pytest.raises(ImageError, match="no complete tar archive"):
            read(path)


def test_an_image_for_another_platform(tmp_path: Path) -> None:
    """Its platform is named, and how to get the right one."""
    with pytest.raises(ImageError, match=r"for linux/arm64, linux/amd64 is needed.*--platform linux/amd64"):
        read(write_oci_archive(tmp_path / "base.tar", [LOWER], "arm64"))


def test_an_archive_of_several_images(tmp_path: Path) -> None:
    """Which one is meant is not guessed."""
    path = tmp_path / "base.tar"
    both = [{"Config": f"{name}.json", "RepoTags": [f"{name}:v1"], "Layers": []} for name in ("one", "two")]
    path.write_bytes(tar_of({"manifest.json": json.dumps(both).encode(), "one.json": b"{}", "two.json": b"{}"}))

    with pytest.raises(ImageError, match="holds 2 images for linux/amd64"):
        read(path)


def test_a_layer_that_is_not_what_the_image_says(tmp_path: Path) -> None:
    """A damaged layer does not become part of ours."""
    wrong = {"type": "layers", "diff_ids": [digest(UPPER)]}
    with pytest.raises(ImageError, match="is damaged"):
        read(write_docker_archive(tmp_path / "base.tar", [LOWER], rootfs=wrong))


def test_a_layer_that_cannot_be_decompressed(tmp_path: Path) -> None:
    """The compression is named, with the way around it."""
    with pytest.raises(ImageError, match=r"compressed with zstd.*skopeo copy"):
        read(write_docker_archive(tmp_path / "base.tar", [b"\x28\xb5\x2f\xfd and so on"]))
