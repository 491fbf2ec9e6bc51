"""Quantities: Kubernetes' grammar, exact amounts, and rounding up where the rack wants multiples."""

import re
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from capox.api.quantity import GIB_BYTES, QUANTITY_CHARACTERS_MAX, QUANTITY_PATTERN, Quantity, QuantityError

FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "Ti": Fraction(1024**4),
    "Pi": Fraction(1024**5),
    "Ei": Fraction(1024**6),
}


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Draw a decimal number as text, in each form that Kubernetes takes, and its value."""
    whole = draw(st.text("0123456789", max_size=9))
    part = draw(st.none() | st.text("0123456789", max_size=6))
    assume(whole or part)
    sign = draw(st.sampled_from(["", "+", "-"]))
    value = Fraction(int((whole or "0") + (part or "")), 10 ** len(part or ""))
    text = whole if part is None else f"{whole}.{part}"
    return sign + text, -value if sign == "-" else value


@given(numbers(), st.sampled_from(sorted(FACTORS)))
def test_the_amount_is_number_times_suffix_exactly(number: tuple[str, Fraction], suffix: str) -> None:
    """No step rounds: the amount is what fraction arithmetic gives."""
    text, value = number

    assert Quantity(text + suffix).amount == value * FACTORS[suffix]


@given(numbers(), st.sampled_from(["e", "E"]), st.integers(-30, 30))
def test_an_exponent_is_a_power_of_ten(number: tuple[str, Fraction], letter: str, exponent: int) -> None:
    """`1e3` and `1E3` are 1000, and `1E` alone is an exa."""
    text, value = number

    assert Quantity(f"{text}{letter}{exponent}").amount == value * Fraction(10) ** exponent


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_is_itself(number: int) -> None:
    """A number that is not in quotes is taken as bytes."""
    assert Quantity(number).amount == number
    assert Quantity(str(number)).amount == number


@given(numbers(), st.sampled_from(sorted(FACTORS)))
def test_a_quantity_comes_back_as_it_was_written(number: tuple[str, Fraction], suffix: str) -> None:
    """Reading and writing an object changes no text in it, so nobody sees a difference."""

    class Holder(BaseModel):
        size: Quantity

    source = number[0] + suffix

    assert Holder.model_validate({"size": source}).model_dump(mode="json") == {"size": source}


@given(numbers(), st.sampled_from(sorted(FACTORS)))
def test_what_is_taken_fits_the_published_pattern(number: tuple[str, Fraction], suffix: str) -> None:
    """The apiserver lets pass whatever is a quantity here."""
    assert re.search(QUANTITY_PATTERN, number[0] + suffix)


@given(numbers(), st.sampled_from(sorted(FACTORS)), st.sampled_from([1, 4096, GIB_BYTES]))
def test_bytes_are_the_least_multiple_that_holds_the_amount(
    number: tuple[str, Fraction], suffix: str, multiple: int
) -> None:
    """Rounding is up, to the next multiple and no further."""
    quantity = Quantity(number[0] + suffix)

    rounded = quantity.to_bytes(multiple_bytes=multiple)

    assert rounded == ceil(quantity.amount / multiple) * multiple


@given(numbers(), numbers(), st.sampled_from(sorted(FACTORS)))
def test_order_and_equality_are_those_of_the_amounts(
    one: tuple[str, Fraction], other: tuple[str, Fraction], suffix: str
) -> None:
    """Quantities compare by what they denote."""
    left, right = Quantity(one[0] + suffix), Quantity(other[0] + suffix)

    assert (left < right) == (one[1] < other[1])
    assert (left == right) == (one[1] == other[1])
    assert left != right or hash(left) == hash(right)


@pytest.mark.parametrize(
    ("text", "gib"),
    [("8Gi", 8), ("1.5Gi", 2), ("50G", 47), ("1e3", 1), ("1", 1), ("1024Mi", 1), ("1025Mi", 2), ("1Ti", 1024)],
)
def test_sizes_are_rounded_up_to_a_gib(text: str, gib: int) -> None:
    """The rack takes multiples of 1 GiB only (oxide-semantics 2.2 and 2.3)."""
    assert Quantity(text).to_bytes(multiple_bytes=GIB_BYTES) == gib * GIB_BYTES


def test_one_amount_in_two_spellings_is_equal() -> None:
    """`1Gi` and `1024Mi` are the same quantity, each with its own text."""
    assert Quantity("1Gi") == Quantity("1024Mi")
    assert (str(Quantity("1Gi")), repr(Quantity("1024Mi"))) == ("1Gi", "Quantity('1024Mi')")
    assert Quantity("1Gi") != "1Gi"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "8 Gi",
        "8gi",
        "8GI",
        "Gi",
        ".",
        "+",
        "-Gi",
        "1e",
        "1e1.5",
        "1e3Gi",
        "1Gi ",
        "1\n",
        "1,5Gi",
        "1K",
        "0x1",
        "\N{ARABIC-INDIC DIGIT ONE}",
    ],
)
def test_what_kubernetes_refuses_is_refused(text: str) -> None:
    """A text outside the grammar is no quantity, and the message quotes it."""
    with pytest.raises(QuantityError, match=re.escape(repr(text))):
        Quantity(text)


@pytest.mark.parametrize("value", [True, 1.5, None, ["1Gi"]])
def test_other_types_are_refused(value: object) -> None:
    """Only text and whole numbers are quantities; true is not 1."""
    with pytest.raises(QuantityError, match="expected text such as '8Gi' or a whole number"):
        Quantity(value)  # type: ignore[arg-type]  # the wrong type is what is tested


@pytest.mark.parametrize("text", ["1e31", "1e-31", "1e999999999", "9" * (QUANTITY_CHARACTERS_MAX + 1)])
def test_limits_keep_arithmetic_small(text: str) -> None:
    """A short text cannot ask for a number that fills the memory."""
    with pytest.raises(QuantityError, match=r"exponent|characters"):
        Quantity(text)
