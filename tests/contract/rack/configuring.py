"""Racks from configurations, for tests, and what is said about bad ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from capox.rack import config_file, furnish, state
from capox.rack.clock import CommandedClock
from tests.rack import START

SMALL: dict[str, Any] = {"silos": [{"name": "lab"}]}


def build(wanted: dict[str, Any], variables: dict[str, str] | None = None) -> state.Rack:
    """The rack that a configuration makes."""
    chosen = config_file.parse(yaml.safe_dump(wanted))
    return furnish.build_rack(chosen, CommandedClock(START), random.Random(1), variables or {})


def complaints(wanted: Any) -> str:
    """What is said about a configuration that cannot be used."""
    text = wanted if isinstance(wanted, str) else yaml.safe_dump(wanted)
    with pytest.raises(config_file.ConfigError) as caught:
        config_file.parse(text)
    return str(caught.value)


def with_user(**fields: Any) -> dict[str, Any]:
    """A configuration with one user."""
    return {"silos": [{"name": "lab", "users": [{"name": "ann", **fields}]}]}
