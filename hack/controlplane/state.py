"""The control planes that people bring up by name, each in a directory of its own.

A directory holds everything of one control plane. `down` removes it: what was stopped does not come back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.paths import state_directory
from hack.controlplane.processes import Running, left_running, stop_left_running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_RECORD: Final = "controlplane.json"


@dataclass(frozen=True)
class Record:
    """What is known of a control plane that came up.

    Attributes:
        server: URL of its apiserver.
        kubeconfig: path of the administrator's kubeconfig.
        kubernetes: version of Kubernetes.
        cluster_api: version of Cluster API, None when it was left out.
        phases: seconds after which each phase of the start was over.
    """

    server: str
    kubeconfig: str
    kubernetes: str
    cluster_api: str | None
    phases: dict[str, float]


class NamedControlPlane:
    """One name and its directory.

    Args:
        name: what the person calls it.
        environ: environment variables; HOME and XDG_STATE_HOME are read.

    Raises:
        ControlPlaneError: the name cannot be one.
    """

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        if not _NAME.fullmatch(name):
            raise ControlPlaneError(
                f"--name {name}: a name has 1 to 32 characters of a-z, 0-9 and -, and neither begins nor ends with -",
            )
        self.name = name
        self._parent = state_directory(environ)
        self.directory = self._parent / name

    @property
    def commands(self) -> Path:
        """Directory for PATH: kubectl and clusterctl."""
        return self.directory / "bin"

    @property
    def logs(self) -> Path:
        """Directory of the logs."""
        return self.directory / "logs"

    def running(self) -> list[Running]:
        """Its processes that live."""
        return left_running(self.directory)

    def record(self) -> Record | None:
        """What was recorded when it had come up; None when it never did."""
        try:
            return Record(**json.loads((self.directory / _RECORD).read_text()))
        except FileNotFoundError:
            return None

    def write_record(self, record: Record) -> None:
        """Record that it has come up."""
        (self.directory / _RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n")

    def remove(self) -> list[str]:
        """Stop what runs and remove the directory.

        Returns:
            Names of the programs that were stopped.
        """
        stopped = stop_left_running(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        return stopped

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the name against another command that brings it up or down.

        Raises:
            ControlPlaneError: such a command is at work.
        """
        self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._parent / f".{self.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ControlPlaneError(
                    f"Another command is bringing the control plane {self.name!r} up or down"
                ) from None
            yield


def all_named(environ: Mapping[str, str]) -> list[NamedControlPlane]:
    """Every control plane that has a directory, by name."""
    parent = state_directory(environ)
    if not parent.is_dir():
        return []
    names = sorted(path.name for path in parent.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))
    return [NamedControlPlane(name, environ) for name in names]
