"""The wheels of an image are those of the lock, byte for byte, and land in one directory."""

from __future__ import annotations

import re
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.image import wheels
from hack.image.errors import ImageError
from hack.image.interpreter import Interpreter
from hack.image.requirements import Pin, parse_lock
from tests.unit.hack.images import lock_of, write_wheel

REPOSITORY = Path(__file__).resolve().parents[3]
PYTHON = Interpreter("/usr/bin/python3", (3, 12), (2, 28), has_certificates=True)
DIGEST = "a" * 64


def pins_of(text: str) -> list[Pin]:
    """Read a lock for `PYTHON`."""
    return parse_lock(text, PYTHON.marker_environment())


def test_a_lock_is_read_for_the_python_of_the_image() -> None:
    """Continuations, comments and markers are understood, and markers are answered for the image."""
    text = (
        f"# a comment\nSome_Package==1.0 \\\n    --hash=sha256:{DIGEST} \\\n    --hash=sha256:{'b' * 64}\n    # via x\n"
        f"old==2 ; python_full_version < '3.12' \\\n    --hash=sha256:{DIGEST}\n"
        f"unix==3 ; sys_platform != 'win32' \\\n    --hash=sha256:{DIGEST}\n"
    )

    assert pins_of(text) == [
        Pin("some-package", "1.0", frozenset({DIGEST, "b" * 64})),
        Pin("unix", "3", frozenset({DIGEST})),
    ]


@pytest.mark.parametrize(
    "line", ["name==1.0", f"name>=1.0 --hash=sha256:{DIGEST}", "name==1.0 --hash=sha256:abc", "=="]
)
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    """One version, with digests, or nothing goes into an image."""
    with pytest.raises(ImageError):
        pins_of(line)


def test_the_runtime_lock_holds_what_runs_and_is_what_was_tested() -> None:
    """requirements/runtime.lock has the dependencies of capox alone, in the versions of dev.lock."""
    locks = {name: (REPOSITORY / "requirements" / f"{name}.lock").read_text() for name in ("runtime", "dev")}
    pins = {name: {pin.name: pin.version for pin in pins_of(text)} for name, text in locks.items()}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    asked = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert asked <= set(pins["runtime"]), "run make lock"
    assert pins["runtime"].items() <= pins["dev"].items(), "run make lock"
    assert not {"starlette", "uvicorn", "jsonschema-rs", "pytest"} & set(pins["runtime"])


def test_the_best_wheel_that_runs_is_taken(tmp_path: Path) -> None:
    """Of several that the lock allows, the one nearest to the image's Python and C library."""
    tags = ["py3-none-any", "cp312-cp312-manylinux_2_17_x86_64", "cp313-cp313-manylinux_2_17_x86_64"]
    tags += ["cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_34_x86_64"]
    made = [write_wheel(tmp_path, "thing", {"thing.py": tag.encode()}, tag=tag) for tag in tags]
    pins = [Pin("thing", "1.0", frozenset().union(*(pins_of(lock_of(wheel))[0].digests for wheel in made)))]

    assert wheels.select(tmp_path, pins, PYTHON) == [made[3]]


def test_a_wheel_that_is_not_the_locks(tmp_path: Path) -> None:
    """One that is missing and one that was changed are told apart; neither goes in."""
    wheel = write_wheel(tmp_path, "thing", {"thing.py": b"first"})
    pins = pins_of(lock_of(wheel))
    write_wheel(tmp_path, "thing", {"thing.py": b"second"})

    with pytest.raises(ImageError, match=r"thing 1\.0 for Python 3\.12 on glibc 2\.28 has another digest"):
        wheels.select(tmp_path, pins, PYTHON)
    wheel.unlink()
    with pytest.raises(ImageError, match=r"thing 1.0 .* is not there"):
        wheels.select(tmp_path, pins, PYTHON)


def names_in(layer: Path) -> list[str]:
    """Names of a layer's entries."""
    with tarfile.open(layer) as tar:
        return [member.name for member in tar]


def test_wheels_are_unpacked_into_one_directory(tmp_path: Path) -> None:
    """Libraries stay executable, nothing else is; scripts and data stay out; directories come first."""
    first = write_wheel(
        tmp_path,
        "first",
        {"first/fast.so": b"", "first/a.py": b"", "first-1.0.data/scripts/run": b"", "shared.py": b"x"},
    )
    second = write_wheel(tmp_path, "second", {"first-1.0.data/purelib/pure.py": b"", "shared.py": b"x"})
    layer = tmp_path / "layer.tar.gz"

    wheels.write_site_layer(
        [first, second], layer, "test", mtime_seconds=7, leave_out=lambda path: path == "first/a.py"
    )

    with tarfile.open(layer) as tar:
        modes = {member.name: member.mode for member in tar}
    assert list(modes)[:5] == [
        "opt",
        "opt/capox",
        "opt/capox/first",
        "opt/capox/first-1.0.dist-info",
        "opt/capox/second-1.0.dist-info",
    ]
    assert modes["opt/capox/first/fast.so"] == 0o755
    assert modes["opt/capox/pure.py"] == 0o644
    assert not [name for name in modes if re.search(r"scripts|run$|a\.py|\.data", name)]


@pytest.mark.parametrize("name", ["../outside.py", "/etc/passwd", "a/../../b", "a\\b"])
def test_a_wheel_that_reaches_out_is_refused(tmp_path: Path, name: str) -> None:
    """No member of a wheel lands anywhere but in the directory."""
    wheel = write_wheel(tmp_path, "thing", {name: b""})

    with pytest.raises(ImageError, match="points out of it"):
        wheels.write_site_layer([wheel], tmp_path / "layer.tar.gz", "test", mtime_seconds=0)


def test_two_wheels_with_different_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of the two would win is not left to the order."""
    both = [write_wheel(tmp_path, name, {"shared.py": name.encode()}) for name in ("first", "second")]

    with pytest.raises(ImageError, match=r"both bring shared\.py"):
        wheels.write_site_layer(both, tmp_path / "layer.tar.gz", "test", mtime_seconds=0)
