"""Layers upon each other make one file system, whiteouts and links included."""

from __future__ import annotations

import io
import tarfile

import pytest

from hack.image.tree import FileTree
from tests.unit.hack.images import Files, tar_of


def tree_of(*layers: Files) -> FileTree:
    """The file system of some layers, with every content kept."""
    tree = FileTree(lambda _: True)
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(tar_of(layer))) as tar:
            tree.add_layer(tar)
    return tree


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("/bin/python3", "usr/bin/python3.11"),
        ("bin/../bin/python", "usr/bin/python3.11"),
        ("absolute", "usr/bin/python3.11"),
        ("usr", "usr"),
        ("usr/bin/missing", None),
        ("dangling", None),
        ("circle", None),
    ],
)
def test_links_are_followed(path: str, reached: str | None) -> None:
    """A path ends where the kernel would end, in the image's own root; a circle ends nowhere."""
    tree = tree_of(
        {
            "bin": "usr/bin",
            "usr/bin/python3.11": b"",
            "usr/bin/python3": "python3.11",
            "usr/bin/python": "../bin/python3",
            "absolute": "/bin/python",
            "dangling": "nowhere",
            "circle": "circle",
        }
    )

    assert tree.resolve(path) == reached


def test_a_later_layer_hides_an_earlier_one() -> None:
    """Files are replaced and whited out, one by one or all that a directory held."""
    tree = tree_of(
        {"a/one": b"1", "a/two": b"2", "b/one": b"1", "c": "a", "d/e/f": b"deep"},
        {"a/.wh.two": b"", "a/one": b"new", "b/.wh..wh..opq": b"", "b/three": b"3", ".wh.d": b""},
    )

    assert tree.content("a/one") == b"new"
    assert tree.content("c/one") == b"new"
    assert [path for path in ("a/two", "b/one", "b/three", "d", "d/e/f") if tree.exists(path)] == ["b/three"]


def test_a_hard_link_has_the_content_of_its_file() -> None:
    """The second name of a file is as good as the first."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        first = tarfile.TarInfo("first")
        first.size = 3
        tar.addfile(first, io.BytesIO(b"one"))
        second = tarfile.TarInfo("second")
        second.type, second.linkname = tarfile.LNKTYPE, "first"
        tar.addfile(second)
    buffer.seek(0)
    tree = FileTree(lambda _: True)
    with tarfile.open(fileobj=buffer) as tar:
        tree.add_layer(tar)

    assert tree.content("second") == b"one"
