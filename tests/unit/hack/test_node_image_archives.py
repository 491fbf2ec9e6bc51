"""Container images of the node image: the right file in the right place, and the same bytes for the same inputs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.programs import COREDNS, KUBE_PROXY
from hack.nodeimage.container_images import Archives
from hack.nodeimage.releases import ContainerImage
from tests.unit.hack.images import tar_of

DNS = ContainerImage(("registry.example.com/coredns:v1",), COREDNS, "coredns", has_entrypoint=True)
PROXY = ContainerImage(("registry.example.com/kube-proxy:v1",), KUBE_PROXY, "usr/bin/kube-proxy", on_firewall=True)


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A program."""
    path = tmp_path / "program"
    path.write_bytes(b"a program")
    return path


def archives(directory: Path, firewall_id: str = "one") -> Archives:
    """Archives in a directory, on a floor of one file."""
    firewall = directory / "firewall.tar"
    firewall.write_bytes(tar_of({"usr/sbin/nft": b"a firewall"}))
    return Archives(directory / "containers", firewall, firewall_id)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, bytes]], list[str]]:
    """Configuration, files by layer, and names of an archive."""
    with tarfile.open(path) as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(content("manifest.json"))
        config = json.loads(content(manifest["Config"]))
        layers = []
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content(name)))) as layer:
                files = {}
                for member in layer.getmembers():
                    if member.isfile():
                        file = layer.extractfile(member)
                        assert file is not None
                        files[member.name.removeprefix("./")] = file.read()
                layers.append(files)
        return config, layers, manifest["RepoTags"]


def test_an_image_from_scratch_holds_its_program(tmp_path: Path, binary: Path) -> None:
    """One layer with one file, which is what is started."""
    config, layers, names = read(archives(tmp_path).ensure(DNS, binary))

    assert layers == [{"coredns": b"a program"}]
    assert names == ["registry.example.com/coredns:v1"]
    assert config["config"]["Entrypoint"] == ["/coredns"]
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == COREDNS.version


def test_an_image_with_the_firewall_tools_stands_on_them(tmp_path: Path, binary: Path) -> None:
    """The tools are a layer of their own, so that a machine keeps them once for all who share them."""
    config, layers, _ = read(archives(tmp_path).ensure(PROXY, binary))

    assert layers == [{"usr/sbin/nft": b"a firewall"}, {"usr/bin/kube-proxy": b"a program"}]
    assert len(config["rootfs"]["diff_ids"]) == 2
    assert "Entrypoint" not in config["config"]


def test_an_archive_is_made_once(tmp_path: Path, binary: Path) -> None:
    """What determines it has not changed, so it is not written again."""
    first = archives(tmp_path).ensure(DNS, binary)
    written = first.stat().st_mtime_ns

    assert archives(tmp_path).ensure(DNS, binary) == first
    assert first.stat().st_mtime_ns == written


def test_another_program_or_floor_makes_another_archive(tmp_path: Path, binary: Path) -> None:
    """The floor counts for those only that stand on it."""
    proxy, dns = (archives(tmp_path).path_of(image, binary) for image in (PROXY, DNS))
    other_floor = archives(tmp_path, "two")

    assert other_floor.path_of(PROXY, binary) != proxy
    assert other_floor.path_of(DNS, binary) == dns
    binary.write_bytes(b"another program")
    assert archives(tmp_path).path_of(DNS, binary) != dns
