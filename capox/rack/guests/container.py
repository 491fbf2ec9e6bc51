"""Containers as words for `docker`, and what their ends mean. It computes and changes nothing.

No secret is ever among the words: other users of the computer can read them.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

EDGE = "edge"

_DEVICE_CHARACTERS = 15

# PID 1 of a container that calls reboot(2) is ended by one of two signals, which tell restart from power-off.
_RESTART_CODES = frozenset({128 + 1})
_POWER_OFF_CODES = frozenset({0, 128 + 2})

Ending = Literal["restart", "power_off", "crash"]

# Holds the guest's init back until the NIC has its default route, with nothing but the shell itself.
_GATE = (
    'until while read -r _ to _; do [ $to = 00000000 ] && break; done </proc/net/route; do sleep 0.1; done; exec "$@"'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labels:
    """What tells our containers and volumes from everybody else's.

    Attributes:
        rack: the name of the rack that they belong to.
    """

    rack: str

    @property
    def words(self) -> list[str]:
        """The options that put the label on something."""
        return ["--label", f"capox.rack={self.rack}"]

    @property
    def filter(self) -> list[str]:
        """The options that list only what has the label."""
        return ["--filter", f"label=capox.rack={self.rack}"]

    @property
    def device(self) -> str:
        """The name of the interface of ours on the host."""
        return self.name()[:_DEVICE_CHARACTERS].rstrip("-")

    def name(self, *parts: str) -> str:
        """A name for something of ours."""
        return "-".join(["capox", self.rack, *parts])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A guest's container.

    Attributes:
        instance: the id of its instance.
        name: the container's name.
        hostname: the instance's.
        image: what it is made from.
        start: the words of the image's entry point and command.
        volumes: the names of its volumes, and where each is in the guest.
        memory_bytes: how much memory it may use.
        cpus: how many of the host's CPUs it may use.
        dns: the name server that it is told.
        is_on_network: whether it has a NIC to wait for.
    """

    instance: str
    name: str
    hostname: str
    image: str
    start: tuple[str, ...]
    volumes: tuple[tuple[str, str], ...]
    memory_bytes: int
    cpus: int
    dns: str
    is_on_network: bool

    def words(self, labels: Labels) -> list[str]:
        """The command that makes the container, without starting it."""
        words = ["create", "--name", self.name, "--hostname", self.hostname, *labels.words]
        words += ["--label", f"capox.instance={self.instance}"]
        # An init system needs all of this; so does a kubelet. It makes the guest as strong as the host's root.
        words += ["--privileged", "--cgroupns=private", "--tmpfs", "/tmp", "--tmpfs", "/run"]  # noqa: S108 -- the guest's
        words += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
        words += ["--network", "none", "--dns", self.dns, "--tty"]
        words += ["--log-driver", "json-file", "--log-opt", "max-size=8m", "--log-opt", "max-file=2"]
        words += ["--memory", str(self.memory_bytes), "--cpus", str(self.cpus)]
        for volume, place in self.volumes:
            words += ["--mount", f"type=volume,source={volume},target={place}"]
        gate = _GATE if self.is_on_network else 'exec "$@"'
        return [*words, "--entrypoint", "/bin/sh", self.image, "-c", gate, "init", *self.start]


def edge_words(labels: Labels, image: str) -> list[str]:
    """The command that starts the container in which the rack's networks are."""
    words = ["run", "--detach", "--name", labels.name(EDGE), *_on_host(labels, image)]
    # The shell is PID 1 of nothing, so a signal ends it.
    return [*words, "-c", "while :; do sleep 3600; done"]


def single_words(labels: Labels, image: str) -> list[str]:
    """The command that runs one script, which it reads, in a container that is as strong as the edge's."""
    return ["run", "--rm", "--interactive", *_on_host(labels, image), "-eu"]


def _on_host(labels: Labels, image: str) -> list[str]:
    words = [*labels.words, "--privileged", "--pid", "host", "--network", "none"]
    return [*words, "--entrypoint", "/bin/sh", image]


def ending(code: int) -> Ending:
    """What it means that a container has ended by itself with this exit code."""
    if code in _RESTART_CODES:
        return "restart"
    return "power_off" if code in _POWER_OFF_CODES else "crash"
