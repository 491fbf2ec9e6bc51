"""Which errors of a create leave open whether it was done."""

from __future__ import annotations

import pytest

from capox.oxide import errors as oxide
from capox.provider.unanswered import UNANSWERED


@pytest.mark.parametrize(
    ("kind", "is_unanswered"),
    [
        (oxide.TransportError, True),
        (oxide.ResponseError, True),
        (oxide.InternalError, True),
        (oxide.ServiceUnavailable, True),
        (oxide.RateLimited, True),  # a gateway's, whichever create it was
        (oxide.ObjectAlreadyExists, False),
        (oxide.InvalidRequest, False),
        (oxide.InvalidValue, False),
        (oxide.Forbidden, False),
        (oxide.Unauthorized, False),
        (oxide.Conflict, False),
        (oxide.InsufficientCapacity, False),
        (oxide.ObjectNotFound, False),
    ],
)
def test_only_the_racks_own_refusals_are_answers(kind: type[oxide.OxideError], *, is_unanswered: bool) -> None:
    """The same for instances and floating IPs: what is no refusal of the rack's own may have been carried out (B1)."""
    assert issubclass(kind, UNANSWERED) is is_unanswered
