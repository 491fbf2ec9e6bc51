"""What the Kubernetes API refuses.

```
KubeError
|- LoginError        there are no usable credentials
|- NoAnswer          no answer came: connection, time-out; a write may or may not have been carried out
|- Unreadable        an object came that does not fit its model
`- KubeAPIError      the API's Status: status code, reason, message
   |- NotFound       404 of an object; 404 of a kind that is not served is KindNotServed
   |- KindNotServed  404 without an object's name: the CRD is not there (yet)
   |- AlreadyExists  409 with that reason
   |- Conflict       409: the object has changed since it was read; read it again
   |- Expired        410: the place in a list or watch is too old; begin again
   |- Forbidden      403; NamespaceTerminating is told apart by `is_namespace_terminating`
   |- Unauthorized   401
   |- Invalid        400 and 422: refused by a schema, a rule or a policy
   `- Unavailable    429 and 5xx: try again later
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "AlreadyExists",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "KindNotServed",
    "KubeAPIError",
    "KubeError",
    "LoginError",
    "NoAnswer",
    "NotFound",
    "Unauthorized",
    "Unavailable",
    "Unreadable",
    "error_from_status",
]


class KubeError(Exception):
    """Anything that a call of the Kubernetes API can end in, other than its answer."""


class LoginError(KubeError):
    """There are no credentials, or none that can be read."""


class NoAnswer(KubeError):
    """No answer came. What was asked for may have been carried out."""


class Unreadable(KubeError):
    """An object was given that does not fit the model of its kind."""


class KubeAPIError(KubeError):
    """The API answered with a refusal.

    Attributes:
        status: The HTTP status.
        reason: The reason of the answer's Status object, such as `Conflict`; empty when there was none.
        message: The message of the answer's Status object.
        causes: The types of the Status object's causes, such as `NamespaceTerminating`.
    """

    def __init__(self, status: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class NotFound(KubeAPIError):
    """There is no such object."""


class KindNotServed(KubeAPIError):
    """The apiserver does not serve this kind: its CRD is not installed, or not in this version."""


class AlreadyExists(KubeAPIError):
    """An object of this name is there already."""


class Conflict(KubeAPIError):
    """The object has changed since it was read, or is not the one that was meant."""


class Expired(KubeAPIError):
    """What was to be continued is too old."""


class Forbidden(KubeAPIError):
    """RBAC, admission or the namespace's end does not allow it."""

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether nothing can be made any more because the namespace is being deleted (M-12)."""
        return "NamespaceTerminating" in self.causes


class Unauthorized(KubeAPIError):
    """The credentials are not accepted."""


class Invalid(KubeAPIError):
    """The object is refused as it is."""


class Unavailable(KubeAPIError):
    """The API cannot answer now."""


_BY_STATUS: Final[dict[int, type[KubeAPIError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Unavailable,
}


def error_from_status(status: int, body: object) -> KubeAPIError:
    """The error for an HTTP status and the JSON body that came with it (a `metav1.Status`, or anything at all)."""
    document = body if isinstance(body, Mapping) else {}
    reason = str(document.get("reason") or "")
    message = str(document.get("message") or "")
    details = document.get("details")
    details = details if isinstance(details, Mapping) else {}
    given = details.get("causes")
    causes = given if isinstance(given, list) else ()
    kinds = tuple(str(cause.get("reason", "")) for cause in causes if isinstance(cause, Mapping))
    if status == 404:
        found = NotFound if details.get("name") else KindNotServed
        return found(status, reason, message, kinds)
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message, kinds)
    known = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeAPIError)
    return known(status, reason, message, kinds)
