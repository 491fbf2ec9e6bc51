"""Packages of the distribution: what is asked of apt-get, and what its refusals become."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hack.distribution import PackageError, install_packages


class Apt:
    """Stands for the program: notes what it is called with, and fails at one of its commands."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[tuple[str, ...]] = []
        self._failing = failing

    def __call__(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """Run it."""
        self.calls.append(tuple(words))
        failed = words[1] == self._failing
        return subprocess.CompletedProcess(words, int(failed), stdout="", stderr="E: no such thing" if failed else "")


@pytest.fixture(autouse=True)
def as_root_with_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer whose only program is apt-get, with root at the keyboard."""
    program = tmp_path / "apt-get"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return program


def test_packages_come_from_a_fresh_list() -> None:
    """The list is read again first: on a bare machine it is empty."""
    apt = Apt()
    install_packages("debootstrap", "runc", run=apt)
    assert [call[1] for call in apt.calls] == ["update", "install"]
    assert apt.calls[1][-2:] == ("debootstrap", "runc")


@pytest.mark.parametrize("command", ["update", "install"])
def test_what_apt_get_says_is_told(command: str) -> None:
    """A refusal names the command and has the end of what it said."""
    with pytest.raises(PackageError, match=rf"apt-get {command}(.|\n)*no such thing"):
        install_packages("debootstrap", run=Apt(failing=command))


def test_others_than_root_are_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is run, and the remedy is named."""
    apt = Apt()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PackageError, match="apt-get install debootstrap"):
        install_packages("debootstrap", run=apt)
    assert apt.calls == []


def test_a_computer_without_apt_get(as_root_with_apt: Path) -> None:
    """It is told which package is missing."""
    as_root_with_apt.unlink()
    with pytest.raises(PackageError, match="debootstrap: missing"):
        install_packages("debootstrap")
