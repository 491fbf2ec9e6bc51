"""The Python of a base image is found by looking, and what cannot run capox is refused in words that help."""

from __future__ import annotations

import io
import tarfile

import pytest

from hack.image.errors import ImageError
from hack.image.interpreter import Interpreter, find_interpreter, is_of_interest
from hack.image.tree import FileTree
from tests.unit.hack.images import LIBC, ROOT, Files, tar_of


def find(files: Files, path: str | None = None) -> Interpreter:
    """Look for Python in a file system."""
    tree = FileTree(is_of_interest)
    with tarfile.open(fileobj=io.BytesIO(tar_of(files))) as tar:
        tree.add_layer(tar)
    return find_interpreter(tree, {} if path is None else {"PATH": path})


def test_the_python_of_an_official_image() -> None:
    """Path, version and C library are those that the image would report itself."""
    found = find(ROOT, "/usr/local/bin:/usr/bin")

    assert found == Interpreter("/usr/local/bin/python3", (3, 12), (2, 36), has_certificates=True)


def test_the_python_of_debian() -> None:
    """There `/usr/bin/python3` is a link, the C library sits below a link, and PATH is not set."""
    found = find(
        {
            "lib": "usr/lib",
            "usr/lib/x86_64-linux-gnu/libc.so.6": LIBC,
            "usr/bin/python3": "python3.11",
            "usr/bin/python3.11": b"",
            "usr/lib/python3.11/asyncio/__init__.py": b"",
            "usr/lib/python3.11/json/__init__.py": b"",
            "usr/lib/python3.11/ssl.py": b"",
        }
    )

    assert found == Interpreter("/usr/bin/python3", (3, 11), (2, 36), has_certificates=False)


def test_wheels_are_chosen_for_the_image_and_not_for_this_machine() -> None:
    """Its Python version and every C library up to its own, newest first; no wheel for a newer one, or for musl."""
    tags = [str(tag) for tag in find(ROOT).tags()]

    assert tags[0] == "cp312-cp312-manylinux_2_36_x86_64"
    assert {"cp312-cp312-manylinux2014_x86_64", "cp311-abi3-manylinux_2_17_x86_64", "py3-none-any"} <= set(tags)
    assert not [tag for tag in tags if "2_37" in tag or "musl" in tag or tag.startswith("cp313")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"usr/local/bin/python3": None}, "does not tell a version"),
        ({"usr/local/bin/python3": "nowhere"}, "no python3 on its PATH"),
        ({"usr/local/bin/python3": "python3.9", "usr/local/bin/python3.9": b""}, "has Python 3.9; capox needs 3.11"),
        ({"usr/lib/x86_64-linux-gnu/libc.so.6": b"\x7fELF" + bytes(14) + b"\xb7\x00"}, "not of an amd64 system"),
        ({"usr/lib/x86_64-linux-gnu/libc.so.6": "nowhere"}, "Alpine's musl is not supported"),
        ({"usr/local/lib/python3.12/asyncio/__init__.py": "nowhere"}, "not python3-minimal"),
    ],
)
def test_what_cannot_run_capox_is_refused(changed: Files, words: str) -> None:
    """The message says what was found, and names an image that works."""
    with pytest.raises(ImageError, match=words):
        find({**ROOT, **changed})
