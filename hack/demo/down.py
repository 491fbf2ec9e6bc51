"""The end of a demo: nothing of it is left, on this computer or in a cluster that was there before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hack.controlplane.processes import stop_left_running
from hack.controlplane.progress import Reporter
from hack.controlplane.state import NamedControlPlane
from hack.demo import departure
from hack.demo.management import ExistingCluster
from hack.demo.memory import Memory, recall, remember
from hack.demo.rack import RACK_NAME
from hack.docker.engine import Engine, docker_answer

__all__ = ["has_provider", "settle", "take_down"]

_DOCKER_SECONDS: Final = 60.0
_BUILD_SECONDS: Final = 10.0
"""The container of a build that was interrupted goes within this time."""
_LOOK_SECONDS: Final = 0.5
_LABEL: Final = f"label=capox.rack={RACK_NAME}"


def take_down(
    named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter, *, is_abandoned: bool = False
) -> list[str]:
    """Stop everything and remove what it left.

    Args:
        named: the demo's name and directory.
        environ: environment variables.
        reporter: where progress goes.
        is_abandoned: whether a management cluster that was there before is left as it is.

    Returns:
        What was stopped, in words for the person.

    Raises:
        DepartureError: something is left in such a cluster. What another try needs is kept: the memory, the kubeconfig,
            and the provider and the rack, if they run.
    """
    memory = recall(named)
    if memory.is_installed and not is_abandoned:
        with reporter.stage("Leaving the management cluster", expected_seconds=40):
            cluster = ExistingCluster("", named.directory, environ, reporter)
            departure.leave(cluster, has_provider=has_provider(named))
        # From here on a second try has nothing to do there.
        memory = replace(memory, is_installed=False)
        remember(named, memory)
    if named.running():
        with reporter.stage("Stopping the demo", expected_seconds=10):
            stopped = stop_left_running(named.directory)
    else:
        stopped = []
    if memory.docker_host:
        _remove_containers(memory.docker_host, environ)
    if _stop_engine(memory, environ):
        stopped.append("the Docker engine")
    # Last, because it has the memory.
    named.remove()
    return stopped


def settle(named: NamedControlPlane, environ: Mapping[str, str]) -> None:
    """After a demo that did not come up: stop the engine that was started for it, and forget what is not there.

    What runs on, or is left in a management cluster, needs what is remembered, and `take_down` needs it after that.
    """
    memory = recall(named)
    if named.running() or memory.is_installed or memory == Memory():
        return
    is_engine_left = memory.is_engine_ours and not _stop_engine(memory, environ)
    if not is_engine_left and not _docker(memory.docker_host, environ, "ps", "-aq", "--filter", _LABEL):
        remember(named, Memory())


def has_provider(named: NamedControlPlane) -> bool:
    """Whether the demo's provider runs."""
    return "capox-provider" in {process.name for process in named.running()}


def _stop_engine(memory: Memory, environ: Mapping[str, str]) -> bool:
    """Stop the engine if the demo has started it and nobody else has taken to it; whether it was stopped."""
    return memory.is_engine_ours and _is_idle(memory, environ) and Engine(environ).stop()


def _remove_containers(docker_host: str, environ: Mapping[str, str]) -> None:
    """Remove what a rack that was killed has left in Docker; one that ended by itself has left nothing."""
    for listing, removal in ((("ps", "-aq"), ("rm", "-f", "-v")), (("volume", "ls", "-q"), ("volume", "rm", "-f"))):
        found = _docker(docker_host, environ, *listing, "--filter", _LABEL).split()
        if found:
            _docker(docker_host, environ, *removal, *found)


def _is_idle(memory: Memory, environ: Mapping[str, str]) -> bool:
    """Whether nobody else has taken to the engine that the demo has started."""
    deadline = time.monotonic() + _BUILD_SECONDS
    while _docker(memory.docker_host, environ, "ps", "-q"):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _docker(docker_host: str, environ: Mapping[str, str], *words: str) -> str:
    return docker_answer({**environ, "DOCKER_HOST": docker_host}, *words, timeout_seconds=_DOCKER_SECONDS)
