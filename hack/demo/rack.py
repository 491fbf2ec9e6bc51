"""The rack of the demo, as a program beside the control plane, and a client for a look at what is on it."""

from __future__ import annotations

import json
import os
import secrets
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

from hack.controlplane.processes import Processes

__all__ = ["IMAGE_ID", "PROJECT", "DemoRack"]

PROJECT: Final = "demo"
IMAGE_ID: Final = "6f3f8a0e-5a86-4f0c-9d9e-1a0e7ac3f0d1"
CONFIGURATION: Final = Path(__file__).with_name("rack.yaml")
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
"""A rack that has machines takes them away before it ends."""


class DemoRack:
    """A simulated rack that lives and ends with the control plane.

    Args:
        processes: What it is started by.
        directory: Where it says that it is ready, and where its token is kept with mode 0600.
    """

    def __init__(self, processes: Processes, directory: Path) -> None:
        self._processes = processes
        self._ready = directory / "rack-ready.json"
        self.token_file = directory / "rack-token"

    def start(self) -> None:
        """Start it and wait until it answers."""
        token = f"oxide-token-{secrets.token_hex(20)}"
        with os.fdopen(os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(token)
        argv = [sys.executable, "-m", "capox", "rack", "--config", str(CONFIGURATION), "--ready-file", str(self._ready)]
        ports = self._processes.lease_ports(2)
        argv += ["--listen", f"127.0.0.1:{ports[0]}", "--listen-control", f"127.0.0.1:{ports[1]}"]
        state = self._ready.parent / "rack-state"
        environment = {"CAPOX_RACK_TOKEN": token, "CAPOX_RACK_STATE_DIR": str(state), "PATH": os.defpath}
        self._processes.start("rack", argv, environment, grace_seconds=STOP_SECONDS)
        self._processes.wait_until("rack", self._ready.exists, within_seconds=READY_SECONDS)

    @property
    def url(self) -> str:
        """Where the API is."""
        return str(json.loads(self._ready.read_text())["api"])

    @property
    def token(self) -> str:
        """The API token."""
        return self.token_file.read_text()

    def list(self, collection: str) -> list[dict[str, Any]]:
        """The project's things of one sort, such as `instances` or `floating-ips`."""
        request = urllib.request.Request(  # noqa: S310 -- a URL of our own rack on loopback
            f"{self.url}/v1/{collection}?project={PROJECT}&limit=1000",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 -- as above
            items: list[dict[str, Any]] = json.load(answer)["items"]
        return items
