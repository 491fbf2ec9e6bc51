"""A person's computer for tests of the demo: its programs are scripts, its files are in a directory of the test's."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Final

import pytest

from hack.controlplane.state import NamedControlPlane
from hack.docker.engine import Engine

# It answers where the engine of our own lives. Its images are not there, and asking for one can be what a test wants.
_DOCKER: Final = """
echo "$*" >>{directory}/docker-calls
case "$1" in
context) exit 1 ;;
version) kill -0 "$(cat {directory}/engine)" 2>/dev/null && echo 27 ;;
ps) : ;;
image) {at_images} ;;
*) exit 1 ;;
esac
"""
_KUBECTL: Final = """
echo "$*" >>{directory}/kubectl-calls
[ ! -e {directory}/away ] || {{ echo 'connection refused' >&2; exit 1; }}
case "$*" in
"config view "*) echo '{cluster}' ;;
"get --raw"*) echo '{{}}' ;;
*) : ;;
esac
"""
SERVER: Final = "https://127.0.0.1:1"


class Person:
    """A person at a computer where Docker is installed and does not run.

    Args:
        directory: an empty one.
        monkeypatch: puts the programs into PATH, and makes the person root.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._monkeypatch = monkeypatch
        self.programs = directory / "programs"
        self.programs.mkdir()
        self.environ = {"HOME": str(directory), "PATH": f"{self.programs}:/usr/bin:/bin"}
        self.engine = Engine(self.environ)
        self.demo = NamedControlPlane("demo", self.environ)
        monkeypatch.setenv("PATH", self.environ["PATH"])
        monkeypatch.setattr("os.geteuid", lambda: 0)
        self.program("dockerd", f"echo $$ >{directory}/engine; exec sleep 600")
        self.program("runc", "exit 1")
        self.program("debootstrap", "echo there is no mirror; exit 1")
        self.at_images("exit 1")

    def program(self, name: str, script: str) -> Path:
        """Install a program."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def at_images(self, script: str) -> None:
        """What happens when Docker is asked for an image."""
        self.program("docker", _DOCKER.format(directory=self._directory, at_images=script))

    def has_cluster(self) -> None:
        """Have a management cluster, which KUBECONFIG names."""
        cluster = json.dumps({"clusters": [{"cluster": {"server": SERVER}}]})
        script = _KUBECTL.format(directory=self._directory, cluster=cluster)
        for name in ("kubectl", "clusterctl"):
            self.environ[f"CAPOX_BIN_{name.upper()}"] = str(self.program(name, script))
        self.environ["KUBECONFIG"] = str(self._directory / "chosen")

    def loses_cluster(self, *, is_back: bool = False) -> None:
        """The cluster does not answer any more, or does again."""
        away = self._directory / "away"
        away.unlink() if is_back else away.touch()

    def calls(self, program: str) -> list[str]:
        """What a program was asked."""
        path = self._directory / f"{program}-calls"
        return path.read_text().splitlines() if path.exists() else []

    def sits_at_terminal(self, answer: str) -> None:
        """Type something, or press Ctrl-D where it is empty, as soon as there is a question."""
        self._monkeypatch.setattr("sys.stdin", _Terminal(answer))
        self._monkeypatch.setattr("sys.stdout", _Terminal())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
