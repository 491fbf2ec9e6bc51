"""`capox` and `capox rack` as commands: what they import, say and refuse."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from capox import __main__ as command_line
from capox.rack import certificates, main, settings

# What only the rack needs.
OF_THE_RACK = ("jsonschema_rs", "sortedcontainers", "starlette", "uvicorn", "websockets", "yaml", "cryptography")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a fresh process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)


def test_command_line_imports_nothing_of_the_rack() -> None:
    """Who has not installed the rack's packages can import and use the command line."""
    finished = python(f"import sys, capox.__main__; print([name for name in {OF_THE_RACK!r} if name in sys.modules])")

    assert finished.stdout == "[]\n"
    assert finished.stderr == ""


def test_missing_packages_are_named() -> None:
    """Without the rack's packages `capox rack` says which one is missing and what to run."""
    code = "import sys; sys.modules['uvicorn'] = None; from capox.__main__ import main; sys.exit(main(['rack']))"

    finished = python(code)

    assert finished.returncode == 2
    assert "the Python package uvicorn is not installed; run: pip install 'capox[rack]'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `capox` lists its commands; no command, or an unknown one, is a mistake."""
    with pytest.raises(SystemExit) as asked:
        command_line.main(["--help"])
    assert "rack" in capsys.readouterr().out
    assert asked.value.code == 0
    for arguments in ([], ["unknown"]):
        with pytest.raises(SystemExit) as mistaken:
            command_line.main(arguments)
        assert mistaken.value.code == 2


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `capox rack` explains each option and where the tokens are."""
    with pytest.raises(SystemExit):
        command_line.main(["rack", "--help"])

    shown = capsys.readouterr().out
    for action in main.build_parser()._actions:
        assert all(option in shown for option in action.option_strings)
    assert "CAPOX_RACK_TOKEN" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere:1"], "nowhere is neither an IP address nor `localhost`"),
        (["--mode", "manual"], "--mode"),
        (["--seed", "x"], "--seed"),
        (["--unknown"], "--unknown"),
    ],
)
def test_options_that_cannot_be_meant(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    """A bad option is refused with its name and what is possible."""
    with pytest.raises(SystemExit) as refused:
        main.main(arguments)

    assert refused.value.code == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Runs `capox rack` to its end within this process, with a state directory of its own."""
    os.environ["CAPOX_RACK_STATE_DIR"] = str(tmp_path / "state")
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield lambda *arguments: main.main(["--listen-control", "127.0.0.1:0", *arguments])
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_configuration_that_is_missing(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration that is not there is an error of one line."""
    assert command("--config", str(tmp_path / "rack.yaml")) == 2
    assert capsys.readouterr().err == f"capox rack: {tmp_path}/rack.yaml: cannot be read: No such file or directory\n"


def test_port_that_is_taken(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """A port that somebody else has is an error that says which, and nothing is announced."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command("--listen", f"127.0.0.1:{port}") == 2

    shown = capsys.readouterr()
    assert f"api: cannot listen on 127.0.0.1:{port}: Address already in use" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("option", ["--listen", "--listen-tls", "--listen-control"])
def test_loopback_unless_told_otherwise(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """An address that other machines can reach is refused until that is allowed."""
    assert command("--check", option, "192.0.2.1:1") == 2

    refused = capsys.readouterr().err
    assert "192.0.2.1:1 can be reached from other machines" in refused
    assert "--allow-remote" in refused
    assert command("--check", option, "192.0.2.1:1", "--allow-remote") == 0


def test_check(command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` judges a configuration without serving it."""
    (tmp_path / "rack.yaml").write_text("silos: [{name: Lab}]")

    assert command("--check") == 0
    assert command("--check", "--config", str(tmp_path / "rack.yaml")) == 2

    shown = capsys.readouterr()
    assert "silos[0].name: 'Lab'" in shown.err
    assert shown.out == ""


def test_control_token_that_is_missing(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A control token that cannot be had is an error that says whose it is."""
    control = "control: {listen: '127.0.0.1:0', token_env: NOT_SET}"
    (tmp_path / "rack.yaml").write_text(f"silos: [{{name: lab}}]\n{control}\n")

    assert command("--check", "--config", str(tmp_path / "rack.yaml")) == 2
    assert "control: token_env NOT_SET: the environment variable is not set" in capsys.readouterr().err


def test_certificate_that_cannot_be_used(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A certificate that is not there, or not with this key, is an error that names the files."""
    certificates.write_self_signed(tmp_path / "a.pem", tmp_path / "a.key", "localhost")
    certificates.write_self_signed(tmp_path / "b.pem", tmp_path / "b.key", "192.0.2.1")
    for certificate, key in (("missing.pem", "a.key"), ("a.pem", "b.key"), ("a.key", "a.key")):
        tls = f"tls: {{listen: '127.0.0.1:0', certificate: {certificate}, key: {key}}}"
        (tmp_path / "rack.yaml").write_text(f"listen: null\nsilos: [{{name: lab}}]\n{tls}\n")
        assert command("--config", str(tmp_path / "rack.yaml")) == 2
        assert f"{tmp_path}/{certificate}" in capsys.readouterr().err


def test_options_go_before_the_configuration(command: Callable[..., int], tmp_path: Path) -> None:
    """What the command line says holds over what the configuration says."""
    del command
    (tmp_path / "rack.yaml").write_text("mode: auto\ntiming: realistic\nsilos: [{name: lab}]\n")
    arguments = ["--mode", "commanded", "--timing", "instant", "--seed", "4", "--listen", "[::1]:1"]
    more = ["--config", str(tmp_path / "rack.yaml"), "--listen-tls", "127.0.0.1:2", "--listen-control", "127.0.0.1:3"]

    chosen = main.configuration(main.build_parser().parse_args([*arguments, *more]), settings.read())

    assert (chosen.mode, chosen.timing.preset, chosen.seed) == ("commanded", "instant", 4)
    assert str(chosen.listen) == "[::1]:1"
    assert chosen.tls is not None
    assert chosen.control is not None
    assert (str(chosen.tls.listen), str(chosen.control.listen)) == ("127.0.0.1:2", "127.0.0.1:3")
