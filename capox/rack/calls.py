"""The log of calls: who asked for what, and what was answered.

It holds hashes of bodies and never a body, a token or user data.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib

from capox.rack.credentials import without_secrets
from capox.rack.json import JSON


@dataclasses.dataclass(kw_only=True)
class LoggedCall:
    """One request.

    Attributes:
        number: counts from 1 over the life of the rack.
        time: when it arrived.
        request_id: the answer's `x-request-id`.
        user: the name of the user; None when there were no valid credentials.
        api_version: the `api-version` header.
        user_agent: the `user-agent` header.
        method: the HTTP method.
        path: the path without the query.
        query: the query string.
        operation: the operationId; None when no operation was found.
        objects: the names and ids that it was about.
        body_sha256: of the request's body; None when it was empty.
        status: what was answered; None when no answer was sent.
        error_code: as answered.
        message: as answered.
        fault: the kind of fault that was played.
        seconds: from arrival to answer, on the rack's clock.
    """

    number: int
    time: datetime.datetime
    request_id: str
    user: str | None = None
    api_version: str | None = None
    user_agent: str | None = None
    method: str
    path: str
    query: str
    operation: str | None = None
    objects: tuple[str, ...] = ()
    body_sha256: str | None = None
    status: int | None = None
    error_code: str | None = None
    message: str | None = None
    fault: str | None = None
    seconds: float | None = None

    def dump(self) -> JSON:
        """The entry as JSON, with what looks like a token crossed out: a client may have put one into a URL."""
        fields = {name: _shown(value) for name, value in dataclasses.asdict(self).items()}
        return {**fields, "time": self.time.isoformat(), "objects": [_shown(name) for name in self.objects]}


class CallLog:
    """The last calls, and counts of all.

    Args:
        capacity: how many entries are kept.
    """

    def __init__(self, capacity: int = 200_000) -> None:
        self._entries: collections.deque[LoggedCall] = collections.deque(maxlen=capacity)
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, *, time: datetime.datetime, request_id: str, method: str, path: str, query: str) -> LoggedCall:
        """Enter a request that has arrived."""
        self._number += 1
        entry = LoggedCall(number=self._number, time=time, request_id=request_id, method=method, path=path, query=query)
        self._entries.append(entry)
        return entry

    def entries(self, after: int = 0) -> list[LoggedCall]:
        """The entries with a higher number than this."""
        return [entry for entry in self._entries if entry.number > after]

    def clear(self) -> None:
        """Forget the entries; numbers go on."""
        self._entries.clear()


def sha256(body: bytes) -> str | None:
    """The hash under which a body is logged."""
    return hashlib.sha256(body).hexdigest() if body else None


def _shown(value: JSON) -> JSON:
    return without_secrets(value) if isinstance(value, str) else value
