"""Creates whose outcome is not known: which errors leave it so, and for how long (semantics 1.3, 10)."""

from __future__ import annotations

from typing import Final

from capox.oxide import errors as oxide

__all__ = ["CREATE_SETTLES_SECONDS", "UNANSWERED"]

CREATE_SETTLES_SECONDS: Final = 60.0
"""How long after an unanswered create what it makes may still appear."""

UNANSWERED: Final = (
    oxide.TransportError,
    oxide.ResponseError,
    oxide.InternalError,
    oxide.ServiceUnavailable,
    oxide.RateLimited,
)
"""Errors of a create that may come after it was done: all that is not the rack's own refusal.

A gateway's page is none either, be it a 502 or a 429: the request may have been passed on before (B1).
"""
