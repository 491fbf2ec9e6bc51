"""The scripts that make node images: both front ends run all of them in their order, and they are sound shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import registry_hosts

IMAGE_BUILDER = Path(__file__).resolve().parents[2] / "image-builder"
SCRIPTS = sorted(path.name for path in (IMAGE_BUILDER / "provision").glob("*.sh"))
SHELL = sorted(
    path for path in IMAGE_BUILDER.rglob("*") if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")
)


def run_by(front_end: str) -> list[str]:
    """The scripts that a front end runs, each at its first mention in a command."""
    text = (IMAGE_BUILDER / front_end).read_text()
    # A stage of the Dockerfile prepares container images; the last one makes the machine.
    return list(dict.fromkeys(re.findall(r"/provision/(\d\d-[\w-]+\.sh)\b", text)))


def test_packer_runs_every_script_in_its_order() -> None:
    """Their numbers say the order."""
    assert run_by("packer/node.pkr.hcl") == SCRIPTS


def test_docker_runs_every_script() -> None:
    """Container images are read in a stage of their own; everything else runs in order."""
    text = (IMAGE_BUILDER / "rack" / "Dockerfile").read_text()
    commands = "".join(re.findall(r"^RUN (?:.*\\\n)*.*$", text.partition(" AS node\n")[2], re.MULTILINE))
    last_stage = re.findall(r"/provision/(\d\d-[\w-]+\.sh)", commands)

    assert set(run_by("rack/Dockerfile")) == set(SCRIPTS)
    assert last_stage == [name for name in SCRIPTS if name not in {"10-packages.sh", "60-images.sh"}]


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_a_script_is_executable_and_stops_at_the_first_error(path: Path) -> None:
    """Git keeps the mode; a failed step would leave a machine that looks finished. rack-init tries to go on instead."""
    text = path.read_text()
    without_comments = [line for line in text.splitlines() if line and not line.startswith("#")]

    assert os.access(path, os.X_OK)
    assert subprocess.run(["/bin/sh", "-n", path], check=False, timeout=10).returncode == 0
    if path.name.endswith(".sh"):
        assert without_comments[0] == "set -eu"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say() -> None:
    """All of them at once, as it starts slowly."""
    answer = subprocess.run(["shellcheck", *SHELL], capture_output=True, text=True, check=False, timeout=55)

    assert (answer.stdout, answer.returncode) == ("", 0)


@pytest.mark.parametrize(
    "path", sorted(path for path in IMAGE_BUILDER.rglob("*") if path.is_file()), ids=lambda path: path.name
)
def test_no_registry_is_named(path: Path) -> None:
    """Where packages come from is each machine's own configuration."""
    assert registry_hosts(path.name, path.read_text()) == []


def test_every_file_beside_the_scripts_is_used() -> None:
    """What no script installs is not on any machine."""
    for folder, files in (("provision", "provision/files"), ("rack", "rack")):
        text = "".join(path.read_text() for path in (IMAGE_BUILDER / folder).glob("*.sh"))
        text += (IMAGE_BUILDER / "rack" / "Dockerfile").read_text()
        unused = {path.name for path in (IMAGE_BUILDER / files).iterdir() if path.is_file() and path.name not in text}
        # The Docker front end runs this one before it comes to the Dockerfile.
        assert unused - {"Dockerfile", "firewall.sh"} == set()
