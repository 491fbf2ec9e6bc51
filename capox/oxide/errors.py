"""What can go wrong between a caller and the rack.

::

    OxideError
    |- TransportError            no HTTP answer; `outcome_unknown` when the request may have been carried out
    |- ResponseError             an answer that does not fit the specification
    |- NotVisible                the project itself is not found: nothing is known of what is in it
    `- APIError                  the rack's own refusal: status, error_code, message, request_id
       |- ObjectNotFound         404 together with error_code ObjectNotFound, nothing else
       |- ObjectAlreadyExists    HTTP 400 with that code
       |- InvalidRequest         400: the rack will not do that in this state, or does not understand it
       |- InvalidValue           400: one value is out of bounds
       |- Unauthorized           401: the token is missing, unknown or expired
       |- Forbidden              403: may be read, may not be changed
       |- Conflict               409
       |- Gone                   410
       |- InsufficientCapacity   507: no sled, address, quota or storage left; waiting helps, hurrying does not
       |- RateLimited            429, from a proxy: the rack itself never sends it
       |- ServiceUnavailable     503 (and 502, 504 from a proxy)
       `- InternalError          500

A library wraps its transport's errors so that the library below can be exchanged and so that callers ask one
question, "what do I do now", of one tree. Cancellation (`asyncio.CancelledError`) is no error and passes through
untouched.

Every class states its own part only; what lies below is chained as `__cause__`. `str(error)` carries the request id
and is meant for logs; `error.message` is the same for each repetition of the same refusal and is meant for whatever
is compared or stored. No token and no request body is ever part of either.
"""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LIMIT_CHARACTERS: Final = 1024
"""Longer messages are cut: they end in logs and in objects of limited size."""

RETRY_AFTER_LIMIT_SECONDS: Final = 60.0
"""A server that asks for more patience than this is asked again sooner: it must not be able to stop its clients."""


class OxideError(Exception):
    """The root of the tree: every failure of a call to the rack.

    Attributes:
        operation: The operationId that was called.
        message: What went wrong, without request id.
        request_id: The rack's `x-request-id`, by which its operator finds the call in the rack's log; None without an
            answer.
    """

    def __init__(self, message: str, *, operation: str, request_id: str | None = None) -> None:
        self.operation = operation
        self.message = printable(message)
        self.request_id = printable(request_id) if request_id else None
        super().__init__(self.message)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed when it is simply repeated a little later.

        Only reads are repeated by the client. For a write this says nothing about what has already happened.
        """
        return False

    def _details(self) -> list[str]:
        return [f"request {self.request_id}"] if self.request_id else []

    def __str__(self) -> str:
        details = self._details()
        return f"{self.operation}: {self.message}" + (f" ({', '.join(details)})" if details else "")


class TransportError(OxideError):
    """No complete HTTP answer arrived: refused, cut off, or not within the deadline.

    Attributes:
        outcome_unknown: True when the request may have reached the rack. The rack finishes what it began even when
            its client is gone (semantics 1.3), so a write may still be carried out after this error was raised.
    """

    def __init__(self, message: str, *, operation: str, outcome_unknown: bool) -> None:
        super().__init__(message, operation=operation)
        self.outcome_unknown = outcome_unknown

    @property
    def retryable(self) -> bool:
        """True: the next attempt takes another connection."""
        return True

    def _details(self) -> list[str]:
        return ["the request may have been carried out"] if self.outcome_unknown else []


class ResponseError(OxideError):
    """An answer that the specification does not allow: another status, no JSON, another shape, too large, a redirect.

    After a write the outcome is as unknown as after a lost answer.

    Attributes:
        status: The HTTP status that came with it.
        retry_after_seconds: The server's `Retry-After`, capped; None without one.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        status: int,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, operation=operation, request_id=request_id)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def retryable(self) -> bool:
        """True for the statuses of an overloaded or absent server: a proxy answers those in a form of its own."""
        return self.status == 429 or self.status >= 500

    def _details(self) -> list[str]:
        return [f"HTTP {self.status}", *super()._details()]


class NotVisible(OxideError):
    """What holds the objects asked about, a project or a subnet, is itself not found with these credentials.

    The shared observation of a project raises it in place of the rack's ObjectNotFound: an instance is not gone because
    its project cannot be seen, and no caller may mistake the one for the other.
    """


class APIError(OxideError):
    """The rack answered with an error of the documented form; this class stands for those without one of their own.

    Attributes:
        status: The HTTP status.
        error_code: The machine-readable code; None when the failure comes from the rack's HTTP framework
            (semantics 1.3).
        retry_after_seconds: The server's `Retry-After`, capped; None without one.
        passes_by_itself: Of the class: whether waiting is all that is needed.
    """

    passes_by_itself: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        status: int,
        error_code: str | None = None,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, operation=operation, request_id=request_id)
        self.status = status
        self.error_code = printable(error_code) if error_code else None
        self.retry_after_seconds = retry_after_seconds

    @property
    def retryable(self) -> bool:
        """True for the classes that pass by themselves."""
        return self.passes_by_itself

    def _details(self) -> list[str]:
        code = [self.error_code] if self.error_code else []
        return [f"HTTP {self.status}", *code, *super()._details()]


class ObjectNotFound(APIError):
    """The object does not exist, or these credentials may not see it: the rack tells the two apart to nobody.

    Before it counts as absent, the project must have been visible with the same credentials; see
    `capox.oxide.inventory`.
    """


class ObjectAlreadyExists(APIError):
    """The name is taken. After a create whose answer was lost, the holder may be one's own object."""


class InvalidRequest(APIError):
    """The rack refuses: the object is in the wrong state, or the request itself is not understood."""


class InvalidValue(APIError):
    """One value lies outside of what the rack accepts."""


class Unauthorized(APIError):
    """The token is missing, unknown or expired."""


class Forbidden(APIError):
    """The object may be read with these credentials, not changed."""


class Conflict(APIError):
    """The object is in a state that excludes the request, or somebody else changed it at the same moment."""


class Gone(APIError):
    """What was asked for is no longer offered."""


class InsufficientCapacity(APIError):
    """No room on the rack or in the silo's quota: sleds, addresses, vCPUs, memory, storage. Somebody must make room."""


class RateLimited(APIError):
    """Too many requests. The rack has no limiter; something in front of it may."""

    passes_by_itself = True


class ServiceUnavailable(APIError):
    """The rack cannot serve this now: a sled or its database is out of reach, or an attachment is in motion."""

    passes_by_itself = True


class InternalError(APIError):
    """The rack failed; the cause is in its own log, under the request id."""

    passes_by_itself = True


CLASSES: Final[Mapping[tuple[str | None, int], type[APIError]]] = {
    ("ObjectNotFound", 404): ObjectNotFound,
    ("ObjectAlreadyExists", 400): ObjectAlreadyExists,
    ("InvalidRequest", 400): InvalidRequest,
    ("InvalidValue", 400): InvalidValue,
    ("Unauthorized", 401): Unauthorized,
    ("Forbidden", 403): Forbidden,
    ("Conflict", 409): Conflict,
    ("Gone", 410): Gone,
    ("Not Found", 404): APIError,
    ("Internal", 500): InternalError,
    ("ServiceNotAvailable", 503): ServiceUnavailable,
    ("InsufficientCapacity", 507): InsufficientCapacity,
    # The rows without a code: the HTTP framework's own errors, codes that a newer rack may add, and proxies. There is
    # none for 404: a wrong URL or a wrong address must never be taken for an absent object.
    (None, 400): InvalidRequest,
    (None, 401): Unauthorized,
    (None, 403): Forbidden,
    (None, 409): Conflict,
    (None, 410): Gone,
    (None, 429): RateLimited,
    (None, 500): InternalError,
    (None, 502): ServiceUnavailable,
    (None, 503): ServiceUnavailable,
    (None, 504): ServiceUnavailable,
    (None, 507): InsufficientCapacity,
}
"""The one table: error_code and status to class (semantics 1.3). A code that comes with another status than its
own is judged by the status alone."""


def error_class(error_code: str | None, status: int) -> type[APIError]:
    """Say which class stands for an error answer.

    Args:
        error_code: The `error_code` of the body, None when it has none.
        status: The HTTP status, 400 to 599.

    Returns:
        The class of the pair's own row, else of the status's row, else `APIError`.
    """
    return CLASSES.get((error_code, status)) or CLASSES.get((None, status)) or APIError


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Read a `Retry-After` header.

    Args:
        headers: The answer's headers; names in lower case.

    Returns:
        Seconds to wait, at most `RETRY_AFTER_LIMIT_SECONDS`, never negative; None when the header is absent or
        unreadable. A date is taken relative to the answer's own `Date`, so that the two clocks need not agree;
        without that header it is ignored.
    """
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_LIMIT_SECONDS)
    try:
        until = email.utils.parsedate_to_datetime(value)
        answered = email.utils.parsedate_to_datetime(headers.get("date", ""))
        seconds = (until - answered).total_seconds()
    except (TypeError, ValueError, OverflowError):
        # Also when one of the two names a zone and the other does not.
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_LIMIT_SECONDS)


def printable(text: str) -> str:
    """Make a text from the wire fit for one line of a log: no control characters, bounded length.

    Args:
        text: Any text.

    Returns:
        The text with each character that does not print replaced by a space, cut to `MESSAGE_LIMIT_CHARACTERS`.
    """
    line = "".join(character if character.isprintable() else " " for character in text[: MESSAGE_LIMIT_CHARACTERS + 1])
    return line if len(line) <= MESSAGE_LIMIT_CHARACTERS else line[: MESSAGE_LIMIT_CHARACTERS - 3] + "..."
