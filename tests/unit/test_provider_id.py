"""The provider ID has one spelling, and everything else is refused with a reason."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.provider_id import PROVIDER_ID_PATTERN, ProviderIDError, format_provider_id, parse_provider_id

INSTANCE = "f47ac10b-58cc-4372-a567-0e02b2c3d479"


@given(st.uuids())
def test_formatting_and_parsing_are_each_others_inverse(instance: UUID) -> None:
    """What is made from an instance's ID gives that ID back, and fits the published pattern."""
    provider_id = format_provider_id(str(instance))

    assert parse_provider_id(provider_id) == str(instance)
    assert re.search(PROVIDER_ID_PATTERN, provider_id)


def test_the_text_is_fixed() -> None:
    """The spelling is part of the API: Oxide's cloud controller manager writes the same bytes (C-IM-8)."""
    assert format_provider_id(INSTANCE) == "oxide://f47ac10b-58cc-4372-a567-0e02b2c3d479"


def test_an_id_in_upper_case_is_written_in_lower_case() -> None:
    """Whatever the case of the instance's ID, the provider ID is in lower case."""
    assert format_provider_id(INSTANCE.upper()) == f"oxide://{INSTANCE}"


@pytest.mark.parametrize("text", ["", "web-1", INSTANCE.replace("-", ""), INSTANCE + "\n", f"oxide://{INSTANCE}"])
def test_only_an_instance_id_makes_a_provider_id(text: str) -> None:
    """A name, or anything else that is not a UUID with hyphens, is refused, and the message quotes it."""
    with pytest.raises(ProviderIDError, match=re.escape(repr(text))):
        format_provider_id(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "does not begin with 'oxide://'"),
        (f"aws:///zone/{INSTANCE}", "does not begin with 'oxide://'"),
        (f"OXIDE://{INSTANCE}", "does not begin with 'oxide://'"),
        ("oxide://", "where the instance's UUID in lower case belongs"),
        ("oxide://web-1", "has 'web-1' where the instance's UUID"),
        (f"oxide://{INSTANCE}/", "where the instance's UUID"),
        (f"oxide://{INSTANCE}\n", "where the instance's UUID"),
        (f"oxide://{INSTANCE.upper()}", f"must be 'oxide://{INSTANCE}'"),
    ],
)
def test_a_text_with_another_spelling_is_refused_with_the_reason(text: str, complaint: str) -> None:
    """A provider ID that Cluster API would not match byte for byte is no provider ID."""
    with pytest.raises(ProviderIDError, match=re.escape(complaint)):
        parse_provider_id(text)


@given(st.text(max_size=60))
def test_parsing_never_fails_in_another_way(text: str) -> None:
    """Any text is either the provider ID that its instance gives, or refused."""
    try:
        instance = parse_provider_id(text)
    except ProviderIDError:
        return
    assert format_provider_id(instance) == text
