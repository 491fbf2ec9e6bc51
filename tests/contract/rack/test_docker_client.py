"""What the rack asks of `docker`: who may answer, what it is told, and what becomes of complaints.

A script stands in for the program; what Docker itself makes of the commands is tested in tests/e2e.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capox.rack import main
from capox.rack.guests.docker_cli import Docker, DockerError, NoSuchThingError
from capox.rack.guests.shell import Shell
from tests.leaks import find_leaks
from tests.rack_process import CONFIG, RackProcess

TOKEN = "oxide-token-that-docker-need-not-know"


def docker_that(directory: Path, script: str, **variables: str) -> Docker:
    """A client whose `docker` is a script."""
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Docker({"PATH": os.defpath, **variables}, str(program))


async def test_only_an_engine_of_this_computer(tmp_path: Path) -> None:
    """An engine elsewhere is refused, whether the environment or a context names it; one that is here has to answer."""
    elsewhere = docker_that(tmp_path, "echo ssh://somewhere")
    with pytest.raises(DockerError, match="ssh://somewhere"):
        await elsewhere.require_local()
    with pytest.raises(DockerError, match="tcp://192"):
        await docker_that(tmp_path, "exit 0", DOCKER_HOST="tcp://192.0.2.1:2375").require_local()
    await docker_that(tmp_path, "echo 27", DOCKER_HOST="unix:///run/docker.sock").require_local()
    with pytest.raises(DockerError, match="Cannot connect"):
        await docker_that(
            tmp_path, "echo Cannot connect >&2; exit 1", DOCKER_HOST="unix:///run/docker.sock"
        ).require_local()


async def test_tokens_stay_with_the_rack(tmp_path: Path) -> None:
    """Of the rack's environment `docker` gets what it needs to find its engine, and no token."""
    docker = docker_that(tmp_path, "env", DOCKER_HOST="unix:///here", CAPOX_RACK_TOKEN=TOKEN)
    environment = await docker.text("anything")
    assert "DOCKER_HOST=unix:///here" in environment
    assert find_leaks({"the token": TOKEN.encode()}, {"the environment of docker": environment}) == []


async def test_complaints(tmp_path: Path) -> None:
    """What is not there is told from what does not work; a client that is missing is named."""
    gone = docker_that(tmp_path, "echo 'Error: No such container: first' >&2; exit 1")
    with pytest.raises(NoSuchThingError, match="docker container inspect: Error: No such container: first"):
        await gone.inspect("container", "first")
    with pytest.raises(DockerError, match="cannot be run"):
        await Docker({}, str(tmp_path / "nothing")).text("version")


async def test_following(tmp_path: Path) -> None:
    """What a command writes comes while it runs, and its end is the end."""
    docker = docker_that(tmp_path, "echo one; echo two")
    assert b"".join([chunk async for chunk in docker.follow("logs")]) == b"one\ntwo\n"


async def test_a_shell_is_kept(tmp_path: Path) -> None:
    """Scripts share one process, end at what fails with the words of that, and do not disturb the next one."""
    docker = docker_that(tmp_path, "shift 3; exec /bin/sh")
    shell = Shell(docker, "edge")
    try:
        assert await shell.run("echo one\necho two") == "one\ntwo"
        with pytest.raises(DockerError, match=r"container edge: .*ls /nothing.*(No such|cannot access)"):
            await shell.run("ls /nothing\necho not reached")
        first, second = await shell.run("echo $PPID"), await shell.run("echo $PPID")
        assert first == second
        assert await shell.run("cat <<'END'\n$literally\nEND\n") == "$literally"
    finally:
        await shell.close()


async def test_a_shell_whose_container_goes(tmp_path: Path) -> None:
    """A container that is gone is a complaint rather than a wait."""
    shell = Shell(docker_that(tmp_path, "exit 1"), "edge")
    with pytest.raises(DockerError, match="edge of the rack's networks is gone"):
        await shell.run("true")
    await shell.close()


def test_nobody_is_changed_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody can be asked, the rack says what it would change and does not start (exit code 2)."""
    monkeypatch.setenv("CAPOX_RACK_STATE_DIR", str(tmp_path))
    assert main.main(["--guests", "docker", "--guest-image", "node:1", "--listen", "127.0.0.1:0"]) == 2
    said = capsys.readouterr().err
    assert "network interface capox-rack" in said
    assert "--allow-host-changes" in said
    assert main.main(["--guests", "docker", "--mode", "commanded", "--allow-host-changes"]) == 2
    assert "mode commanded" in capsys.readouterr().err


def test_without_an_engine(tmp_path: Path) -> None:
    """A rack that is to have guests and finds no engine says so and does not start."""
    variables = {
        "PATH": os.environ["PATH"],
        "DOCKER_HOST": f"unix://{tmp_path}/nothing.sock",
        "CAPOX_RACK_STATE_DIR": str(tmp_path / "state"),
    }
    rack = RackProcess(
        tmp_path, CONFIG, "--guests", "docker", "--guest-image", "n:1", "--allow-host-changes", variables=variables
    )
    with pytest.raises(AssertionError, match="capox rack: guests: docker"), rack:
        pass
