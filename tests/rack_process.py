"""A rack as its users run it: a process of its own, reached over loopback, commanded by its control endpoint."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

READY_SECONDS = 30
STOP_SECONDS = 20

CONTROL_TOKEN = "control-token-of-tests"

CONFIG: dict[str, Any] = {
    "seed": 1,
    "timing": "quick",
    "listen": "127.0.0.1:0",
    "control": {"listen": "127.0.0.1:0", "token": CONTROL_TOKEN},
    "silos": [
        {
            "name": "lab",
            "users": [
                {"name": "admin", "role": "admin", "tokens": [{"token": "oxide-token-admin"}]},
                {"name": "viewer", "role": "viewer", "tokens": [{"token": "oxide-token-viewer"}]},
            ],
            "projects": [{"name": "demo"}],
            "images": [{"name": "debian", "os": "debian", "version": "13", "size": "2 GiB"}],
        }
    ],
    "ip_pools": [
        {"name": "public", "ranges": ["198.51.100.0-198.51.100.63"], "silos": [{"silo": "lab", "default": True}]}
    ],
    "sleds": [{"count": 4, "cpus": 64, "memory": "256 GiB"}],
}
"""A small rack on free ports. A user's token is `oxide-token-` and the user's name."""


class RackProcess:
    """`capox rack` as a process, from entering the context to leaving it.

    Args:
        directory: for its configuration, its log and its ready file.
        config: what `rack.yaml` says; None runs the rack that needs no configuration, on free ports.
        arguments: further ones for the command line.
        variables: its environment; absent, the one of the tests.
        patience: how many times the usual seconds it may take to start and to stop.

    Attributes:
        announcement: what it said when it was ready.
        control: its control endpoint.
    """

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any] | None = CONFIG,
        *arguments: str,
        variables: dict[str, str] | None = None,
        patience: int = 1,
    ) -> None:
        self.directory = directory
        self._patience = patience
        self.announcement: dict[str, Any] = {}
        self._config = config
        self._arguments = arguments
        self._variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it is ready."""
        ready = self.directory / "ready.json"
        # One that was killed here has left its own.
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "capox", "rack", "--ready-file", str(ready), *self._configuration()]
        with self.log_file.open("wb") as log, self.output_file.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *self._arguments], stdout=output, stderr=log, env=self._variables
            )
        deadline = time.monotonic() + READY_SECONDS * self._patience
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the rack was not ready:\n{self.log_file.read_text()}")
            time.sleep(0.02)
        self.announcement = json.loads(ready.read_text())
        token_file = self.announcement.get("control_token_file")
        token = CONTROL_TOKEN if token_file is None else Path(token_file).read_text().strip()
        self.control = ControlClient(self.announcement.get("control", "http://127.0.0.1:1"), token)
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop it, if it has not been stopped."""
        self.control.close()
        self.stop()

    @property
    def log_file(self) -> Path:
        """Where its log goes."""
        return self.directory / "rack.log"

    @property
    def output_file(self) -> Path:
        """Where its standard output goes."""
        return self.directory / "rack.out"

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """Where the API is, over HTTP."""
        return str(self.announcement["api"])

    def client(self, user: str | None = "admin", **options: Any) -> httpx.Client:
        """A client of the API with the token of a user; None sends no credentials."""
        headers = {} if user is None else {"authorization": f"Bearer oxide-token-{user}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=10, **options)

    def _configuration(self) -> list[str]:
        if self._config is None:
            return ["--listen", "127.0.0.1:0", "--listen-control", "127.0.0.1:0"]
        path = self.directory / "rack.yaml"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self._config))
        return ["--config", str(path)]

    def kill(self) -> None:
        """End it without a chance to do anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to stop and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS * self._patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the rack did not stop within {STOP_SECONDS * self._patience} seconds") from None


class ControlClient:
    """A rack's control endpoint (docs/reference/rack-control.md). Every method fails unless the rack obeys.

    Args:
        url: where it is.
        token: its token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=30)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        """Send one command, whatever becomes of it."""
        return self._http.request(method, path, params=query, **({} if body is None else {"json": body}))

    def must(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send one command that has to be obeyed; returns what it answers."""
        answer = self.ask(method, path, body, **query)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def advance(self, seconds: float) -> Any:
        """Let time pass."""
        return self.must("POST", "/time/advance", {"seconds": seconds})

    def settle(self, within_seconds: float = 3600) -> Any:
        """Let time pass until nothing waits for it."""
        return self.must("POST", "/time/settle", {"within_seconds": within_seconds})

    def add_fault(self, kind: str, **fields: Any) -> str:
        """Put a fault to work; returns its id."""
        return str(self.must("POST", "/faults", {"kind": kind, **fields})["id"])

    def remove_fault(self, identity: str) -> None:
        """Take a fault out."""
        self.must("DELETE", f"/faults/{identity}")

    def clear_faults(self) -> None:
        """Take all faults out."""
        self.must("DELETE", "/faults")

    def fail(self, instance: str) -> Any:
        """Let the rack find that an instance's VMM is gone."""
        return self.must("POST", f"/instances/{instance}/fail")

    def crash(self, instance: str) -> Any:
        """Take an instance's VMM away; the rack notices later."""
        return self.must("POST", f"/instances/{instance}/crash")

    def power_off(self, instance: str) -> Any:
        """Let a guest power itself off."""
        return self.must("POST", f"/instances/{instance}/power-off")

    def user_data(self, instance: str) -> bytes:
        """The user data of an instance."""
        return base64.b64decode(self.must("POST", f"/instances/{instance}/user-data")["user_data"])

    def lose_sled(self, sled: str) -> Any:
        """Cut a sled off."""
        return self.must("POST", f"/sleds/{sled}/lose")

    def restore_sled(self, sled: str, *, rebooted: bool = False) -> Any:
        """Let a sled answer again."""
        return self.must("POST", f"/sleds/{sled}/restore", {"rebooted": rebooted})

    def expunge_sled(self, sled: str) -> Any:
        """Take a sled out of service for good."""
        return self.must("POST", f"/sleds/{sled}/expunge")

    def set_version(self, api_version: str) -> Any:
        """Be an older or a newer rack from now on."""
        return self.must("PUT", "/version", {"api_version": api_version})

    def inventory(self) -> Any:
        """Everything that is on the rack."""
        return self.must("GET", "/inventory")

    def calls(self, after: int = 0) -> list[dict[str, Any]]:
        """The log of calls from behind a number on."""
        items: list[dict[str, Any]] = self.must("GET", "/calls", after=after)["items"]
        return items

    def counts(self, after: int = 0) -> dict[str, dict[str, int]]:
        """How often each operation was called, by status."""
        counts: dict[str, dict[str, int]] = self.must("GET", "/calls/counts", after=after)
        return counts

    def clear_calls(self) -> None:
        """Forget the log of calls."""
        self.must("DELETE", "/calls")

    def violations(self) -> list[str]:
        """Where the rack left its document; always empty unless the rack is wrong."""
        items: list[str] = self.must("GET", "/violations")["items"]
        return items
