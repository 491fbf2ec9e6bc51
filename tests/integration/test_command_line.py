"""`python -m hack.controlplane`: what a person types, from up to down."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hack.controlplane.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hack.controlplane.binaries import Binaries


class CommandLine:
    """Runs the commands with a state directory of the test's own.

    Args:
        state: value of XDG_STATE_HOME.
    """

    def __init__(self, state: Path) -> None:
        self._environ = {**os.environ, "XDG_STATE_HOME": str(state)}

    def run(self, *arguments: str, exit_code: int = 0) -> str:
        """Run a command to its expected end; return what it printed."""
        command = [sys.executable, "-m", "hack.controlplane", *arguments]
        answer = subprocess.run(
            command, cwd=REPOSITORY, env=self._environ, capture_output=True, text=True, check=False, timeout=200
        )
        assert answer.returncode == exit_code, answer.stderr
        return answer.stdout + answer.stderr

    def shell(self, script: str) -> str:
        """Run a shell script."""
        answer = subprocess.run(
            ["sh", "-ec", script],
            cwd=REPOSITORY,
            env={**self._environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout


@pytest.fixture
def command_line(tmp_path: Path, binaries: Binaries) -> Iterator[CommandLine]:
    """The commands; whatever is up at the end is brought down."""
    del binaries  # asked for so that missing programs are reported as such
    commands = CommandLine(tmp_path)
    yield commands
    commands.run("down", "--all")


def test_from_up_to_down(command_line: CommandLine) -> None:
    """A named control plane outlives the command that started it, serves a shell, and goes without a trace."""
    assert "nothing was running" in command_line.run("down", "--name", "lab")
    started = command_line.run("up", "--name", "lab", "--no-cluster-api")
    assert "-m hack.controlplane env --name lab" in started

    assert "is up already" in command_line.run("up", "--name", "lab")
    assert "lab: up, https://127.0.0.1:" in command_line.run("status")
    evaluate = 'eval "$("$PYTHON" -m hack.controlplane env --name lab)"'
    assert command_line.shell(f"{evaluate}; kubectl get namespace default -o name") == "namespace/default\n"
    assert command_line.shell(f"{evaluate}; clusterctl version -o short").startswith("v1.")

    assert "stopped etcd, kube-apiserver, kube-controller-manager" in command_line.run("down", "--name", "lab")
    assert "No control plane is up" in command_line.run("status", exit_code=3)
    assert "is not up" in command_line.run("env", "--name", "lab", exit_code=1)


def test_build_lists_where_everything_is(command_line: CommandLine) -> None:
    """`build` with nothing to do is quick and prints one line a program."""
    lines = command_line.run("build").splitlines()

    assert [line.split()[0] for line in lines] == [
        "kube-apiserver",
        "kube-controller-manager",
        "kubectl",
        "etcd",
        "capi-core",
        "capi-kubeadm-bootstrap",
        "capi-kubeadm-control-plane",
        "clusterctl",
    ]
    named = command_line.run("build", "kubectl", "etcd").splitlines()
    assert [line.split()[0] for line in named] == ["kubectl", "etcd"]
    assert "kube-foo is none of " in command_line.run("build", "kube-foo", exit_code=2)


def test_a_bad_name_is_explained(command_line: CommandLine) -> None:
    """The message names the option, the value and the rule."""
    assert "--name Lab/1: a name has 1 to 32 characters" in command_line.run("up", "--name", "Lab/1", exit_code=1)
