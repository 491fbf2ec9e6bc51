"""Kubernetes quantities, such as `8Gi` or `50G`, with exact arithmetic.

The grammar is that of Kubernetes: a decimal number, then nothing, a binary suffix (`Ki` to `Ei`), a decimal suffix
(`n` to `E`) or a decimal exponent (`e3`). A quantity keeps the text it was read from, so reading and writing an object
changes nothing in it; its amount is a fraction, so no step ever rounds by accident.
"""

import re
from fractions import Fraction
from functools import total_ordering
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["GIB_BYTES", "QUANTITY_CHARACTERS_MAX", "QUANTITY_PATTERN", "Quantity", "QuantityError"]

GIB_BYTES: Final = 2**30
"""One GiB. The rack takes memory and disk sizes in multiples of it (oxide-semantics 2.2, 2.3)."""

QUANTITY_CHARACTERS_MAX: Final = 32
"""The longest text that is taken for a quantity."""

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""The pattern that Kubernetes publishes for quantities. It is wider than the grammar: it lets `1e1.5` pass."""

_EXPONENT_MAX: Final = 30

_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)

_FACTORS: Final = {
    **{letter + "i": Fraction(2) ** (10 * step) for step, letter in enumerate("KMGTPE", start=1)},
    **{letter: Fraction(10) ** (3 * step) for step, letter in enumerate("numkMGTPE", start=-3) if step < 0},
    **{letter: Fraction(10) ** (3 * step) for step, letter in enumerate("kMGTPE", start=1)},
}


class QuantityError(ValueError):
    """A value is not a quantity."""


@total_ordering
class Quantity:
    """An amount as Kubernetes writes it. Two quantities are equal when their amounts are: `1Gi` equals `1024Mi`.

    Args:
        source: The quantity as it stands in the object: text, or a whole number.

    Raises:
        QuantityError: `source` is not a quantity; the message says what was expected.
    """

    __slots__ = ("_amount", "_source")

    def __init__(self, source: str | int) -> None:
        self._source = source
        self._amount = _parse_amount(source)

    @property
    def source(self) -> str | int:
        """The quantity exactly as it was read."""
        return self._source

    @property
    def amount(self) -> Fraction:
        """The exact amount, in the unit of the field: bytes for memory and disks."""
        return self._amount

    def to_bytes(self, *, multiple_bytes: int = 1) -> int:
        """Give the amount in bytes, rounded up to a multiple.

        Args:
            multiple_bytes: What the result is a multiple of; the rack wants `GIB_BYTES` for memory and disks.
        """
        # Fractions round down with //; minus, down, minus is up.
        return -int(-self._amount // multiple_bytes) * multiple_bytes

    def __eq__(self, other: object) -> bool:
        return self._amount == other._amount if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self._amount < other._amount

    def __hash__(self) -> int:
        return hash(self._amount)

    def __repr__(self) -> str:
        return f"Quantity({self._source!r})"

    def __str__(self) -> str:
        return str(self._source)

    @classmethod
    def __get_pydantic_core_schema__(cls, source_type: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls(value),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda quantity: quantity.source),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": QUANTITY_CHARACTERS_MAX,
        }


def _parse_amount(source: str | int) -> Fraction:
    if isinstance(source, int) and not isinstance(source, bool):
        return Fraction(source)
    if not isinstance(source, str):
        raise QuantityError(f"{source!r} is no quantity; expected text such as '8Gi' or a whole number")
    if len(source) > QUANTITY_CHARACTERS_MAX:
        raise QuantityError(f"a quantity of {len(source)} characters; at most {QUANTITY_CHARACTERS_MAX} are taken")
    match = _GRAMMAR.fullmatch(source)
    whole, part = (match["whole"], match["part"] or "") if match else ("", "")
    if match is None or not whole + part:
        raise QuantityError(
            f"{source!r} is no quantity; expected a number with a suffix such as Mi, Gi, M or G, as in '8Gi'"
        )
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > _EXPONENT_MAX:
        raise QuantityError(
            f"{source!r} has the exponent {exponent}; it must be from -{_EXPONENT_MAX} to {_EXPONENT_MAX}"
        )
    amount = Fraction(int(whole + part), 10 ** len(part)) * Fraction(10) ** exponent * _FACTORS.get(match["suffix"], 1)
    return -amount if match["sign"] == "-" else amount
