"""Where things are kept: the repository, the user's cache, the state of named control planes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).resolve().parent.parent.parent
"""Root of the working tree."""

TOOLS = REPOSITORY / "hack" / "tools"
"""Go modules that pin what is built: one directory a module, with its go.mod and go.sum."""


def _user_directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """The directory named by an XDG variable, or its default below the home directory.

    Relative values are ignored, as the XDG base directory specification asks.
    """
    value = environ.get(variable, "")
    if value.startswith("/"):
        return Path(value)
    return Path(environ.get("HOME") or Path.home()) / default


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Directory of everything that can be made again: `$XDG_CACHE_HOME/capox`, else `~/.cache/capox`."""
    return _user_directory(environ, "XDG_CACHE_HOME", ".cache") / "capox"


def state_directory(environ: Mapping[str, str]) -> Path:
    """Directory of the control planes that people bring up: `$XDG_STATE_HOME/capox/controlplane`."""
    return _user_directory(environ, "XDG_STATE_HOME", ".local/state") / "capox" / "controlplane"


def lease_directory(environ: Mapping[str, str]) -> Path:
    """Directory of the lock files by which control planes of one user keep off each other's ports."""
    return cache_directory(environ) / "ports"
