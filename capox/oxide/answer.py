"""From a complete HTTP answer to a model, or to the error that it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from capox.oxide.errors import APIError, ResponseError, error_class, retry_after_seconds
from capox.oxide.models.wire import ReadModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capox.oxide.operation import Operation

AnswerT = TypeVar("AnswerT")

_REQUEST_ID_LIMIT_CHARACTERS: Final = 128


class _ErrorBody(ReadModel):
    """The documented body of an error; `error_code` is left out when there is none (semantics 1.3)."""

    message: str
    error_code: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer that has arrived whole.

    Attributes:
        status: The HTTP status.
        headers: The headers, names in lower case.
        body: The body, without any content coding.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str | None:
        """The rack's `x-request-id`; None when something else answered."""
        return self.headers.get("x-request-id", "")[:_REQUEST_ID_LIMIT_CHARACTERS] or None


def read_answer(operation: Operation[AnswerT], answer: Answer) -> AnswerT:
    """Judge an answer.

    Args:
        operation: What was asked.
        answer: What came back.

    Returns:
        The model of the operation's answer; None where success has no body.

    Raises:
        APIError: The rack refused, in the documented form.
        ResponseError: Anything else that is not documented, another 2xx than the operation's own included: what it
            would mean is not known.
    """
    if 400 <= answer.status <= 599:
        raise _api_error(operation, answer)
    if 300 <= answer.status <= 399:
        raise _response_error(operation, answer, f"the answer is a redirect{_where_to(answer)}, which is not followed")
    if answer.status != operation.status:
        raise _response_error(operation, answer, f"the status of success is {operation.status}")
    if operation.answer is None:
        if answer.body:
            raise _response_error(operation, answer, "the answer has a body where there is none")
        # An operation without an answer is an Operation[None].
        return None  # type: ignore[return-value]
    try:
        return operation.answer.validate_json(answer.body)
    except ValidationError as error:
        raise _response_error(operation, answer, _misfit(error, answer)) from error


def _api_error(operation: Operation[AnswerT], answer: Answer) -> APIError | ResponseError:
    try:
        body = _ErrorBody.model_validate_json(answer.body)
    except ValidationError as error:
        refused = _response_error(operation, answer, _misfit(error, answer))
        refused.__cause__ = error
        return refused
    return error_class(body.error_code, answer.status)(
        body.message,
        operation=operation.operation_id,
        status=answer.status,
        error_code=body.error_code,
        request_id=answer.request_id or body.request_id,
        retry_after_seconds=retry_after_seconds(answer.headers),
    )


def _response_error(operation: Operation[AnswerT], answer: Answer, message: str) -> ResponseError:
    return ResponseError(
        message,
        operation=operation.operation_id,
        status=answer.status,
        request_id=answer.request_id,
        retry_after_seconds=retry_after_seconds(answer.headers),
    )


def _where_to(answer: Answer) -> str:
    """Name the redirect's host only: the rest of the address may hold anything."""
    try:
        host = urlsplit(answer.headers.get("location", "")).hostname
    except ValueError:
        host = None
    return f" to {host}" if host else ""


def _misfit(error: ValidationError, answer: Answer) -> str:
    """Say what is wrong with a body, without repeating any of it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()
        if kind and kind != "application/json":
            return f"the answer is {kind}, not JSON; is this the address of the rack's API?"
        return "the answer is not JSON"
    place = ".".join(str(part) for part in first["loc"])
    return f"the answer does not fit the specification{f' at {place}' if place else ''}: {first['msg']}"
