"""Faults that the rack plays on request: by operation, object, number and probability, the same for the same seed."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Iterable
from typing import Annotated, Literal

import pydantic

FaultKind = Literal[
    "unavailable",  # 503, and nothing is done
    "insufficient_capacity",  # 507, and nothing is done
    "internal_error",  # 500, and nothing is done
    "internal_error_after",  # it is done, and the answer is 500
    "unauthorized",  # 401, and nothing is done
    "hidden",  # 404 ObjectNotFound, and nothing is done
    "not_found_page",  # 404 without an error_code, as from a wrong URL or a proxy, and nothing is done
    "slow",  # it is done late
    "slow_answer",  # it is done, and the answer comes late
    "lost_request",  # the connection ends, and nothing is done
    "lost_reply",  # it is done, and the connection ends without an answer
    "start_failure",  # an instance's start does not find a sled
    "pool_exhausted",  # an IP pool has no address left
]


class FaultRule(pydantic.BaseModel):
    """One rule. The first rule that matches a request and whose dice fall is played.

    Attributes:
        kind: what happens.
        operation: the operationId, with `*` and `?` as in file names.
        object: the name or id that the request is about, with the same wildcards; for `pool_exhausted`, of the pool.
        probability: how often a matching request is hit, 0 to 1.
        times: after how many hits the rule is spent; absent, never.
        seconds: how late, for the slow kinds.
        seed: the seed of the rule's dice.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    kind: FaultKind
    operation: Annotated[str, pydantic.Field(max_length=100)] = "*"
    object: Annotated[str, pydantic.Field(max_length=100)] = "*"
    probability: Annotated[float, pydantic.Field(ge=0, le=1)] = 1.0
    times: Annotated[int, pydantic.Field(ge=1)] | None = None
    seconds: Annotated[float, pydantic.Field(ge=0, le=3600)] = 1.0
    seed: int = 0


class ActiveRule:
    """A rule at work, with its dice and its count.

    Attributes:
        id: how the control endpoint calls it.
        rule: what it says.
        hits: how often it was played.
    """

    def __init__(self, number: int, rule: FaultRule) -> None:
        self.id = f"fault-{number}"
        self.rule = rule
        self.hits = 0
        self._dice = random.Random(rule.seed)  # noqa: S311 -- dice for tests, not for secrets

    def strikes(self, operation: str, objects: Iterable[str]) -> bool:
        """Whether the rule is played on this request. Only a matching request throws the dice."""
        rule = self.rule
        if rule.times is not None and self.hits >= rule.times:
            return False
        if not fnmatch.fnmatchcase(operation, rule.operation):
            return False
        if rule.object != "*" and not any(fnmatch.fnmatchcase(name, rule.object) for name in objects):
            return False
        if self._dice.random() >= rule.probability:
            return False
        self.hits += 1
        return True


class Faults:
    """The rules at work, in the order in which they were given."""

    def __init__(self) -> None:
        self.rules: list[ActiveRule] = []
        self._number = 0

    def add(self, rule: FaultRule) -> ActiveRule:
        """Put a rule to work, behind those that are there."""
        self._number += 1
        active = ActiveRule(self._number, rule)
        self.rules.append(active)
        return active

    def remove(self, identity: str) -> bool:
        """Take a rule out; False when there is none of this id."""
        kept = [active for active in self.rules if active.id != identity]
        removed = len(kept) < len(self.rules)
        self.rules = kept
        return removed

    def clear(self) -> None:
        """Take all rules out."""
        self.rules = []

    def on_request(self, operation: str, objects: Iterable[str]) -> FaultRule | None:
        """The fault to be played on a request, if any."""
        names = tuple(objects)
        for active in self.rules:
            if active.rule.kind not in {"start_failure", "pool_exhausted"} and active.strikes(operation, names):
                return active.rule
        return None

    def strikes(self, kind: FaultKind, operation: str, objects: Iterable[str]) -> bool:
        """Whether a fault of this kind is to be played inside an operation."""
        names = tuple(objects)
        return any(active.rule.kind == kind and active.strikes(operation, names) for active in self.rules)
