"""The process that keeps a control plane's programs, and ends them when nobody wants them any more.

Run as `python -m hack.controlplane.keeper DIRECTORY LEASES`. It reads requests from standard input, one JSON object a
line, and answers each with one line on standard output:

    {"op": "start", "name", "argv", "env", "log", "tier", "grace_seconds"}  -> {"pid": 123}
    {"op": "state", "name"}                                                 -> {"exit_code": null | number}
    {"op": "stop", "names"}                                                 -> {}
    {"op": "ports", "count"}                                                -> {"ports": [...]}
    {"op": "detach"}                                                        -> {}

What cannot be done is answered with {"error": "..."}. Programs of a higher tier need those of a lower one and are
stopped before them: an apiserver whose etcd is gone takes its whole grace to end. The grace is each program's own: a
rack with guests has containers to remove and settings to put back, which takes it longer than others.

Why a process of its own: the programs must end however their owner ends, also by SIGKILL. When standard input closes,
the owner is gone, and the keeper stops everything. Should the keeper itself be killed, the kernel kills the programs
(PR_SET_PDEATHSIG; it goes by the *thread* that started a process, and the keeper has only one, which an owner, a test
session for one, cannot promise). After `detach` the owner's end means nothing and SIGTERM is what stops everything.

The module uses the standard library only and is started without site packages: that takes 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hack.controlplane.ports import NoPortError, PortLeases

STATE_FILE: Final = "processes.json"
"""In the keeper's directory: the keeper and what it has started, with what is needed to recognise them (`Identity`)."""

GRACE_SECONDS: Final = 5.0
"""How long a program may take to end after SIGTERM before it is killed, unless it was given longer."""

_PR_SET_PDEATHSIG: Final = 1


def identify(pid: int) -> dict[str, Any]:
    """What tells a process from another that later gets the same pid: pid, start time, boot.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None
    # The second field is the command in parentheses and may hold anything; start time is the 20th after it.
    start_ticks = int(stat.rpartition(")")[2].split()[19])
    return {"pid": pid, "start_ticks": start_ticks, "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}


def longest_stop(tiers: Mapping[str, int], graces: Mapping[str, float], names: Iterable[str]) -> float:
    """The seconds that the end of programs can take: the longest grace of each tier, one after the other."""
    longest: dict[int, float] = {}
    for name in names:
        longest[tiers[name]] = max(graces[name], longest.get(tiers[name], 0.0))
    return sum(longest.values())


class Keeper:
    """The programs of one control plane.

    Args:
        directory: where `processes.json` goes.
        leases: directory of the port locks.
    """

    def __init__(self, directory: Path, leases: Path) -> None:
        self._directory = directory
        self._leases = PortLeases(leases)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._tiers: dict[str, int] = {}
        self._graces: dict[str, float] = {}
        self._is_detached = False
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._record()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        try:
            match request["op"]:
                case "start":
                    return {"pid": self._start(request)}
                case "state":
                    return {"exit_code": self._children[request["name"]].poll()}
                case "stop":
                    self.stop(request["names"])
                    return {}
                case "ports":
                    return {"ports": self._leases.lease(request["count"])}
                case "detach":
                    self._is_detached = True
                    return {}
                case other:
                    return {"error": f"unknown request {other!r}"}
        except (OSError, NoPortError) as error:
            return {"error": str(error)}
        except KeyError as error:
            return {"error": f"nothing is known of {error}"}

    @property
    def is_detached(self) -> bool:
        """Whether the programs outlive the owner."""
        return self._is_detached

    @property
    def names(self) -> list[str]:
        """Names of the programs, in the order of their start."""
        return list(self._children)

    def _start(self, request: dict[str, Any]) -> int:
        keeper = os.getpid()

        def die_with_keeper() -> None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(1)

        with Path(request["log"]).open("ab") as output:
            # The keeper has one thread, so code between fork and exec is safe. A session of its own keeps the
            # terminal's Ctrl-C away: the keeper decides when a program ends.
            child = subprocess.Popen(
                request["argv"],
                env=request["env"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_keeper,  # noqa: PLW1509  one thread, as said above
            )
        self._children[request["name"]] = child
        self._tiers[request["name"]] = request["tier"]
        self._graces[request["name"]] = request["grace_seconds"]
        self._record()
        return child.pid

    def stop(self, names: list[str]) -> None:
        """End programs, the highest tier first: SIGTERM to all of a tier, SIGKILL to whom its grace has run out."""
        for tier in sorted({self._tiers[name] for name in self._children}, reverse=True):
            going = [
                (self._graces[name], self._children.pop(name))
                for name in self.names
                if name in names and self._tiers[name] == tier
            ]
            for _, child in going:
                _signal_group(child, signal.SIGTERM)
            begun = time.monotonic()
            for grace_seconds, child in sorted(going, key=lambda each: each[0]):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, begun + grace_seconds - time.monotonic()))
                _signal_group(child, signal.SIGKILL)
                child.wait()
        self._record()

    def _record(self) -> None:
        """Write `processes.json`, by rename: a reader sees the old or the new one."""
        processes = {}
        for name, child in self._children.items():
            if child.poll() is None:
                processes[name] = identify(child.pid)
        record = {
            "keeper": identify(os.getpid()),
            "processes": processes,
            "stop_seconds": longest_stop(self._tiers, self._graces, processes),
        }
        scratch = self._directory / f".{STATE_FILE}"
        scratch.write_text(json.dumps(record, indent=2) + "\n")
        scratch.rename(self._directory / STATE_FILE)

    def finish(self) -> None:
        """End everything, give the ports back, and forget."""
        self.stop(self.names)
        self._leases.release()
        (self._directory / STATE_FILE).unlink(missing_ok=True)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a program and whatever it started. Its group has its pid, which nobody else gets until it is reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def serve(keeper: Keeper) -> None:
    """Answer requests until the owner is gone or SIGTERM comes."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    stopping = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watched = [sys.stdin.fileno(), wake_read]
    rest = b""
    while not stopping:
        ready, _, _ = select.select(watched, [], [])
        if sys.stdin.fileno() not in ready:
            continue
        chunk = os.read(sys.stdin.fileno(), 1 << 16)
        if not chunk:
            if not keeper.is_detached:
                return
            watched = [wake_read]
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            answer = json.dumps(keeper.answer(json.loads(line))) + "\n"
            # The owner may be gone before it has read the answer; the end of its input says so.
            with contextlib.suppress(BrokenPipeError):
                sys.stdout.buffer.write(answer.encode())
                sys.stdout.buffer.flush()


def main() -> None:
    """Run until nobody wants the programs any more."""
    keeper = Keeper(Path(sys.argv[1]), Path(sys.argv[2]))
    try:
        serve(keeper)
    finally:
        keeper.finish()


if __name__ == "__main__":
    main()
