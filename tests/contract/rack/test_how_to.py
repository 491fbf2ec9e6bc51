"""The rack's pages: their commands work as they are written, and nothing is left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import typing
from pathlib import Path

import pytest

from capox.rack import control, faults, main
from capox.rack.app import RackApp
from tests.rack import RackUnderTest
from tests.rack_process import RackProcess

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "how-to" / "run-the-rack.md"
CONTROL_PAGE = DOCS / "reference" / "rack-control.md"
BEHAVIOUR_PAGE = DOCS / "explanation" / "how-a-rack-behaves.md"
TREE = DOCS.parent
# Options of curl and of Oxide's command line that the page uses.
FOREIGN = {"--cacert", "--fail-with-body", "--project"}


def blocks() -> list[str]:
    """The commands that the page gives for the second terminal."""
    return re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
def test_commands_of_the_page(tmp_path: Path) -> None:
    """Every command of the page succeeds against a rack without a configuration, in the order of the page."""
    variables = {**os.environ, "CAPOX_RACK_STATE_DIR": str(tmp_path / "state")}

    with RackProcess(tmp_path, None, variables=variables) as running:
        script = "set -euo pipefail\n" + "\n".join(blocks())
        script = script.replace("http://127.0.0.1:12220", running.url)
        script = script.replace("http://127.0.0.1:12221", running.announcement["control"])
        finished = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=50, check=False, env=variables
        )

    assert finished.returncode == 0, finished.stderr + finished.stdout
    for expected in ('"status":"ok"', '"run_state":"running"', '"kind":"ephemeral"', "the connection ended"):
        assert expected in finished.stdout


def test_options_of_the_page() -> None:
    """Every option that the page names is one of `capox rack`, or known to belong to another program."""
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE.read_text()))
    known = {option for action in main.build_parser()._actions for option in action.option_strings}

    assert named - known == FOREIGN


def test_page_of_the_control_endpoint() -> None:
    """The reference of the control endpoint has every command, every kind of fault and every field of a rule."""
    page = CONTROL_PAGE.read_text()
    routes = control.Control(RackApp(RackUnderTest().state)).routes()
    commands = {f"{method} {route.path}" for route in routes for method in (route.methods or ()) if method != "HEAD"}
    told = re.findall(r"`(GET|POST|PUT|DELETE) (/[a-z/{}-]*)", page)

    assert {f"{method} {path}".replace("{id}", "{fault}") for method, path in told} == commands
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    assert rows == set(typing.get_args(faults.FaultKind)) | set(faults.FaultRule.model_fields)


def test_sections_that_code_refers_to() -> None:
    """Every "semantics 4.2" in code, and every section that a test of the rack begins with, is on the page."""
    sections = set(re.findall(r"^##+ ([0-9.]+?)\.? ", BEHAVIOUR_PAGE.read_text(), re.MULTILINE))
    cited: set[str] = set()
    for path in (TREE / "capox" / "rack").rglob("*.py"):
        for found in re.findall(r"semantics ([0-9., and]*[0-9])", path.read_text()):
            cited |= set(re.findall(r"[0-9]+(?:\.[0-9]+)?", found))
    for path in (TREE / "tests" / "contract" / "rack").rglob("test_*.py"):
        for found in re.findall(r'"""([0-9]+(?:\.[0-9]+)?(?:, [0-9]+(?:\.[0-9]+)?)*): ', path.read_text()):
            cited |= set(found.split(", "))

    assert len(cited) > 20
    assert cited - sections == set()
