"""The steps that plans of all kinds share: those that do nothing on the rack, and say why."""

from __future__ import annotations

import dataclasses

from capox.api.v1alpha1 import Reason

__all__ = ["Blocked", "Finished", "Steady", "Wait"]


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something else has got on; the message says with what."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing that we may do; a person has to."""

    reason: Reason
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Steady:
    """What is wanted is there, as it should be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to be removed."""
