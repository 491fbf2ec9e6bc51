"""Start, watch and stop the programs of a control plane, through their keeper.

`Processes` is the owner's side of `keeper`: closing it, or the end of this Python process by whatever means, ends every
program. The second half finds and stops what an earlier command left running.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hack.controlplane import keeper
from hack.controlplane.errors import StartError
from hack.controlplane.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_POLL_SECONDS: Final = 0.05
_LOG_TAIL_LINES: Final = 20
_MARGIN_SECONDS: Final = 10.0
"""What the end of a keeper may take beside the graces of its programs."""

TIER_STORAGE: Final = 0
TIER_APISERVER: Final = 1
TIER_CLIENT: Final = 2
"""Who needs whom: etcd nobody, an apiserver etcd, everything else an apiserver."""


class Processes:
    """Programs that end with their owner.

    Args:
        directory: working directory of the programs and place of the state file; exists.
        leases: directory of the port locks (`paths.lease_directory`).
        logs: directory of the log files, `<name>.log`; exists.
    """

    def __init__(self, directory: Path, leases: Path, logs: Path) -> None:
        self._directory = directory
        self._logs = logs
        # Threads may start programs at the same time; one request and its answer are one exchange.
        self._lock = threading.Lock()
        self._is_detached = False
        with (logs / "keeper.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-S", "-m", "hack.controlplane.keeper", str(directory), str(leases)],
                env={"PYTHONPATH": str(REPOSITORY), "PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def lease_ports(self, count: int) -> list[int]:
        """Ports on loopback, held for as long as the keeper lives."""
        ports: list[int] = self._ask({"op": "ports", "count": count})["ports"]
        return ports

    def start(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        environ: Mapping[str, str] | None = None,
        *,
        tier: int = TIER_CLIENT,
        grace_seconds: float = keeper.GRACE_SECONDS,
    ) -> int:
        """Start a program.

        Args:
            name: unique among the programs of this owner; its output goes to `<name>.log`.
            argv: program and arguments. Arguments are visible to every user of the computer: no secrets.
            environ: its environment; empty unless given, so that nothing of the user's own leaks in.
            tier: programs of a higher tier are stopped before those of a lower one.
            grace_seconds: how long it may take to end after SIGTERM, however its end comes about.

        Returns:
            Its pid.
        """
        request = {
            "op": "start",
            "name": name,
            "argv": [os.fspath(argument) for argument in argv],
            "env": dict(environ or {}),
            "log": str(self.log_path(name)),
            "tier": tier,
            "grace_seconds": grace_seconds,
        }
        pid: int = self._ask(request)["pid"]
        return pid

    def log_path(self, name: str) -> Path:
        """The log file of a program."""
        return self._logs / f"{name}.log"

    def wait_until(
        self, name: str, is_ready: Callable[[], bool], *, within_seconds: float, what: str = "ready"
    ) -> None:
        """Wait for a state that a program brings about.

        Args:
            name: the program; its end before the state is reached is a failure at once.
            is_ready: asked about 20 times a second.
            within_seconds: the bound.
            what: the state, for the message.

        Raises:
            StartError: the program ended or the bound passed; the message has the end of its log.
        """
        deadline = time.monotonic() + within_seconds
        while not is_ready():
            exit_code = self.exit_code(name)
            if exit_code is not None:
                raise StartError(
                    f"{name} ended with exit code {exit_code} before it was {what}. {self._log_excerpt(name)}"
                )
            if time.monotonic() > deadline:
                raise StartError(f"{name} was not {what} within {within_seconds:.0f} s. {self._log_excerpt(name)}")
            time.sleep(_POLL_SECONDS)

    def exit_code(self, name: str) -> int | None:
        """Exit code of a program that has ended (minus the signal that killed it), None while it runs."""
        code: int | None = self._ask({"op": "state", "name": name})["exit_code"]
        return code

    def stop(self, *names: str) -> None:
        """End programs: SIGTERM, and SIGKILL to what is left after its grace."""
        self._ask({"op": "stop", "names": list(names)})

    def detach(self) -> None:
        """Leave the programs running when this process ends; `stop_left_running` ends them."""
        self._ask({"op": "detach"})
        self._is_detached = True

    def close(self) -> None:
        """End every program, or after `detach` only let go of them."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        stop_seconds = _stop_seconds(self._directory)
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        if self._is_detached:
            # Popen complains of a child that outlives it, which is what was asked for here.
            self._keeper.returncode = 0
        else:
            try:
                self._keeper.wait(stop_seconds)
            except subprocess.TimeoutExpired:
                # The kernel kills the programs with it.
                self._keeper.kill()
                self._keeper.wait()
        self._keeper.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with self._lock:
            try:
                self._keeper.stdin.write(json.dumps(request).encode() + b"\n")
                self._keeper.stdin.flush()
            except (BrokenPipeError, ValueError):
                line = b""
            else:
                line = self._keeper.stdout.readline()
        if not line:
            raise StartError(f"The keeper of the control plane's processes is gone. {self._log_excerpt('keeper')}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise StartError(f"{request['op']} {request.get('name', '')}: {answer['error']}")
        return answer

    def _log_excerpt(self, name: str) -> str:
        path = self.log_path(name)
        lines = path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:] if path.exists() else []
        return f"End of {path}:\n" + ("\n".join(lines) or "(empty)")


@dataclass(frozen=True)
class Running:
    """A process that was found alive.

    Attributes:
        name: the program, or `keeper`.
        pid: its process id.
        memory_mb: resident memory in MB.
    """

    name: str
    pid: int
    memory_mb: int


def left_running(directory: Path) -> list[Running]:
    """The processes of a control plane that still live, the keeper first. Empty when it is down.

    Args:
        directory: the one given to `Processes`.
    """
    try:
        state = json.loads((directory / keeper.STATE_FILE).read_text())
    except FileNotFoundError:
        return []
    recorded = {"keeper": state["keeper"], **state["processes"]}
    return [
        Running(name, identity["pid"], _memory_mb(identity["pid"]))
        for name, identity in recorded.items()
        if is_running(identity)
    ]


def stop_left_running(directory: Path) -> list[str]:
    """End what a control plane has running: its keeper by SIGTERM, and by SIGKILL what that did not end.

    Args:
        directory: the one given to `Processes`.

    Returns:
        Names of what was ended.
    """
    state_file = directory / keeper.STATE_FILE
    running = left_running(directory)
    if not running:
        state_file.unlink(missing_ok=True)
        return []
    recorded = json.loads(state_file.read_text())
    identities = {"keeper": recorded["keeper"], **recorded["processes"]}
    stop_seconds = _stop_seconds(directory)
    if is_running(identities["keeper"]):
        os.kill(identities["keeper"]["pid"], signal.SIGTERM)
        _wait_for_end(identities["keeper"], stop_seconds)
    for identity in identities.values():
        if is_running(identity):
            with contextlib.suppress(ProcessLookupError):
                os.kill(identity["pid"], signal.SIGKILL)
            _wait_for_end(identity, _MARGIN_SECONDS)
    state_file.unlink(missing_ok=True)
    return [process.name for process in running if process.name != "keeper"]


def is_running(identity: dict[str, Any]) -> bool:
    """Whether the recorded process lives. A pid alone proves nothing: another process may have it by now."""
    try:
        return keeper.identify(identity["pid"]) == identity and not _is_zombie(identity["pid"])
    except ProcessLookupError:
        return False


def _stop_seconds(directory: Path) -> float:
    """Bound on the end of a keeper, after which it is killed: the graces of its programs, and some."""
    try:
        state = json.loads((directory / keeper.STATE_FILE).read_text())
    except FileNotFoundError:
        return _MARGIN_SECONDS
    # A keeper of an earlier version has not said it; its programs had the usual grace each, in three tiers.
    graces: float = state.get("stop_seconds", 3 * keeper.GRACE_SECONDS)
    return graces + _MARGIN_SECONDS


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _wait_for_end(identity: dict[str, Any], within_seconds: float) -> None:
    deadline = time.monotonic() + within_seconds
    while is_running(identity) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _memory_mb(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
    return 0
