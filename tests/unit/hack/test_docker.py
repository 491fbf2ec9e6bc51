"""A Docker engine of our own: what its runtime changes, which engines count, and that it is known by its process."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hack.docker import runtime
from hack.docker.engine import Engine, answering_host

STATUS = "Name:\tbash\nCapBnd:\t{}\nSeccomp:\t0\n"


@pytest.mark.parametrize(("bounding", "expected"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_a_capability_that_is_lacking(bounding: str, expected: bool) -> None:
    """The capability is looked for in what the process may ever have; a kernel that does not say has it."""
    assert runtime.has_capability(STATUS.format(bounding)) is expected
    assert runtime.has_capability("Name:\tbash\n")


def test_specifications_of_a_command() -> None:
    """The runtime is told of a bundle's configuration, or of a process's, in one of several ways; each is seen."""
    commands = {
        "create --bundle /run/one id": ["/run/one/config.json"],
        "create -b /run/one id": ["/run/one/config.json"],
        "create --bundle=/run/one id": ["/run/one/config.json"],
        "exec --process /run/two.json id": ["/run/two.json"],
        "kill id 9": [],
    }
    for command, expected in commands.items():
        assert [str(path) for path in runtime.specifications_of(command.split())] == expected


def test_the_runtime_takes_the_capability_out(tmp_path: Path) -> None:
    """The runtime hands the real one a specification without the capability, and everything else as it was."""
    capabilities = {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]}
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps({"process": {"capabilities": capabilities, "args": ["sh"]}}))
    runc = tmp_path / "runc"
    runc.write_text(f'#!/bin/sh\ncat "$3/config.json"; echo "$@" >{tmp_path}/words\n')
    runc.chmod(runc.stat().st_mode | stat.S_IXUSR)
    program = tmp_path / "runtime"
    runtime.write_runtime(program, runc)

    done = subprocess.run([program, "create", "--bundle", bundle, "id"], capture_output=True, text=True, check=True)

    process = json.loads(done.stdout)["process"]
    assert process == {"capabilities": {"bounding": ["CAP_CHOWN"], "effective": []}, "args": ["sh"]}
    assert (tmp_path / "words").read_text().split() == ["create", "--bundle", str(bundle), "id"]


def docker_that(directory: Path, script: str) -> dict[str, str]:
    """An environment whose `docker` is a script."""
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{directory}:{os.defpath}", "HOME": str(directory)}


def test_engines_that_count(tmp_path: Path) -> None:
    """Only an engine that answers, and that is reached by a socket of this computer, is one for machines."""
    answering = docker_that(tmp_path, "case $1 in context) echo unix:///run/here.sock;; version) echo 27;; esac")
    assert answering_host(answering) == "unix:///run/here.sock"
    assert answering_host({**answering, "DOCKER_HOST": "tcp://192.0.2.1:2375"}) is None
    assert answering_host(docker_that(tmp_path, "exit 1")) is None
    assert answering_host({"PATH": str(tmp_path / "nothing")}) is None


def test_another_process_is_not_the_engine(tmp_path: Path) -> None:
    """A pid that another process has by now is not taken for the engine, and is not stopped."""
    engine = Engine({"HOME": str(tmp_path)})
    assert engine.host == f"unix://{tmp_path}/.cache/capox/docker/docker.sock"
    assert not engine.is_running
    assert not engine.stop()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        engine.directory.mkdir(parents=True)
        (engine.directory / "dockerd.json").write_text(json.dumps({"pid": stranger.pid, "start_ticks": 1, "boot": "?"}))
        assert not engine.stop()
        assert stranger.poll() is None
