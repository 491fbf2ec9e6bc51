"""The type of JSON values, and the one way in which the rack writes them."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

# A recursive alias would make every handler narrow what the OpenAPI document has already checked.
JSON: TypeAlias = Any


def encode(value: JSON) -> bytes:
    """The bytes of an answer's body."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode_pretty(value: JSON) -> bytes:
    """The bytes of an error's body, which a real rack writes over several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
