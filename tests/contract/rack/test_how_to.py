"""The how-to page of the rack: its commands work as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from capox.rack import main
from tests.rack_process import RackProcess

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "run-the-rack.md"
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
