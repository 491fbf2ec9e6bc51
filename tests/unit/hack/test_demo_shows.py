"""What the demo asks of others, and the lines that it prints: failures are sentences, and tokens are in files only."""

from __future__ import annotations

import http.server
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.plane import CommandError
from hack.controlplane.processes import Processes
from hack.controlplane.state import NamedControlPlane
from hack.demo import closing, rack, show, up
from hack.demo.machines import NoMachinesError
from hack.demo.rack import DemoRack
from hack.demo.workload import Workload
from tests.unit.hack.test_demo import MACHINES


class FakeKeeper(Processes):
    """Starts no program; a rack is ready at once, where the test says.

    Args:
        url: of the rack.
    """

    def __init__(self, url: str = "http://127.0.0.1:1") -> None:
        self.url = url

    def lease_ports(self, count: int) -> list[int]:
        """Ports that nobody uses."""
        return list(range(1, count + 1))

    def start(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        environ: Mapping[str, str] | None = None,
        *,
        tier: int = 0,
        grace_seconds: float = 0.0,
    ) -> int:
        """Let the rack say where it is."""
        del name, environ, tier, grace_seconds
        Path(argv[argv.index("--ready-file") + 1]).write_text(json.dumps({"api": self.url}))
        return 1

    def wait_until(self, name: str, is_ready: Callable[[], bool], *, within_seconds: float, what: str = "") -> None:
        """See that it has come."""
        del name, within_seconds, what
        assert is_ready()


class Listener(http.server.BaseHTTPRequestHandler):
    """Notes how it was asked."""

    asked: list[str]

    def do_GET(self) -> None:
        """Answer a GET."""
        self.asked.append(f"{self.path} {self.headers['Authorization']}")
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 -- the name in http.server
        """Keep the tests' output quiet."""


def test_tokens_are_in_no_arguments(tmp_path: Path) -> None:
    """The printed line asks the rack as its user, by a file that only that user can read, past every proxy."""

    class Here(Listener):
        asked: list[str] = []  # noqa: RUF012 -- one list for this test's server

    with http.server.HTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        demo = DemoRack(FakeKeeper(f"http://127.0.0.1:{server.server_port}"), tmp_path, {})
        demo.start(None)
        said = closing.without_machines(NamedControlPlane("demo", {"HOME": str(tmp_path)}), demo)
        (line,) = (each for each in said.splitlines() if "curl" in each)
        proxy = {"http_proxy": "http://127.0.0.1:1", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["sh", "-ec", line], env=proxy, capture_output=True, text=True, check=False, timeout=30)
        server.shutdown()
        thread.join()

    assert done.returncode == 0, done.stderr
    assert Here.asked == [f"/v1/instances?project=demo Bearer {demo.token}"]
    assert "cat" not in line
    assert demo.token not in said
    for file in (demo.token_file, demo.authorization_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_service_is_asked_past_every_proxy(tmp_path: Path) -> None:
    """No proxy has a way to an address of this computer; none of the lines has a token in it."""
    demo = DemoRack(FakeKeeper(), tmp_path, {})
    demo.start(None)
    holder = closing.Holder("198.51.100.12", "node-1", "node-1")

    said = closing.with_machines(NamedControlPlane("demo", {"HOME": str(tmp_path)}), demo, tmp_path / "c", holder)

    lines = [line for line in said.splitlines() if "curl" in line]
    assert len(lines) == 4
    assert all("curl --noproxy '*' " in line for line in lines)
    assert "Bearer" not in said


def test_a_rack_that_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is a reason to go without machines."""
    monkeypatch.setattr(rack, "QUESTION_SECONDS", 0.01)

    with pytest.raises(NoMachinesError, match="did not say within"):
        rack.changes_of_this_computer(MACHINES, tmp_path, {"HOME": str(tmp_path)})

    assert list(tmp_path.iterdir()) == []


def test_firewall_rules_that_are_not_made_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the demo with a sentence."""
    monkeypatch.setattr(up, "_FIREWALL_SECONDS", 0.01)
    demo = DemoRack(FakeKeeper(), tmp_path, {})
    demo.start(None)

    with pytest.raises(ControlPlaneError, match="firewall were not made within"):
        up._open_firewall(demo)


def test_what_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rack or a cluster that does not answer once has ended nothing; what never comes ends with the last failure."""
    monkeypatch.setattr("hack.demo.watch.LOOK_SECONDS", 0.01)
    failures: list[Exception] = [ValueError("not enough values to unpack"), OSError("timed out"), CommandError("busy")]

    def look() -> str:
        """Look once."""
        if failures:
            raise failures.pop()
        return "198.51.100.12"

    def fail() -> str:
        """Never succeed."""
        raise OSError("timed out")

    assert show._wait("no address", 60, look) == "198.51.100.12"
    with pytest.raises(show.TooLateError, match=r"no address within 0 s \(timed out\)"):
        show._wait("no address", 0.05, fail)
    with pytest.raises(show.TooLateError, match=r"no address within 0 s$"):
        show._wait("no address", 0.05, lambda: None)


def test_a_service_is_exposed_once(tmp_path: Path) -> None:
    """An answer that was lost is no reason to make it twice: the second time it is there."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"""#!/bin/sh
case "$*" in
*" apply "*) cat >{tmp_path}/applied ;;
*" expose "*) echo once >>{tmp_path}/service; echo 'the answer was lost' >&2; exit 1 ;;
*services*hello) [ -e {tmp_path}/service ] && echo '{{"items": [{{}}]}}' || echo '{{"items": []}}' ;;
esac
""")
    kubectl.chmod(0o755)
    workload = Workload(kubectl, tmp_path)

    with pytest.raises(CommandError, match="the answer was lost"):
        workload.expose("manager:dev-1")
    workload.expose("manager:dev-1")

    assert (tmp_path / "service").read_text() == "once\n"
    applied: dict[str, Any] = json.loads((tmp_path / "applied").read_text())
    assert applied["kind"] == "Deployment"
