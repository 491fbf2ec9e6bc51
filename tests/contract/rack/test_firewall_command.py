"""`python -m hack.firewall`, the command by which users let the ports of clusters in, on a rack over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.paths import REPOSITORY
from tests.rack_process import RackProcess

RULES = "/v1/vpc-firewall-rules?project=demo&vpc=default"


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[RackProcess]:
    """A rack of the test's own."""
    with RackProcess(tmp_path) as running:
        yield running


def run(rack: RackProcess, *words: str, token: str = "oxide-token-admin") -> subprocess.CompletedProcess[str]:
    """Run the command as a user of the rack."""
    environment = {"PATH": os.defpath, "OXIDE_HOST": rack.announcement["api"], "OXIDE_TOKEN": token}
    command = [sys.executable, "-m", "hack.firewall", *words]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=50, check=False
    )


def rules(rack: RackProcess) -> dict[str, dict[str, object]]:
    """The rules of the VPC by their names."""
    with rack.client() as client:
        found = client.get(RULES).raise_for_status().json()["rules"]
    return {each["name"]: each for each in found}


def test_ports_are_let_in(rack: RackProcess) -> None:
    """The rules that a VPC is born with stay, and ours come; a second run replaces only ours."""
    born = rules(rack)

    done = run(rack, "--project", "demo", "tcp/6443", "tcp/80")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "VPC default of project demo lets in tcp/6443, tcp/80 from anywhere\n"
    found = rules(rack)
    assert found.keys() == born.keys() | {"clusters-tcp"}
    assert found["clusters-tcp"]["filters"] == {"hosts": None, "ports": ["6443", "80"], "protocols": [{"type": "tcp"}]}
    assert found["clusters-tcp"]["targets"] == [{"type": "vpc", "value": "default"}]

    assert run(rack, "--project", "demo", "udp/53", "--source", "192.0.2.0/24").returncode == 0
    assert rules(rack).keys() == born.keys() | {"clusters-udp"}
    unchanging = ("description", "status", "direction", "targets", "filters", "action", "priority")
    assert all(rules(rack)[name][field] == born[name][field] for name in born for field in unchanging)


def test_what_is_wrong_is_said(rack: RackProcess) -> None:
    """A port that is none, a project that is not there, a user who may not: nothing changes, and no token is told."""
    born = rules(rack).keys()

    wrong = run(rack, "--project", "demo", "6443")
    assert wrong.returncode == 2
    assert "6443: write tcp/PORT" in wrong.stderr
    missing = run(rack, "--project", "nowhere", "tcp/6443")
    assert missing.returncode == 1
    assert "nowhere" in missing.stderr
    forbidden = run(rack, "--project", "demo", "tcp/6443", token="oxide-token-viewer")
    assert forbidden.returncode == 1
    assert "Traceback" not in missing.stderr + forbidden.stderr
    assert "oxide-token" not in wrong.stderr + missing.stderr + forbidden.stderr
    assert rules(rack).keys() == born
