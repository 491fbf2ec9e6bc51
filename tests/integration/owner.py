"""A program that starts a control plane and waits to be killed: `python -m tests.integration.owner DIRECTORY`.

It prints `ready` when the control plane is.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from hack.controlplane.binaries import resolve
from hack.controlplane.plane import ControlPlane


def main() -> None:
    """Start a control plane in the directory of the first argument, then wait for ever."""
    with ControlPlane(resolve(os.environ), directory=Path(sys.argv[1]), with_controllers=False):
        print("ready", flush=True)  # noqa: T201  a program speaks by printing
        signal.pause()


if __name__ == "__main__":
    main()
