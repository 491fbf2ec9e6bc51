"""Packages of the Debian or Ubuntu that this computer runs, installed where a program needs them and root asks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Final

__all__ = ["PackageError", "install_packages"]

_TAIL_LINES: Final = 15


class PackageError(Exception):
    """A package cannot be installed; the message says why and what to do."""


def install_packages(*packages: str, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> None:
    """Install packages, with a fresh list of what there is.

    Args:
        *packages: their names.
        run: what runs a command.

    Raises:
        PackageError: this is not root, there is no apt-get, or it failed.
    """
    words = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise PackageError(f"{words}: missing, and this computer has no apt-get; install it and run again")
    if os.geteuid() != 0:
        raise PackageError(f"{words}: missing. Install it (apt-get install {words}) or run as root")
    for command in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *packages)):
        done = run(
            ["apt-get", *command],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
            raise PackageError(f"apt-get {' '.join(command)} failed:\n{tail}")
