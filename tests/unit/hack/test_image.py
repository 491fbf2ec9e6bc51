"""The image as a whole: what is in it, how it is started, and that it is the same each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.progress import PlainReporter
from hack.image.__main__ import epoch_seconds, main
from hack.image.archive import parse_reference
from hack.image.build import Inputs, build_image
from hack.image.errors import ImageError
from tests.unit.hack.images import ROOT, digest, lock_of, tar_of, write_directory, write_docker_archive, write_wheel


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A command line that needs no network: a base, the wheels, the lock, capox's own wheel."""
    base = write_docker_archive(tmp_path / "base.tar", [tar_of(ROOT)])
    thing = write_wheel(tmp_path / "wheels", "thing", {"thing/__init__.py": b"", "thing/fast.so": b"fast"})
    own = write_wheel(
        tmp_path / "own", "capox", {"capox/__main__.py": b"", "capox/rack/app.py": b"", "capox/api/x.py": b""}
    )
    (tmp_path / "runtime.lock").write_text(lock_of(thing))
    options = {"base": base, "wheels": tmp_path / "wheels", "own-wheel": own, "lock": tmp_path / "runtime.lock"}
    return [f"--{name}={value}" for name, value in options.items()]


class Image:
    """An archive, read as the OCI image layout specification says, with nothing of ours.

    Args:
        path: the archive.
    """

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]  # a file has content
        self.index = json.loads(self.files["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.config = json.loads(self.blob(self.manifest["config"]))

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """A blob, whose digest and size must be those of its descriptor."""
        algorithm, encoded = descriptor["digest"].split(":")
        content = self.files[f"blobs/{algorithm}/{encoded}"]
        assert hashlib.new(algorithm, content).hexdigest() == encoded
        assert len(content) == descriptor["size"]
        return content

    def unpacked(self, directory: Path) -> Path:
        """Its file system, layer upon layer."""
        for number, descriptor in enumerate(self.manifest["layers"]):
            layer = directory / f"{number}.tar.gz"
            layer.write_bytes(self.blob(descriptor))
            with tarfile.open(layer) as tar:
                tar.extractall(directory / "root", filter="tar")
        return directory / "root"


def make(arguments: list[str], output: Path, *more: str) -> Image:
    """Make an image that must succeed."""
    assert main([*arguments, f"--output={output}", *more]) == 0
    return Image(output)


def test_the_same_inputs_give_the_same_bytes(arguments: list[str], tmp_path: Path) -> None:
    """Nothing of when, where and in which order it was made gets in."""
    make(arguments, tmp_path / "first.tar")
    for wheel in tmp_path.glob("*/*.whl"):
        wheel.touch()
    make(list(reversed(arguments)), tmp_path / "elsewhere" / "second.tar")

    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "elsewhere" / "second.tar").read_bytes()
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["second.tar"]


def test_it_is_started_as_the_manager_wants_it(arguments: list[str], tmp_path: Path) -> None:
    """Nobody's user, the Python of the base by its path, our packages, the base's environment below ours."""
    config = make(arguments, tmp_path / "image.tar").config

    environment = dict(pair.split("=", 1) for pair in config["config"]["Env"])
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/python3", "-m", "capox"]
    assert "Cmd" not in config["config"]
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["WorkingDir"] == "/"
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert environment["PATH"] == "/usr/local/bin:/usr/bin"
    assert environment["LANG"] == "C.UTF-8"
    assert environment["PYTHONPATH"] == "/opt/capox"
    assert (
        environment["PYTHONDONTWRITEBYTECODE"]
        == environment["PYTHONUNBUFFERED"]
        == environment["PYTHONSAFEPATH"]
        == "1"
    )
    assert environment["HOME"] == "/"
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == "1.0"


def test_it_holds_what_runs_and_no_rack(arguments: list[str], tmp_path: Path) -> None:
    """Base, dependencies and capox are there, readable by everybody and root's; the simulated rack is not."""
    image = make(arguments, tmp_path / "image.tar")
    root = image.unpacked(tmp_path)

    found = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    ours = {path for path in found if path.startswith("opt/")}
    assert found - ours == set(ROOT) - {"lib"}
    assert (root / "lib").is_symlink()
    assert {"opt/capox/capox/__main__.py", "opt/capox/capox/api/x.py", "opt/capox/thing/fast.so"} <= ours
    assert not [path for path in ours if "rack" in path or path.endswith((".pyc", "capox-1.0.dist-info/RECORD"))]
    assert "opt/capox/capox-1.0.dist-info/METADATA" in ours


def test_configuration_layers_and_history_agree(arguments: list[str], tmp_path: Path) -> None:
    """Whoever loads it checks the digests of what is inside the layers, and counts the history."""
    image = make(arguments, tmp_path / "image.tar")

    with_content = [entry for entry in image.config["history"] if not entry.get("empty_layer")]
    assert len(image.config["rootfs"]["diff_ids"]) == len(image.manifest["layers"]) == len(with_content) == 3
    inside = [gzip.decompress(image.blob(layer)) for layer in image.manifest["layers"]]
    assert [digest(layer) for layer in inside] == image.config["rootfs"]["diff_ids"]


def test_docker_and_containerd_find_it_under_the_same_names(arguments: list[str], tmp_path: Path) -> None:
    """An older Docker reads manifest.json, containerd the index; both see every tag."""
    image = make(arguments, tmp_path / "image.tar", "--tag=name:v1", "--tag=registry.example.com:5000/team/name:v1")

    (docker,) = json.loads(image.files["manifest.json"])
    names = [entry["annotations"]["io.containerd.image.name"] for entry in image.index["manifests"]]
    assert docker["RepoTags"] == ["name:v1", "registry.example.com:5000/team/name:v1"]
    assert names == ["docker.io/library/name:v1", "registry.example.com:5000/team/name:v1"]
    assert json.loads(image.files[docker["Config"]]) == image.config
    assert docker["Layers"] == [f"blobs/sha256/{layer['digest'][7:]}" for layer in image.manifest["layers"]]
    assert json.loads(image.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_wheels_that_were_kept_are_not_downloaded_again(arguments: list[str], tmp_path: Path) -> None:
    """They are kept for a version of Python, since another one needs other wheels."""
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    (tmp_path / "wheels").rename(tmp_path / "kept-3.12")
    inputs = Inputs(
        archive=Path(given["base"]),
        directory=None,
        lock=Path(given["lock"]),
        wheels=None,
        own_wheel=Path(given["own-wheel"]),
        repository=tmp_path,
        references=[parse_reference("name:v1")],
        epoch_seconds=0,
        kept_wheels=tmp_path / "kept",
        compression_level=1,
    )
    build_image(inputs, tmp_path / "image.tar", PlainReporter(io.StringIO()))

    root = Image(tmp_path / "image.tar").unpacked(tmp_path)
    assert (root / "opt" / "capox" / "thing" / "fast.so").read_bytes() == b"fast"
    assert (tmp_path / "kept-3.12").is_dir()


def test_a_directory_is_a_base_too(arguments: list[str], tmp_path: Path) -> None:
    """`--base-dir` in place of `--base`."""
    root = write_directory(tmp_path / "rootfs", ROOT)

    image = make([f"--base-dir={root}", *arguments[1:]], tmp_path / "image.tar")

    assert image.config["config"]["Entrypoint"] == ["/usr/local/bin/python3", "-m", "capox"]
    assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" in image.config["config"]["Env"]


@pytest.mark.parametrize("given", [[], ["--base=a.tar", "--base-dir=b"]])
def test_without_a_base_the_ways_to_get_one_are_shown(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is guessed or downloaded; the commands to copy are in the message."""
    assert main(given) == 2

    said = capsys.readouterr().err
    assert "docker save -o base.tar python:3.12-slim" in said
    assert "debootstrap --variant=minbase" in said


def test_a_failure_leaves_no_archive(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a half image nor scratch files stay behind."""
    (tmp_path / "wheels" / "thing-1.0-py3-none-any.whl").unlink()

    assert main([*arguments, f"--output={tmp_path / 'out' / 'image.tar'}"]) == 1

    assert "a wheel of thing 1.0 for Python 3.12 on glibc 2.36 is not there" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_its_time_is_given_or_that_of_the_last_commit() -> None:
    """SOURCE_DATE_EPOCH, as everywhere; it has to be a number."""
    assert epoch_seconds({"SOURCE_DATE_EPOCH": "86400"}) == 86400
    assert epoch_seconds({}) == epoch_seconds({})
    with pytest.raises(ImageError, match="SOURCE_DATE_EPOCH=yesterday"):
        epoch_seconds({"SOURCE_DATE_EPOCH": "yesterday"})


@pytest.mark.parametrize("text", ["name", "Name:v1", "name:", "registry.example.com/:v1", "name@sha256:abc"])
def test_a_name_that_no_registry_takes_is_refused(text: str) -> None:
    """A tag belongs to it, and the message shows one that is right."""
    with pytest.raises(ImageError, match=r"--tag .*cluster-api-provider-oxide-controller:v0\.1\.0"):
        parse_reference(text)
