"""The settings of the host that guests need otherwise, or that they change: noted, set, and put back.

They concern the whole computer, so nobody changes them unasked (`questions`), and all racks of the computer share one
record of what they were (`host_record`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from capox.rack.guests.host_record import HostRecordFile, User
from capox.rack.guests.wiring import Network

Shell = Callable[[str], Awaitable[str]]
"""Runs a script where the host's settings can be written, and gives what it writes."""

# A machine with systemd and a kubelet watches many files; with the kernel's defaults the second one fails.
_AT_LEAST: Final = {"fs.inotify.max_user_instances": 8192, "fs.inotify.max_user_watches": 1_048_576}
# What a kubelet writes, and systemd with what distributions give it. In a privileged container these are the host's.
_WRITTEN_BY_GUESTS: Final = {
    "fs.file-max": "9223372036854775807",
    "fs.nr_open": "1073741816",
    "fs.protected_fifos": "1",
    "fs.protected_hardlinks": "1",
    "fs.protected_regular": "2",
    "fs.protected_symlinks": "1",
    "kernel.keys.root_maxbytes": "25000000",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.pid_max": "4194304",
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
}
_CONNECTIONS: Final = "net.netfilter.nf_conntrack_max"
_CONNECTIONS_PER_CPU: Final = 32_768
_CONNECTIONS_MINIMUM: Final = 131_072

_SETTINGS: Final = Path("/proc/sys")

_logger = structlog.get_logger()


def questions(device: str, uplink: Network, pools: Sequence[Network], cpus: int) -> list[str]:
    """What is going to be changed on this computer, a line each."""
    wanted = _wanted(cpus)
    routes = ", ".join(map(str, pools)) or "no network"
    return [
        f"add a network interface {device} with {uplink[1]}/{uplink.prefixlen} and routes to {routes}",
        *(f"set {name} to at least {wanted[name]}" for name in _AT_LEAST),
        f"set {_CONNECTIONS} to {wanted[_CONNECTIONS]}, which kube-proxy asks for",
        f"let privileged containers run; what is in one writes {', '.join(_WRITTEN_BY_GUESTS)}",
    ]


class HostSettings:
    """The settings of this computer while a rack has guests.

    Args:
        directory: where all racks of this computer keep their record.
        pid: the process that stands for the rack; absent, this one.
        tree: where the kernel shows its settings.
    """

    def __init__(self, directory: Path, pid: int | None = None, tree: Path = _SETTINGS) -> None:
        self._file = HostRecordFile(directory)
        self._user = User.of(os.getpid() if pid is None else pid)
        self._tree = tree

    async def apply(self, shell: Shell, cpus: int) -> None:
        """Note what the settings are, and change those that guests need otherwise.

        Raises:
            RecordError: they cannot be noted.
        """
        assert self._user is not None, "a rack that is not there has no guests"
        wanted = _wanted(cpus)
        async with self._file.alone():
            found = await self._read(shell, [*wanted, *_WRITTEN_BY_GUESTS])
            changes = {
                name: str(value)
                for name, value in wanted.items()
                if name in found and not _is_enough(name, int(found[name]), value)
            }
            # Noted before it is done: whoever ends in between has left a note of everything that may have happened.
            self._file.write(self._file.read().joined(self._user, found, changes | _WRITTEN_BY_GUESTS))
            await self._write(shell, changes)

    async def restore(self, shell: Shell) -> None:
        """Put back what nobody uses any more, which is everything when no other rack has guests.

        Raises:
            RecordError: what was noted cannot be read.
        """
        async with self._file.alone():
            record = self._file.read().left(self._user)
            if record.users:
                self._file.write(record)
                _logger.info("Leaving settings of this computer to other racks", racks=len(record.users))
                return
            found = await self._read(shell, list(record.before))
            for name, value in record.to_leave(found).items():
                _logger.info("Leaving a setting of this computer that was changed meanwhile", setting=name, value=value)
            await self._write(shell, record.to_put_back(found))
            self._file.remove()

    def _path(self, name: str) -> Path:
        return self._tree / name.replace(".", "/")

    async def _read(self, shell: Shell, names: Sequence[str]) -> dict[str, str]:
        """The values of settings; those that this kernel lacks are left out."""
        lines = [f'[ ! -r {path} ] || echo "{name} $(cat {path})"\n' for name in names for path in (self._path(name),)]
        answer = await shell("".join(lines)) if lines else ""
        return dict(line.split(" ", 1) for line in answer.splitlines())

    async def _write(self, shell: Shell, values: Mapping[str, str]) -> None:
        if values:
            await shell("".join(f"echo {value} >{self._path(name)}\n" for name, value in values.items()))


def _wanted(cpus: int) -> dict[str, int]:
    return {**_AT_LEAST, _CONNECTIONS: max(_CONNECTIONS_PER_CPU * cpus, _CONNECTIONS_MINIMUM)}


def _is_enough(name: str, found: int, wanted: int) -> bool:
    """kube-proxy writes another value than its own, and dies because it may not; of the rest there can be more."""
    return found == wanted if name == _CONNECTIONS else found >= wanted
