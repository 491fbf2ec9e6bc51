"""Creates whose outcome is not known: which errors leave it so, and for how long (semantics 1.3, 10)."""

from __future__ import annotations

from typing import Final

from capox.oxide import errors as oxide

__all__ = ["CREATE_SETTLES_SECONDS", "UNANSWERED"]

CREATE_SETTLES_SECONDS: Final = 60.0
"""How long after an unanswered create what it makes may still appear."""

UNANSWERED: Final = (oxide.TransportError, oxide.ResponseError, oxide.InternalError, oxide.ServiceUnavailable)
"""Errors of a create that may come after it was done: all that is not the rack's own refusal, a gateway's page too."""
