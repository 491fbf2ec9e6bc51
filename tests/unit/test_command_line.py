"""The command line finds the command, and says so when it cannot."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from capox.__main__ import main, with_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--leader-elect", "--health-probe-bind-address=:8081"], "provider"),
        (["--metrics-bind-address", ":8443"], "provider"),
        (["provider", "--leader-elect"], "provider"),
        (["rack", "--listen", "127.0.0.1:0"], "rack"),
    ],
)
def test_a_flag_in_front_means_the_provider(given: list[str], meant: str) -> None:
    """The arguments of Oxide's own provider, which has no commands, start this one; commands stay what they are."""
    command, *rest = with_command(given)

    assert command == meant
    assert rest == given[-len(rest) :]


@pytest.mark.parametrize("given", [[], ["--help"], ["-h"]])
def test_a_call_for_help_is_left_alone(given: list[str]) -> None:
    """Help about capox is not help about the provider."""
    assert with_command(given) == given


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing runs, and the message says what there is."""
    with pytest.raises(SystemExit) as end:
        main([])

    assert end.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_an_installation_without_the_rack_says_so(tmp_path: Path) -> None:
    """The image leaves the rack out; asking for it there ends with a sentence, not with a traceback."""
    archive = tmp_path / "capox.zip"
    with zipfile.ZipFile(archive, "w") as package:
        for path in sorted((ROOT / "capox").glob("*.py")):
            package.write(path, path.relative_to(ROOT))
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import capox.__main__ as m; sys.exit(m.main(['rack']))"
    )

    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert answer.returncode == 2
    assert answer.stderr == "capox rack: this installation of capox comes without it\n"
