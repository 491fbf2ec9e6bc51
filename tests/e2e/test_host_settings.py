"""A machine with systemd and a kubelet writes settings of the kernel, which are this computer's: they are put back."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.nodeimage.register import RegisteredImage, registered
from tests.e2e.lab import Lab
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Of the settings those that all containers share, but for counters that call themselves settings.
SHARED = ("fs", "kernel", "vm")
COUNTERS = (
    *("fs/aio-nr", "fs/dentry-state", "fs/file-nr", "fs/inode-nr", "fs/inode-state", "fs/quota"),
    *("kernel/ns_last_pid", "kernel/pty/nr", "kernel/random"),
)

USER_DATA = """#cloud-config
runcmd:
  - [systemctl, start, --no-block, kubelet]
  - [sh, -c, "echo booted >/dev/console"]
"""


@pytest.fixture
def images() -> list[RegisteredImage]:
    """Node images; not made here."""
    found = registered(os.environ)
    if not found:
        pytest.skip("a node image is needed; `make node-image` makes it")
    return found


def test_a_machine_leaves_no_setting_behind(docker_host: str, images: list[RegisteredImage], tmp_path: Path) -> None:
    """Everything under /proc/sys that containers share is after a machine what it was before."""
    before = dict(settings())
    with Lab(tmp_path, docker_host, images[0].reference) as lab:
        lab.create("first", user_data=base64.b64encode(USER_DATA.encode()).decode())
        eventually("the machine has booted", lambda: "booted" in lab.console("first"), within_seconds=300)
        during = dict(settings())

    assert changes(before, during), "a machine that writes nothing shows nothing"
    assert changes(before, dict(settings())) == {}


def settings() -> Iterator[tuple[str, str]]:
    """The settings that can be read, by path."""
    for part in SHARED:
        for path in sorted(Path("/proc/sys", part).rglob("*")):
            name = str(path.relative_to("/proc/sys"))
            if path.is_file() and not name.startswith(COUNTERS):
                with contextlib.suppress(OSError):
                    yield name, path.read_text()


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What is different, by path."""
    return {name: (value, after[name]) for name, value in before.items() if name in after and after[name] != value}
