"""`make demo` where machines cannot be had, and on a management cluster that is there already."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.binaries import Binaries
from hack.controlplane.paths import REPOSITORY, cache_directory
from hack.controlplane.programs import KUBECTL
from hack.controlplane.state import NamedControlPlane

pytestmark = pytest.mark.timeout(600)

COMMAND_SECONDS = 400


class Computer:
    """A person's computer with the programs in its cache, and a Docker that does not start.

    Args:
        directory: an empty one.
    """

    def __init__(self, directory: Path) -> None:
        cache = directory / "cache" / "capox"
        cache.mkdir(parents=True)
        for entry in cache_directory(os.environ).iterdir():
            # What is the engine's own stays out of reach: it may be somebody else's at work.
            if entry.name not in {"docker", "node-images"}:
                (cache / entry.name).symlink_to(entry)
        programs = directory / "programs"
        programs.mkdir()
        for name in ("docker", "dockerd"):
            (programs / name).write_text("#!/bin/sh\necho this engine is broken >&2\nexit 1\n")
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "DOCKER_HOST"}}
        self.environ = kept | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(directory / "cache"),
            "XDG_STATE_HOME": str(directory / "state"),
        }
        self.demo = NamedControlPlane("demo", self.environ)
        self.other = NamedControlPlane("other", self.environ)

    def run(self, module: str, *words: str, exit_code: int = 0, **variables: str) -> str:
        """Run a command without a terminal, to its expected end; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=REPOSITORY,
            env=self.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def computer(tmp_path: Path, binaries: Binaries) -> Iterator[Computer]:
    """A computer; what is up at the end is brought down."""
    del binaries  # asked for so that missing programs are reported as such
    made = Computer(tmp_path)
    yield made
    made.run("hack.demo", "down")
    made.run("hack.controlplane", "down", "--all")


def test_a_demo_without_machines(computer: Computer) -> None:
    """One sentence says why instances stay empty; then the infrastructure comes, stays up, and goes without a trace."""
    shown = computer.run("hack.demo")

    (sentence,) = (line for line in shown.splitlines() if line.startswith("The rack's instances stay empty"))
    assert "dockerd" in sentence or "Docker" in sentence
    assert ", on capi-demo-demo-control-plane-" in shown
    assert "left running" in shown
    assert {process.name for process in computer.demo.running()} > {"rack", "capox-provider", "kube-apiserver"}
    token = computer.demo.directory / "rack-token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in shown

    assert "Stopped etcd" in computer.run("hack.demo", "down")
    assert computer.demo.running() == []
    assert not computer.demo.directory.exists()


def test_machines_that_were_asked_for(computer: Computer) -> None:
    """Who insists on machines is told why there are none, and nothing is left of the attempt."""
    shown = computer.run("hack.demo", "up", "--guests", "docker", exit_code=1)

    assert "The rack's instances cannot be machines" in shown
    assert computer.demo.running() == []


def test_a_demo_on_a_cluster_that_is_there(computer: Computer, binaries: Binaries) -> None:
    """The demo goes into the cluster that KUBECONFIG names, and leaves it as it was; what is taken it does not take."""
    computer.run("hack.controlplane", "up", "--name", "other")
    record = computer.other.record()
    assert record is not None
    kubeconfig = record.kubeconfig

    def kubectl(*words: str) -> str:
        """Run kubectl in that cluster."""
        command = [str(binaries.path(KUBECTL)), "--kubeconfig", kubeconfig, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    before = kubectl("get", "crd,namespaces,clusterroles,validatingadmissionpolicies", "-o", "name")

    shown = computer.run("hack.demo", "up", "--guests", "none", KUBECONFIG=record.kubeconfig)

    assert f"KUBECONFIG={record.kubeconfig} names the management cluster" in shown
    assert {process.name for process in computer.demo.running()} == {"keeper", "rack", "capox-provider"}
    assert "demo" in kubectl("get", "clusters.cluster.x-k8s.io", "-A", "-o", "name")
    copy = computer.demo.directory / "management.kubeconfig"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    exported = computer.run("hack.controlplane", "env", "--name", "demo")
    assert f"export KUBECONFIG={copy}" in exported

    computer.run("hack.demo", "down")
    assert kubectl("get", "crd,namespaces,clusterroles,validatingadmissionpolicies", "-o", "name") == before
    assert not computer.demo.directory.exists()

    kubectl("create", "namespace", "demo")
    refused = computer.run("hack.demo", "up", "--guests", "none", exit_code=1, KUBECONFIG=record.kubeconfig)
    assert "has a namespace demo already" in refused
    computer.run("hack.demo", "down")
    assert kubectl("get", "namespace", "demo", "-o", "name") == "namespace/demo\n"


def test_a_kubeconfig_that_leads_nowhere(computer: Computer, tmp_path: Path) -> None:
    """A KUBECONFIG that was forgotten in the shell is named, with the way out."""
    missing = str(tmp_path / "gone")

    shown = computer.run("hack.demo", "up", "--guests", "none", exit_code=1, KUBECONFIG=missing)

    assert f"KUBECONFIG={missing} names no cluster" in shown
    assert "unset KUBECONFIG" in shown
