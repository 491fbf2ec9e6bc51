"""Conditions: set, get, drop and summarise them. Pure; the time is an argument.

The one rule that others depend on: `lastTransitionTime` moves only when `status` does (C-CO-3). Machine health checks
measure their timeouts from it, so a time that moves on every pass would switch remediation off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from capox.kube.objects import MESSAGE_CHARACTERS_MAX, Condition, ConditionStatus

__all__ = ["Finding", "drop_condition", "get_condition", "is_condition_true", "set_condition", "summarise"]

_CUT: Final = " ... (cut)"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a pass found out about one aspect of an object, before it is known whether that is a transition."""

    type: str
    """The condition's type."""

    status: ConditionStatus
    """Whether the aspect holds."""

    reason: str
    """Why, as one CamelCase word (C-CO-2)."""

    message: str = ""
    """Why, for people; empty when True (L-35)."""


def get_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Give the condition of a type, or None when it was not reported yet."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_condition_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Tell whether a condition is reported and True; one that is absent or Unknown is not."""
    condition = get_condition(conditions, type_)
    return condition is not None and condition.status == "True"


def set_condition(
    conditions: Iterable[Condition],
    finding: Finding,
    *,
    observed_generation: int | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Give the conditions with one of them set.

    Args:
        conditions: The conditions as they are stored.
        finding: What this pass found. A message beyond the limit is cut and says so (C-CO-2).
        observed_generation: `metadata.generation` of the object that was judged, or None where there is none.
        now: The present time; used only when the status changes or the type is new (C-CO-3).

    Returns:
        All conditions, sorted by type, so that an unchanged state always has the same text.

    Raises:
        pydantic.ValidationError: The type or the reason is not one that Kubernetes takes (C-CO-2).
    """
    conditions = tuple(conditions)
    before = get_condition(conditions, finding.type)
    since = (
        now.replace(microsecond=0) if before is None or before.status != finding.status else before.last_transition_time
    )
    after = Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=_cut(finding.message),
        last_transition_time=since,
        observed_generation=observed_generation,
    )
    return tuple(sorted((*drop_condition(conditions, finding.type), after), key=_by_type))


def drop_condition(conditions: Iterable[Condition], type_: str) -> tuple[Condition, ...]:
    """Give the conditions without the one of a type, sorted by type."""
    return tuple(sorted((condition for condition in conditions if condition.type != type_), key=_by_type))


def summarise(
    conditions: Iterable[Condition],
    *,
    type_: str,
    over: Sequence[str],
    bad_when_true: Sequence[str] = (),
    reason_when_true: str,
) -> Finding:
    """Sum several conditions up into one, such as Ready.

    False wins over Unknown, Unknown over True, and a condition that is not reported yet counts as Unknown: a summary is
    never True before everything it covers was found to hold (C-CO-6).

    Args:
        conditions: The conditions as they are, the summary itself not among those summed up.
        type_: The type of the summary.
        over: The types summed up, the weightiest first; the first that is not well gives the reason.
        bad_when_true: Types that are well when absent or False, and bad when True, such as Deleting. They come before
            those of `over`.
        reason_when_true: The summary's reason when all is well.

    Returns:
        The summary. Its message names each type that is not well, and is empty when it is True.
    """
    reported = {condition.type: condition for condition in conditions}
    troubles: list[Finding] = []
    for name in bad_when_true:
        condition = reported.get(name)
        if condition is not None and condition.status != "False":
            turned: ConditionStatus = "False" if condition.status == "True" else "Unknown"
            troubles.append(Finding(name, turned, condition.reason, condition.message))
    for name in over:
        condition = reported.get(name)
        if condition is None:
            troubles.append(Finding(name, "Unknown", "NotYetReported", "not yet reported"))
        elif condition.status != "True":
            troubles.append(Finding(name, condition.status, condition.reason, condition.message))
    if not troubles:
        return Finding(type_, "True", reason_when_true)
    status: ConditionStatus = "False" if any(trouble.status == "False" for trouble in troubles) else "Unknown"
    first = next(trouble for trouble in troubles if trouble.status == status)
    parts = [f"{trouble.type}: {trouble.message or trouble.reason}" for trouble in troubles]
    return Finding(type_, status, first.reason, _cut("; ".join(parts)))


def _by_type(condition: Condition) -> str:
    return condition.type


def _cut(message: str) -> str:
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return message[: MESSAGE_CHARACTERS_MAX - len(_CUT)] + _CUT
