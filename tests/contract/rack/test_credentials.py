"""Where the rack's tokens come from, and that no complaint repeats one."""

from __future__ import annotations

import random
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.rack import config_file, credentials, furnish, settings
from capox.rack.clock import CommandedClock
from tests.contract.rack.configuring import SMALL, build, complaints, with_user
from tests.rack import START

SECRET = "oxide-token-0123456789abcdef"
# A user id that has no name, and so no home.
NOBODY = 4_200_000_000


@pytest.mark.parametrize(
    "wanted",
    [
        with_user(tokens=[SECRET]),
        with_user(tokens=SECRET),
        with_user(tokens=[{"token": SECRET, "token_env": "X"}]),
        with_user(tokens=[{"tokn": SECRET}]),
        with_user(tokens=[{"token": [SECRET]}]),
        with_user(token=SECRET),
        with_user(role=SECRET),
        with_user(**{SECRET: 1}),
        SMALL | {"control": {"listen": SECRET, "token": SECRET}},
        SMALL | {"listen": SECRET},
        SMALL | {"seed": SECRET},
        f"silos: *{SECRET}",
        f"silos:\n  {SECRET}: 1\n  {SECRET}: 2",
        f"silos: [{SECRET}",
    ],
)
def test_complaints_never_repeat_a_token(wanted: Any) -> None:
    """Wherever a token was put by mistake, the complaint leaves it out."""
    assert SECRET not in complaints(wanted)


def test_configuration_does_not_show_tokens() -> None:
    """Neither the repr nor the text of a configuration shows a token."""
    chosen = config_file.parse(yaml.safe_dump(with_user(tokens=[{"token": SECRET}])))

    assert SECRET not in repr(chosen)
    assert SECRET not in str(chosen)
    assert SECRET not in repr(furnish.build_rack(chosen, CommandedClock(START), random.Random(1)).tokens)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"token": "secret-without-prefix"}, "begins with `oxide-token-`"),
        ({"token": "oxide-token-with blank"}, "without blanks"),
        ({"token_env": "NOT_SET"}, "token_env NOT_SET: the environment variable is not set"),
        ({"token_env": "EMPTY"}, "token_env EMPTY: a token begins with"),
        (
            {"token_file": "/nonexistent/token"},
            "token_file /nonexistent/token: cannot be read: No such file or directory",
        ),
    ],
)
def test_tokens_that_cannot_be_had(source: dict[str, Any], said: str) -> None:
    """A token that is not there, or could never be used, is refused with its place and the remedy, without itself."""
    with pytest.raises(credentials.CredentialError) as caught:
        build(with_user(tokens=[source]), {"EMPTY": ""})

    assert said in str(caught.value)
    assert "secret-without-prefix" not in str(caught.value)
    assert "with blank" not in str(caught.value)


def test_two_users_cannot_share_a_token() -> None:
    """A token that would mean two users is refused."""
    users = [{"name": name, "tokens": [{"token": SECRET}]} for name in ("ann", "bob")]

    with pytest.raises(credentials.CredentialError, match=r"user bob.*another user has the same token") as caught:
        build({"silos": [{"name": "lab", "users": users}]})

    assert SECRET not in str(caught.value)


def test_token_files(tmp_path: Path) -> None:
    """A file's token counts without the line end; a file that others can read is refused with the remedy."""
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o640)
    source = credentials.TokenSource(token_file=path)

    with pytest.raises(credentials.CredentialError, match=f"others can read it .*; run: chmod 600 {path}"):
        credentials.read_token(source, {})
    path.chmod(0o600)

    assert credentials.read_token(source, {}) == SECRET


def test_made_token_files(tmp_path: Path) -> None:
    """`create` makes a file with a new token for its owner alone, keeps one that is there, and leaves no draft."""
    source = credentials.TokenSource(token_file=tmp_path / "state" / "token", create=True)

    first, second = credentials.read_token(source, {}), credentials.read_token(source, {})

    assert first == second
    assert first.startswith("oxide-token-")
    assert stat.S_IMODE((tmp_path / "state" / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["token"]


def test_directories() -> None:
    """Made-up tokens are kept where the environment says, else where state is; what racks share is in one place."""
    given = settings.from_variables({"CAPOX_RACK_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, 0)
    state_home = settings.from_variables({"XDG_STATE_HOME": "/b", "HOME": "/c"}, NOBODY)
    home = settings.from_variables({"HOME": "/c"}, NOBODY)

    assert [str(each.state_directory) for each in (given, state_home, home)] == [
        "/a",
        "/b/capox/rack",
        "/c/.local/state/capox/rack",
    ]
    assert str(given.shared_directory) == "/run/capox-rack"
    assert str(home.shared_directory) == str(state_home.shared_directory) == "/c/.cache/capox/rack"
    assert SECRET not in repr(settings.from_variables({"CAPOX_RACK_TOKEN": SECRET}, NOBODY))
