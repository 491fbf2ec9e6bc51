"""Sizes as people write them: `16 GiB`, `1.5 TiB`, or a plain number of bytes."""

from __future__ import annotations

import decimal
import re

_UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5}
_SIZE = re.compile(r"^([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)$")
MAXIMUM_BYTES = 2**63 - 1


def parse_size(value: object) -> int:
    """The number of bytes that a size means.

    Args:
        value: a whole number of bytes, or a text of a number and one of the units B, KiB, MiB, GiB, TiB, PiB.

    Raises:
        ValueError: it is neither, is negative, is no whole number of bytes, or exceeds 2^63 - 1 bytes.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a text such as `16 GiB`")  # noqa: TRY004 -- pydantic's way
    size = value if isinstance(value, int) else _parse_text(value)
    if not 0 <= size <= MAXIMUM_BYTES:
        raise ValueError(f"a size is between 0 and {MAXIMUM_BYTES} bytes")
    return size


def format_size(size_bytes: int) -> str:
    """A size in the largest unit that holds it exactly."""
    for unit, factor in reversed(_UNITS.items()):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def _parse_text(text: str) -> int:
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError("a size is a number of bytes or a text such as `16 GiB`")
    number, unit = match.groups()
    if unit not in _UNITS:
        raise ValueError(f"the unit {unit} is not known here; use one of {', '.join(_UNITS)}")
    size = decimal.Decimal(number) * _UNITS[unit]
    if size != size.to_integral_value():
        raise ValueError("this is not a whole number of bytes; use a smaller unit")
    return int(size)
