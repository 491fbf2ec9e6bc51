"""A guest image for tests that are about the rack and not about an operating system: this computer's own busybox.

Its init says what it is, counts its boots on its disk, and answers HTTP on three ports with its name and its client's
address. It also has the programs that the rack's networks are made of.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

IMAGE = "capox-e2e-small"
PORTS = (22, 6443, 8080)

_PROGRAMS = ("busybox", "conntrack", "ip", "nft", "nsenter")
_APPLETS = (
    *("cat", "echo", "hostname", "httpd", "ls", "mkdir", "nc", "poweroff", "readlink", "reboot"),
    *("sh", "sleep", "stat", "ping"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_INIT = f"""#!/bin/sh
export PATH={_PATH}
boots=$(cat /var/boots 2>/dev/null || echo 0)
boots=$((boots + 1))
echo $boots >/var/boots
echo "boot $boots of $(hostname)"
echo "seed $(cat /var/lib/cloud/seed/nocloud/meta-data)"
for port in {" ".join(map(str, PORTS))}; do httpd -p $port -h /www; done
echo ready
while :; do sleep 1000; done
"""
_ANSWER = """#!/bin/sh
echo "Content-Type: text/plain"
echo
echo "$(hostname) $REMOTE_ADDR"
"""


def missing_programs() -> list[str]:
    """The programs that this computer lacks for it."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]


def make(docker_host: str) -> str:
    """Make the image; returns its name."""
    changes = [f"ENV PATH={_PATH}", 'ENTRYPOINT ["/sbin/init"]']
    words = [word for change in changes for word in ("--change", change)]
    subprocess.run(
        ["docker", "import", *words, "-", IMAGE],
        input=_archive(),
        env={**os.environ, "DOCKER_HOST": docker_host},
        check=True,
        capture_output=True,
    )
    return IMAGE


def _archive() -> bytes:
    buffer = io.BytesIO()
    libraries: dict[Path, None] = {}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("proc", "sys", "dev", "run", "tmp", "etc", "root", "mnt", "var/lib/cloud/seed"):
            member = tarfile.TarInfo(directory)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        _write(tar, "sbin/init", _INIT)
        _write(tar, "www/cgi-bin/who", _ANSWER)
        for name in _PROGRAMS:
            found = Path(shutil.which(name, path=_PATH) or name)
            tar.add(found.resolve(), f"bin/{name}")
            libraries |= dict.fromkeys(_libraries(found))
        for library in libraries:
            tar.add(library.resolve(), str(library).lstrip("/"))
        for name in _APPLETS:
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(member)
    return buffer.getvalue()


def _write(tar: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.size = 0o755, len(text)
    tar.addfile(member, io.BytesIO(text.encode()))


def _libraries(program: Path) -> Iterator[Path]:
    """The libraries that a program is loaded with, and its loader."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for match in re.finditer(r"(/\S+) \(0x", listed):
        yield Path(match[1])
