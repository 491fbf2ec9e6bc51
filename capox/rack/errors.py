"""What the rack answers when it refuses: two families, as a real one has them.

`Refusal` is raised by the API's own logic and carries an `error_code`. `FrameworkError` is raised before that logic is
reached (an unreadable body,
an unknown route, an unsupported version) and carries none. Clients tell the two apart by the presence of the key, so it
is omitted, not null.
"""

from __future__ import annotations

import dataclasses
from http import HTTPStatus

from capox.rack.json import JSON


@dataclasses.dataclass(eq=False)
class RackError(Exception):
    """An answer that is an error.

    Attributes:
        status: the HTTP status.
        message: what the body's `message` says.
        error_code: what the body's `error_code` says; None leaves the key out.
        headers: further headers of the answer, such as `Allow`.
    """

    status: int
    message: str
    error_code: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.error_code or '-'}: {self.message}"

    def body(self, request_id: str) -> dict[str, JSON]:
        """The answer's JSON body (schema `Error`)."""
        body: dict[str, JSON] = {"request_id": request_id}
        if self.error_code is not None:
            body["error_code"] = self.error_code
        return body | {"message": self.message}


class FrameworkError(RackError):
    """Refused by the HTTP framework, before the API's own logic (no `error_code`)."""


class Refusal(RackError):
    """Refused by the API's own logic (with an `error_code`)."""


def not_found(resource: str, *, name: str | None = None, identity: str | None = None) -> Refusal:
    """404: no such object, or one that the caller may not see. `resource` is kebab case, such as `floating-ip`."""
    key, value = ("name", name) if name is not None else ("id", identity)
    return not_found_text(f'{resource} with {key} "{value}"')


def not_found_text(text: str) -> Refusal:
    """404 in free text."""
    return Refusal(HTTPStatus.NOT_FOUND, f"not found: {text}", "ObjectNotFound")


def already_exists(resource: str, name: str) -> Refusal:
    """400, not 409: a name that is taken."""
    return Refusal(HTTPStatus.BAD_REQUEST, f'already exists: {resource} "{name}"', "ObjectAlreadyExists")


def invalid_request(text: str) -> Refusal:
    """400: understood, and not possible."""
    return Refusal(HTTPStatus.BAD_REQUEST, text, "InvalidRequest")


def invalid_value(label: str, text: str) -> Refusal:
    """400: a field's value that the API does not take."""
    return Refusal(HTTPStatus.BAD_REQUEST, f'unsupported value for "{label}": {text}', "InvalidValue")


def unauthorized() -> Refusal:
    """401: no credentials, unknown ones or expired ones; the API does not tell which."""
    return Refusal(HTTPStatus.UNAUTHORIZED, "credentials missing or invalid", "Unauthorized")


def forbidden() -> Refusal:
    """403: the caller may see the object but not do this to it."""
    return Refusal(HTTPStatus.FORBIDDEN, "Forbidden", "Forbidden")


def conflict(text: str) -> Refusal:
    """409: the object's state does not allow it now."""
    return Refusal(HTTPStatus.CONFLICT, text, "Conflict")


def service_unavailable() -> Refusal:
    """503: try again later; the cause is hidden."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable", "ServiceNotAvailable")


def internal_error() -> Refusal:
    """500: the cause is hidden."""
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error", "Internal")


def insufficient_capacity(text: str) -> Refusal:
    """507: no room on the rack, in the quota or in the pool."""
    return Refusal(HTTPStatus.INSUFFICIENT_STORAGE, f"Insufficient capacity: {text}", "InsufficientCapacity")


def bad_request(text: str) -> FrameworkError:
    """400 of the framework: something could not be parsed."""
    return FrameworkError(HTTPStatus.BAD_REQUEST, text)
