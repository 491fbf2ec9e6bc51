"""Conditions: the transition time moves with the status alone, and a summary never claims too much."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from capox.kube.conditions import (
    Finding,
    drop_condition,
    get_condition,
    is_condition_true,
    set_condition,
    summarise,
)
from capox.kube.objects import MESSAGE_CHARACTERS_MAX, Condition, ConditionStatus

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = START + timedelta(minutes=7)

STATUSES: list[ConditionStatus] = ["True", "False", "Unknown"]
FINDINGS = st.builds(
    Finding,
    type=st.sampled_from(["Ready", "Paused", "Deleting"]),
    status=st.sampled_from(STATUSES),
    reason=st.sampled_from(["First", "Second"]),
    message=st.sampled_from(["", "details"]),
)


def conditions_of(*findings: Finding, now: datetime = START) -> tuple[Condition, ...]:
    """Set each finding in turn on no conditions at all."""
    conditions: tuple[Condition, ...] = ()
    for finding in findings:
        conditions = set_condition(conditions, finding, observed_generation=1, now=now)
    return conditions


def test_a_new_condition_gets_the_present_time_in_whole_seconds() -> None:
    """Kubernetes keeps whole seconds, so a fraction would be a change on the next read."""
    (condition,) = conditions_of(Finding("Ready", "True", "Good"), now=START.replace(microsecond=123456))

    assert condition.last_transition_time == START


def test_the_time_stays_when_only_the_reason_or_the_message_changes() -> None:
    """Machine health checks measure from this time; a reason that changes is no transition (C-CO-3)."""
    before = conditions_of(Finding("Ready", "False", "First", "creating"))

    (after,) = set_condition(before, Finding("Ready", "False", "Second", "starting"), observed_generation=2, now=LATER)

    assert after.last_transition_time == START
    assert (after.reason, after.message, after.observed_generation) == ("Second", "starting", 2)


def test_the_time_moves_when_the_status_changes() -> None:
    """A change of status is a transition (C-CO-3)."""
    before = conditions_of(Finding("Ready", "False", "First"))

    (after,) = set_condition(before, Finding("Ready", "True", "First"), observed_generation=1, now=LATER)

    assert after.last_transition_time == LATER


@given(st.lists(FINDINGS, max_size=12))
def test_setting_the_same_again_later_changes_nothing(findings: list[Finding]) -> None:
    """A pass that finds the same state writes nothing, or every status patch would wake the next pass (C-CO-7)."""
    before = conditions_of(*findings)

    after = before
    for finding in {finding.type: finding for finding in findings}.values():
        after = set_condition(after, finding, observed_generation=1, now=LATER)

    assert after == before


@given(st.lists(FINDINGS, max_size=12))
def test_conditions_are_one_a_type_and_sorted(findings: list[Finding]) -> None:
    """The list is a map by type with a stable order, whatever the order of the findings."""
    types = [condition.type for condition in conditions_of(*findings)]

    assert types == sorted({finding.type for finding in findings})


def test_an_overlong_message_is_cut_and_says_so() -> None:
    """The words of a rack have no limit; a condition's message has (C-CO-2)."""
    (condition,) = conditions_of(Finding("Ready", "False", "Bad", "é" * (MESSAGE_CHARACTERS_MAX + 1)))

    assert len(condition.message) == MESSAGE_CHARACTERS_MAX
    assert condition.message.endswith("(cut)")


def test_a_reason_that_is_no_word_is_an_error_of_ours() -> None:
    """Reasons are constants, so a bad one is found at once and never reaches the apiserver (C-CO-2)."""
    with pytest.raises(ValidationError, match="reason"):
        conditions_of(Finding("Ready", "False", "not a word"))


def test_absent_unknown_and_false_are_all_not_true() -> None:
    """Only a condition that is reported and True is true."""
    conditions = conditions_of(Finding("A", "True", "R"), Finding("B", "False", "R"), Finding("C", "Unknown", "R"))

    assert is_condition_true(conditions, "A")
    assert not any(is_condition_true(conditions, type_) for type_ in ("B", "C", "D"))
    assert get_condition(conditions, "D") is None


def test_a_dropped_condition_is_gone_and_the_others_stay() -> None:
    """Dropping takes one type out."""
    conditions = conditions_of(Finding("A", "True", "R"), Finding("B", "False", "R"))

    assert [condition.type for condition in drop_condition(conditions, "A")] == ["B"]


def summary_of(*findings: Finding) -> Finding:
    """Sum up into Ready, over InstanceProvisioned and BootstrapDataReady, with Deleting bad when True."""
    return summarise(
        conditions_of(*findings),
        type_="Ready",
        over=("BootstrapDataReady", "InstanceProvisioned"),
        bad_when_true=("Deleting",),
        reason_when_true="InstanceRunning",
    )


DATA_READY = Finding("BootstrapDataReady", "True", "Found")
PROVISIONED = Finding("InstanceProvisioned", "True", "Created")


def test_a_summary_is_true_only_when_all_is_reported_and_well() -> None:
    """All True gives True, with the given reason and no message (L-35)."""
    assert summary_of(DATA_READY, PROVISIONED) == Finding("Ready", "True", "InstanceRunning", "")


def test_a_summary_is_unknown_before_everything_was_reported() -> None:
    """Nothing is claimed before the first success (C-CO-6)."""
    summary = summary_of(DATA_READY)

    assert (summary.status, summary.reason) == ("Unknown", "NotYetReported")
    assert summary.message == "InstanceProvisioned: not yet reported"


def test_false_wins_over_unknown_and_gives_the_reason() -> None:
    """What is known to be bad is told first; the message names everything that is not well."""
    summary = summary_of(
        Finding("BootstrapDataReady", "Unknown", "Unread", "the Secret could not be read"),
        Finding("InstanceProvisioned", "False", "InsufficientCapacity"),
    )

    assert (summary.status, summary.reason) == ("False", "InsufficientCapacity")
    assert summary.message == (
        "BootstrapDataReady: the Secret could not be read; InstanceProvisioned: InsufficientCapacity"
    )


def test_deletion_outweighs_everything_else() -> None:
    """An object that is being deleted is not ready, whatever its other conditions say (C-IM-14)."""
    summary = summary_of(DATA_READY, PROVISIONED, Finding("Deleting", "True", "Deleting", "waiting for the instance"))

    assert (summary.status, summary.reason) == ("False", "Deleting")
    assert summary.message == "Deleting: waiting for the instance"


def test_not_deleting_does_no_harm() -> None:
    """A condition that is bad when True is well when False."""
    assert summary_of(DATA_READY, PROVISIONED, Finding("Deleting", "False", "NotDeleting")).status == "True"
