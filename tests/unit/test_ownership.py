"""The owner mark, whose text other versions of capox read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.ownership import DESCRIPTION_CHARACTERS_MAX, OwnerMark, format_mark, parse_mark

UID = "0b5a7c1e-3a51-4a39-9a52-6a0f0a4b6c11"
CLUSTER_ID = "5f0c6a52-7f0e-4f0e-8a3e-2f6f3f0b9d77"

WORD = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)


def test_text_of_a_mark_is_fixed() -> None:
    """The text never changes: objects that bear it outlive the version that wrote it."""
    mark = OwnerMark(kind="OxideMachine", namespace="team-a", name="web.0", uid=UID, cluster_id=CLUSTER_ID)

    text = format_mark(mark)

    expected = f"Managed by capox: kind=OxideMachine object=team-a/web.0 uid={UID} cluster={CLUSTER_ID}"
    assert expected == text


@given(namespace=WORD, name=WORD, ports=st.lists(st.integers(1, 65535), max_size=5))
def test_mark_survives_the_rack(namespace: str, name: str, ports: list[int]) -> None:
    """What was formatted is parsed as the same, with words of the cloud controller manager's beside."""
    further = {"ports": ",".join(f"tcp/{port}" for port in ports)} if ports else {}
    mark = OwnerMark(kind="Service", namespace=namespace, name=name, uid=UID, cluster_id=CLUSTER_ID, further=further)

    assert mark == parse_mark(format_mark(mark))


@pytest.mark.parametrize(
    "description",
    ["", "my machine", "Managed by capox", "managed by capox: kind=A object=b/c", "Managed by capox: kind=A object=b"],
)
def test_other_descriptions_are_no_marks(description: str) -> None:
    """A description that somebody wrote by hand makes nothing ours."""
    assert parse_mark(description) is None


def test_first_word_of_a_name_counts() -> None:
    """What was appended to a mark cannot change what it says."""
    text = format_mark(OwnerMark(kind="OxideMachine", namespace="a", name="b", uid=UID))

    mark = parse_mark(text + " uid=other kind=Service")

    assert mark is not None
    assert (mark.kind, mark.uid) == ("OxideMachine", UID)


def test_longest_names_fit() -> None:
    """The longest namespace and name that Kubernetes takes leave a mark within what the rack stores."""
    mark = OwnerMark(kind="OxideMachine", namespace="n" * 63, name="m" * 253, uid=UID, cluster_id="c" * 63)

    assert len(format_mark(mark)) <= DESCRIPTION_CHARACTERS_MAX


def test_mark_that_does_not_fit_is_refused() -> None:
    """A longer description would end in an error 500 of the rack."""
    mark = OwnerMark(kind="Service", namespace="a", name="b", uid=UID, further={"ports": "9" * 500})

    with pytest.raises(ValueError, match="at most 512"):
        format_mark(mark)
