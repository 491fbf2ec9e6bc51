"""The rack of the demo, as a program beside the control plane, and a client for a look at what is on it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hack.controlplane.pki import write_private
from hack.controlplane.processes import Processes
from hack.demo.machines import Machines, NoMachinesError
from hack.nodeimage.register import RegisteredImage

__all__ = ["PROJECT", "DemoRack", "changes_of_this_computer", "configuration"]

PROJECT: Final = "demo"
RACK_NAME: Final = "demo"
"""By which Docker tells what belongs to this rack."""
UPLINK: Final = "100.64.218.0/30"
CONFIGURATION: Final = Path(__file__).with_name("rack.yaml")
ALLOWANCE: Final = "--allow-host-changes"
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 120.0
"""A rack that has machines takes them away before it ends."""
QUESTION_SECONDS: Final = 60.0


def configuration(machines: Machines | None) -> dict[str, Any]:
    """The rack's configuration: that of the file, with node images and guests where there are machines."""
    chosen: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    if machines is not None:
        (silo,) = chosen["silos"]
        silo["images"] = [image.rack_entry() for image in machines.images]
        chosen["guests"] = {"backend": "docker", "name": RACK_NAME, "uplink": UPLINK}
    return chosen


def changes_of_this_computer(machines: Machines, directory: Path, environ: Mapping[str, str]) -> str:
    """What the rack would change on this computer, in its own words: what it says where nobody allows it.

    Raises:
        NoMachinesError: it says that it cannot have machines at all.
    """
    file = directory / "rack-question.yaml"
    file.write_text(yaml.safe_dump(configuration(machines)))
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "capox", "rack", "--config", str(file)],
            env=_environment(environ, machines) | {"CAPOX_RACK_TOKEN": "oxide-token-of-nobody"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=QUESTION_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise NoMachinesError(
            f"the rack did not say within {QUESTION_SECONDS:.0f} s what it would change; the computer is too busy"
        ) from None
    finally:
        file.unlink()
    lines = [line.removeprefix("capox rack: ") for line in asked.stderr.splitlines()]
    if not lines or ALLOWANCE not in lines[-1]:
        raise NoMachinesError(lines[-1] if lines else "the rack does not say what it would change")
    return "\n".join(lines[:-1])


class DemoRack:
    """A simulated rack that lives and ends with the demo.

    Args:
        processes: What it is started by.
        directory: Where it says that it is ready, and where its token is kept, with mode 0600.
        environ: Environment variables.
    """

    def __init__(self, processes: Processes, directory: Path, environ: Mapping[str, str]) -> None:
        self._processes = processes
        self._directory = directory
        self._environ = environ
        self._ready = directory / "rack-ready.json"
        self.token_file = directory / "rack-token"
        # For `curl -H @FILE`: an argument with the token could be read by every user of the computer.
        self.authorization_file = directory / "rack-authorization"
        self.machines: Machines | None = None

    def start(self, machines: Machines | None) -> None:
        """Start it and wait until it answers.

        Args:
            machines: what runs in its instances; None for nothing.

        Raises:
            StartError: it did not come up; the message has the end of its log.
        """
        token = f"oxide-token-{secrets.token_hex(20)}"
        write_private(self.token_file, token.encode())
        write_private(self.authorization_file, f"Authorization: Bearer {token}\n".encode())
        chosen = self._directory / "rack.yaml"
        chosen.write_text(yaml.safe_dump(configuration(machines), sort_keys=False))
        argv = [sys.executable, "-m", "capox", "rack", "--config", str(chosen), "--ready-file", str(self._ready)]
        ports = self._processes.lease_ports(2)
        argv += ["--listen", f"127.0.0.1:{ports[0]}", "--listen-control", f"127.0.0.1:{ports[1]}"]
        if machines is not None:
            # Whoever runs the demo has been told, and on a terminal has been asked.
            argv.append(ALLOWANCE)
        environment = _environment(self._environ, machines) | {
            "CAPOX_RACK_TOKEN": token,
            "CAPOX_RACK_STATE_DIR": str(self._directory / "rack-state"),
        }
        self.machines = machines
        self._processes.start("rack", argv, environment, grace_seconds=STOP_SECONDS)
        self._processes.wait_until("rack", self._ready.exists, within_seconds=READY_SECONDS)

    def stop(self) -> None:
        """End it, and take away what it has."""
        self._processes.stop("rack")

    @property
    def image(self) -> RegisteredImage | None:
        """What control planes and workers boot; None where nothing runs."""
        return self.machines.images[0] if self.machines is not None else None

    @property
    def url(self) -> str:
        """Where the API is: for this computer's programs, and for machines where there are some."""
        announced = json.loads(self._ready.read_text())
        return str(announced.get("api_shared") or announced["api"])

    @property
    def token(self) -> str:
        """The API token."""
        return self.token_file.read_text()

    def list(self, collection: str) -> list[dict[str, Any]]:
        """The project's things of one sort, such as `instances` or `floating-ips`."""
        request = urllib.request.Request(  # noqa: S310 -- a URL of our own rack on this computer
            f"{self.url}/v1/{collection}?project={PROJECT}&limit=1000",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        # A proxy of the person's has no way to an address of this computer.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
        return items


def _environment(environ: Mapping[str, str], machines: Machines | None) -> dict[str, str]:
    """What the rack needs of the environment, and `docker` with it where there are machines."""
    if machines is None:
        return {"PATH": os.defpath}
    kept = {name: environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG") if name in environ}
    return {"PATH": os.defpath} | kept | {"DOCKER_HOST": machines.docker_host}
