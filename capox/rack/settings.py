"""What the rack takes from its environment. This is the rack's only reader of it."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
        variables: the environment itself, for tokens that the configuration takes from there.
        state_directory: where tokens are kept that the rack made up.
        shared_directory: where the racks of this computer keep what they have to know of one another.
    """

    TOKEN: ClassVar[str] = "CAPOX_RACK_TOKEN"  # noqa: S105 -- the variable's name
    CONTROL_TOKEN: ClassVar[str] = "CAPOX_RACK_CONTROL_TOKEN"  # noqa: S105 -- the variable's name
    STATE_DIRECTORY: ClassVar[str] = "CAPOX_RACK_STATE_DIR"

    variables: Mapping[str, str] = dataclasses.field(repr=False)
    state_directory: Path
    shared_directory: Path


def read() -> Settings:
    """The settings of this process."""
    return from_variables(os.environ, os.geteuid())


def from_variables(variables: Mapping[str, str], user_id: int) -> Settings:
    """The settings that an environment gives to a user.

    The state directory is `CAPOX_RACK_STATE_DIR`, else `capox/rack` in `XDG_STATE_HOME`, else in `~/.local/state`. The
    shared directory is not to be chosen, because two racks could choose differently: it is in `/run` for root, and in
    the cache in their own home for everybody else, who cannot write there.
    """
    given = variables.get(Settings.STATE_DIRECTORY)
    home = Path(variables.get("HOME", "/"))
    state = Path(given) if given else Path(variables.get("XDG_STATE_HOME") or home / ".local/state") / "capox" / "rack"
    shared = Path("/run/capox-rack") if user_id == 0 else _home_of(user_id, home) / ".cache" / "capox" / "rack"
    return Settings(dict(variables), state, shared)


def _home_of(user_id: int, otherwise: Path) -> Path:
    try:
        return Path(pwd.getpwuid(user_id).pw_dir)
    except KeyError:
        return otherwise
