"""The end of a demo: nothing of it is left, on this computer or in a cluster that was there before."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final

from hack.controlplane.progress import Reporter
from hack.controlplane.state import NamedControlPlane
from hack.demo import departure
from hack.demo.management import ExistingCluster
from hack.demo.memory import Memory, recall
from hack.demo.rack import RACK_NAME
from hack.docker.engine import Engine

__all__ = ["take_down"]

_DOCKER_SECONDS: Final = 60.0


def take_down(named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter) -> list[str]:
    """Stop everything and remove what it left.

    Returns:
        What was stopped, in words for the person.
    """
    memory = recall(named)
    if memory.is_installed:
        with reporter.stage("Leaving the management cluster", expected_seconds=40):
            has_provider = "capox-provider" in {process.name for process in named.running()}
            departure.leave(ExistingCluster("", named, environ, reporter), has_provider=has_provider)
    if named.running():
        with reporter.stage("Stopping the demo", expected_seconds=10):
            stopped = named.remove()
    else:
        stopped = named.remove()
    if memory.docker_host:
        _remove_containers(memory.docker_host, environ)
    if memory.is_engine_ours and _is_idle(memory, environ) and Engine(environ).stop():
        stopped.append("the Docker engine")
    return stopped


def _remove_containers(docker_host: str, environ: Mapping[str, str]) -> None:
    """Remove what a rack that was killed has left in Docker; one that ended by itself has left nothing."""
    label = f"label=capox.rack={RACK_NAME}"
    for listing, removal in ((("ps", "-aq"), ("rm", "-f", "-v")), (("volume", "ls", "-q"), ("volume", "rm", "-f"))):
        found = _docker(docker_host, environ, *listing, "--filter", label).split()
        if found:
            _docker(docker_host, environ, *removal, *found)


def _is_idle(memory: Memory, environ: Mapping[str, str]) -> bool:
    """Whether nobody else has taken to the engine that the demo has started."""
    return not _docker(memory.docker_host, environ, "ps", "-q").strip()


def _docker(docker_host: str, environ: Mapping[str, str], *words: str) -> str:
    """The answer of a command of docker; empty when it failed, as when the engine is not there any more."""
    try:
        done = subprocess.run(
            ["docker", *words],
            env={**environ, "DOCKER_HOST": docker_host},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOCKER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
