"""What the rack takes from its environment. This is the rack's only reader of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
        variables: the environment itself, for tokens that the configuration takes from there.
        state_directory: where tokens are kept that the rack made up.
    """

    TOKEN: ClassVar[str] = "CAPOX_RACK_TOKEN"  # noqa: S105 -- the variable's name
    CONTROL_TOKEN: ClassVar[str] = "CAPOX_RACK_CONTROL_TOKEN"  # noqa: S105 -- the variable's name
    STATE_DIRECTORY: ClassVar[str] = "CAPOX_RACK_STATE_DIR"

    variables: Mapping[str, str] = dataclasses.field(repr=False)
    state_directory: Path


def read() -> Settings:
    """The settings of this process."""
    return from_variables(os.environ)


def from_variables(variables: Mapping[str, str]) -> Settings:
    """The settings that an environment gives.

    The state directory is `CAPOX_RACK_STATE_DIR`, else `capox/rack` in `XDG_STATE_HOME`, else in `~/.local/state`.
    """
    given = variables.get(Settings.STATE_DIRECTORY)
    if given:
        return Settings(dict(variables), Path(given))
    home = variables.get("XDG_STATE_HOME")
    parent = Path(home) if home else Path(variables.get("HOME", "/")) / ".local" / "state"
    return Settings(dict(variables), parent / "capox" / "rack")
