"""The image of capox in node images: its name follows from its sources, and old archives go."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from hack.controlplane.progress import PlainReporter
from hack.image.archive import parse_reference
from hack.nodeimage import manager_image


def tree(directory: Path) -> Path:
    """A small tree with one file of each sort."""
    for path in ("capox/ccm/main.py", "capox/rack/main.py", "hack/image/build.py"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text("one")
    (directory / "capox" / "ccm" / "__pycache__").mkdir()
    (directory / "requirements").mkdir()
    for path in ("pyproject.toml", "requirements/runtime.lock"):
        (directory / path).write_text("one")
    return directory


SOURCES = (
    *("capox/ccm/main.py", "capox/ccm/new.py", "hack/image/build.py"),
    *("pyproject.toml", "requirements/runtime.lock"),
)


@pytest.mark.parametrize("path", SOURCES)
def test_the_name_follows_from_what_goes_in(tmp_path: Path, path: str) -> None:
    """A machine with an older image has none of this name, and tells so instead of running it."""
    repository = tree(tmp_path)
    before = manager_image.manager_image("python", tmp_path, repository)
    (repository / path).write_text("two")
    after = manager_image.manager_image("python", tmp_path, repository)

    assert before.reference != after.reference
    assert before.archive != after.archive
    assert parse_reference(after.reference).name == "cluster-api-provider-oxide-controller"


def test_what_does_not_go_in_changes_nothing(tmp_path: Path) -> None:
    """The rack is a program of its own, and what Python keeps beside its sources is of this computer."""
    repository = tree(tmp_path)
    before = manager_image.manager_image("python", tmp_path, repository)
    (repository / "capox" / "rack" / "main.py").write_text("two")
    (repository / "capox" / "ccm" / "__pycache__" / "main.pyc").write_text("two")

    assert manager_image.manager_image("python", tmp_path, repository) == before
    assert manager_image.manager_image("another python", tmp_path, repository) != before


def test_old_archives_do_not_pile_up(tmp_path: Path) -> None:
    """Each change of the sources makes another one; the one that is asked for stays, however old it is."""
    image = manager_image.manager_image("python", tmp_path, tree(tmp_path / "tree"))
    containers = image.archive.parent
    containers.mkdir()
    image.archive.write_text("asked for")
    os.utime(image.archive, (1, 1))
    others = [containers / f"cluster-api-provider-oxide-controller-{number}.tar" for number in range(5)]
    for age, path in enumerate(others):
        path.write_text("old")
        os.utime(path, (10 + age, 10 + age))
    (containers / "coredns-v1.tar").write_text("another program's")

    manager_image.ensure(image, tmp_path / "python.tar", PlainReporter(io.StringIO()), tmp_path / "tree")

    assert {path.name for path in containers.iterdir()} == {
        image.archive.name,
        "coredns-v1.tar",
        *(path.name for path in others[2:]),
    }
