"""`make demo` with machines, and `make demo-down` after it, as a person runs them."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.paths import REPOSITORY
from hack.controlplane.state import NamedControlPlane
from hack.demo.rack import RACK_NAME
from hack.nodeimage.register import RegisteredImage
from tests.e2e.lab import host_routes, host_setting

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(2400)]

COMMAND_SECONDS = 1800
SETTINGS = ("fs.inotify.max_user_instances", "net.netfilter.nf_conntrack_max", "vm.overcommit_memory", "kernel.panic")


class Person:
    """Somebody with the programs and images of this computer, and a state directory of the test's own.

    Args:
        state: that directory.
        docker_host: the engine.
    """

    def __init__(self, state: Path, docker_host: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self.environ = kept | {"XDG_STATE_HOME": str(state), "DOCKER_HOST": docker_host}
        self.demo = NamedControlPlane("demo", self.environ)

    def run(self, *words: str) -> str:
        """Run a command without a terminal that has to succeed; return what it printed."""
        done = subprocess.run(
            words,
            cwd=REPOSITORY,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def in_docker(self) -> list[str]:
        """The names of what Docker has of the demo."""
        label = f"label=capox.rack={RACK_NAME}"
        containers = self.run("docker", "ps", "-a", "--format", "{{.Names}}", "--filter", label)
        return containers.split() + self.run("docker", "volume", "ls", "-q", "--filter", label).split()


@pytest.fixture
def person(docker_host: str, tmp_path: Path) -> Iterator[Person]:
    """A person whose demo is brought down in the end."""
    made = Person(tmp_path, docker_host)
    if made.in_docker():
        pytest.skip("somebody's demo is up; `make demo-down` ends it")
    yield made
    made.run(sys.executable, "-m", "hack.demo", "down")


def test_a_demo_with_machines(person: Person, node_images: list[RegisteredImage]) -> None:
    """Nodes are Ready, a Service answers, everything is left up; and nothing is left of it in the end."""
    assert node_images
    before = host_routes(), {name: host_setting(name) for name in SETTINGS}

    shown = person.run(sys.executable, "-m", "hack.demo", "up", "--guests", "docker")

    assert "3 Nodes are Ready" in shown
    answered = re.search(r"http://([0-9.]+)/ answers: Hello from Pod hello-", shown)
    assert answered is not None
    assert "VPC default of project demo lets in tcp/6443, tcp/80 from anywhere" in shown
    kubeconfig = person.demo.directory / "demo.kubeconfig"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert (person.demo.directory / "rack-token").read_text() not in shown
    kubectl = (str(person.demo.commands / "kubectl"), "--kubeconfig", str(kubeconfig))
    assert person.run(*kubectl, "get", "nodes", "--no-headers").count(" Ready ") == 3
    again = person.run("curl", "--silent", "--show-error", "--max-time", "5", "--noproxy", "*", answered.group(1))
    assert again.startswith("Hello from Pod hello-")

    person.run(sys.executable, "-m", "hack.demo", "down")
    assert person.in_docker() == []
    assert person.demo.running() == []
    assert not person.demo.directory.exists()
    assert (host_routes(), {name: host_setting(name) for name in SETTINGS}) == before
