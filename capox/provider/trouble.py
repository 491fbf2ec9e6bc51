"""Why a pass could not go on, in words for a condition, and what an error of the rack means to a person."""

from __future__ import annotations

import dataclasses

from capox.api.v1alpha1 import Reason
from capox.oxide import errors as oxide

__all__ = ["Trouble", "of_rack_error"]


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pass could not go on.

    Attributes:
        reason: The condition's reason.
        message: What is wrong and what to do about it.
        is_passing: Whether it says nothing about the object: the rack did not answer, or not properly. What was well
            before is taken to be well still (C-IM-11, C-IC-7).
    """

    reason: str
    message: str
    is_passing: bool = False


def of_rack_error(error: oxide.OxideError) -> Trouble:
    """What an error of the rack means, where nothing more is known about the call."""
    match error:
        case oxide.InsufficientCapacity():
            return Trouble(Reason.INSUFFICIENT_CAPACITY, error.message)
        case oxide.Unauthorized() | oxide.Forbidden() | oxide.NotVisible():
            # A rotation looks the same for a moment (B31), so nothing is concluded but that work has to wait.
            return Trouble(
                Reason.CREDENTIALS_INVALID,
                f"the rack does not let these credentials do this ({error.message}); "
                "check the Secret's token, spec.project, and the user's role on the project",
                is_passing=True,
            )
        case oxide.InvalidRequest() | oxide.InvalidValue() | oxide.ObjectNotFound() | oxide.ObjectAlreadyExists():
            return Trouble(Reason.INVALID_SPEC, f"the rack refuses this: {error.message}")
        case _:
            return Trouble("RackUnavailable", error.message, is_passing=True)
