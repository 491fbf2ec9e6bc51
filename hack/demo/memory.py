"""What `down` has to know of the demo that is up, beside its processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hack.controlplane.state import NamedControlPlane

__all__ = ["Memory", "recall", "remember"]

_FILE: Final = "demo.json"


@dataclass(frozen=True)
class Memory:
    """What the demo has begun that does not end with its processes.

    Attributes:
        is_installed: whether the provider's kinds were put into a cluster that was there before.
        docker_host: the engine with the rack's machines; empty without machines.
        is_engine_ours: whether that engine was started for the demo.
    """

    is_installed: bool = False
    docker_host: str = ""
    is_engine_ours: bool = False


def remember(named: NamedControlPlane, memory: Memory) -> None:
    """Write it down, before what it tells of is done."""
    named.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (named.directory / _FILE).write_text(json.dumps(asdict(memory)) + "\n")


def recall(named: NamedControlPlane) -> Memory:
    """What was written down; nothing where there is no demo."""
    try:
        return Memory(**json.loads((named.directory / _FILE).read_text()))
    except FileNotFoundError:
        return Memory()
