"""The owner mark, whose text other versions of capox read back."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.ownership import DESCRIPTION_CHARACTERS_MAX, OwnerMark, format_mark, is_made_for, parse_mark

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


OWNER = OwnerMark(kind="OxideMachine", namespace="team", name="web", uid="uid-1", cluster_id="c1")


@pytest.mark.parametrize(
    ("change", "is_ours", "is_ours_by_record"),
    [
        ({}, True, True),
        ({"uid": "moved"}, True, True),  # a move gives new UIDs, and the clusterID stays (B43)
        ({"uid": "moved", "cluster_id": "c2"}, False, False),  # another management cluster's of the same name (B52)
        ({"cluster_id": "c2"}, True, True),  # the very same object, whose cluster was made anew
        ({"uid": "moved", "cluster_id": ""}, False, True),  # from before clusterID was known
        ({"uid": "moved", "name": "other"}, False, False),
        ({"uid": "moved", "namespace": "other"}, False, False),
        ({"kind": "OxideCluster"}, False, False),
        ({"uid": ""}, True, True),
    ],
)
def test_whose_a_marked_thing_is(change: dict[str, str], *, is_ours: bool, is_ours_by_record: bool) -> None:
    """One rule for all kinds: the UID, else the clusterID with the name, else the name with a recorded id."""
    mark = dataclasses.replace(OWNER, **change)  # type: ignore[arg-type]

    assert is_made_for(mark, OWNER) is is_ours
    assert is_made_for(mark, OWNER, is_recorded=True) is is_ours_by_record


def test_without_a_cluster_id_only_uid_or_record_decide() -> None:
    """When its OxideCluster is gone, a machine does not know the clusterID: a name alone is anybody's."""
    orphan = dataclasses.replace(OWNER, uid="moved", cluster_id="")

    assert not is_made_for(OWNER, orphan)
    assert is_made_for(OWNER, orphan, is_recorded=True)
