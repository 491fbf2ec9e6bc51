"""The settings of the host that guests need otherwise, or that they change: noted, set, and put back.

They concern the whole computer, so nobody changes them unasked (`questions`). What they were is kept in a file until it
has been put back, also when the rack is killed meanwhile: the next one with its name does it then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from capox.rack.guests.wiring import Network

Shell = Callable[[str], Awaitable[str]]
"""Runs a script where the host's settings can be written, and gives what it writes."""

# A machine with systemd and a kubelet watches many files; with the kernel's defaults the second one fails.
_AT_LEAST: Final = {"fs.inotify.max_user_instances": 8192, "fs.inotify.max_user_watches": 1_048_576}
# A kubelet writes these, and they are the host's as well.
_KEPT: Final = (
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
)
_CONNECTIONS: Final = "net.netfilter.nf_conntrack_max"
_CONNECTIONS_PER_CPU: Final = 32_768
_CONNECTIONS_MINIMUM: Final = 131_072


def questions(device: str, uplink: Network, pools: Sequence[Network], cpus: int) -> list[str]:
    """What is going to be changed on this computer, a line each."""
    wanted = _wanted(cpus)
    routes = ", ".join(map(str, pools)) or "no network"
    return [
        f"add a network interface {device} with {uplink[1]}/{uplink.prefixlen} and routes to {routes}",
        *(f"set {name} to at least {wanted[name]}" for name in _AT_LEAST),
        f"set {_CONNECTIONS} to {wanted[_CONNECTIONS]}, which kube-proxy asks for",
        f"let privileged containers run; a kubelet in one writes {', '.join(_KEPT)}",
    ]


class HostSettings:
    """The settings of this computer while a rack has guests.

    Args:
        record: the file in which they are kept.
    """

    def __init__(self, record: Path) -> None:
        self._record = record

    async def apply(self, shell: Shell, cpus: int) -> None:
        """Note what the settings are, and change those that guests need otherwise."""
        wanted = _wanted(cpus)
        found = await _read(shell, [*wanted, *_KEPT])
        if not self._record.exists():
            _write_file(self._record, json.dumps(found))
        changes = {}
        for name, value in wanted.items():
            if name in found and not _is_enough(name, int(found[name]), value):
                changes[name] = str(value)
        await _write(shell, changes)

    async def restore(self, shell: Shell) -> None:
        """Put everything back."""
        if not self._record.exists():
            return
        before: dict[str, str] = json.loads(self._record.read_text())
        now = await _read(shell, list(before))
        await _write(shell, {name: value for name, value in before.items() if now.get(name) != value})
        self._record.unlink()


def _wanted(cpus: int) -> dict[str, int]:
    return {**_AT_LEAST, _CONNECTIONS: max(_CONNECTIONS_PER_CPU * cpus, _CONNECTIONS_MINIMUM)}


def _is_enough(name: str, found: int, wanted: int) -> bool:
    """kube-proxy writes another value than its own, and dies because it may not; of the rest there can be more."""
    return found == wanted if name == _CONNECTIONS else found >= wanted


def _path(name: str) -> str:
    return f"/proc/sys/{name.replace('.', '/')}"


def _in_host(script: str) -> str:
    """The same script with the host's network, whose settings are apart."""
    return f"nsenter -t {os.getpid()} -n /bin/sh -eu <<'END'\n{script}END\n"


async def _read(shell: Shell, names: Sequence[str]) -> dict[str, str]:
    """The values of settings; those that this kernel lacks are left out."""
    lines = [f'[ ! -r {_path(name)} ] || echo "{name} $(cat {_path(name)})"\n' for name in names]
    answer = await shell(_in_host("".join(lines)))
    return dict(line.split(" ", 1) for line in answer.splitlines())


async def _write(shell: Shell, values: dict[str, str]) -> None:
    if values:
        await shell(_in_host("".join(f"echo {value} >{_path(name)}\n" for name, value in values.items())))


def _write_file(path: Path, text: str) -> None:
    """Written beside and renamed, so that it is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.replace(path)
