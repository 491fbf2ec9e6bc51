"""Pages of lists, as the API gives them (semantics 1.5).

`next_page` is null only on an empty page: a client has to ask once more behind the last item. The token carries the
filters of the first request, so
that they need not be repeated; what it says wins over what the query says.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from capox.rack import errors
from capox.rack.json import JSON

DEFAULT_LIMIT = 100
MAXIMUM_LIMIT = 10_000
MAXIMUM_TOKEN_CHARACTERS = 512

NAME_ASCENDING = "name_ascending"
NAME_DESCENDING = "name_descending"
ID_ASCENDING = "id_ascending"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Position:
    """Where in a list a page begins.

    Attributes:
        order: one of the API's sort modes.
        after: the key of the last item seen; None at the beginning.
        limit: how many items a page may hold.
        selector: the filters of the first request, which the token repeats.
    """

    order: str
    after: str | None
    limit: int
    selector: dict[str, str] = dataclasses.field(default_factory=dict)


def position(query: dict[str, Any], *, default_order: str) -> tuple[Position, dict[str, Any]]:
    """Where the page begins, and the query with the token's filters in it.

    Raises:
        FrameworkError: the token is not one of ours.
    """
    limit = min(query.get("limit") or DEFAULT_LIMIT, MAXIMUM_LIMIT)
    selector = {key: value for key, value in query.items() if key not in {"limit", "page_token", "sort_by"}}
    token = query.get("page_token")
    if token is None:
        return Position(query.get("sort_by", default_order), None, limit, selector), query
    start = _parse_token(token)
    selector = start["selector"]
    return Position(start["sort_by"], start["last_seen"], limit, selector), {**query, **selector}


def page(items: Iterable[T], at: Position, view: Callable[[T], JSON], key: Callable[[T], str]) -> JSON:
    """One page (schema `…ResultsPage`) of items that come in the position's order and begin behind it."""
    found = list(islice(items, at.limit))
    next_page = _format_token(at, key(found[-1])) if found else None
    return {"items": [view(item) for item in found], "next_page": next_page}


def whole(items: Iterable[T], view: Callable[[T], JSON]) -> JSON:
    """A list that the API gives in one piece in spite of its page-like shape."""
    return {"items": [view(item) for item in items], "next_page": None}


def ordered(items: Iterable[T], at: Position, name: Callable[[T], str], identity: Callable[[T], str]) -> Iterator[T]:
    """Sort loose items by the position's order and drop those up to it.

    As on a real rack the place is kept as a bare name or id, so items that share a name across a page's edge are passed
    over when a list is
    walked by name.
    """
    key = identity if at.order == ID_ASCENDING else name
    reverse = at.order == NAME_DESCENDING
    for item in sorted(items, key=lambda item: (key(item), identity(item)), reverse=reverse):
        if at.after is None or (key(item) < at.after if reverse else key(item) > at.after):
            yield item


def _format_token(at: Position, last_seen: str) -> str:
    start = {"v": "v1", "page_start": {"sort_by": at.order, "selector": at.selector, "last_seen": last_seen}}
    return base64.urlsafe_b64encode(json.dumps(start, separators=(",", ":")).encode()).decode()


def _parse_token(token: str) -> dict[str, Any]:
    complaint = "unable to parse query string: failed to parse pagination token: "
    if len(token) > MAXIMUM_TOKEN_CHARACTERS:
        raise errors.bad_request(complaint + "too large")
    try:
        decoded = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
        json.dumps(decoded, ensure_ascii=False).encode()
    except (binascii.Error, ValueError, RecursionError):
        raise errors.bad_request(complaint + "invalid base64 or JSON") from None
    if not isinstance(decoded, dict) or decoded.get("v") != "v1":
        raise errors.bad_request(complaint + "unsupported version")
    start: Any = decoded.get("page_start")
    if not _is_start(start):
        raise errors.bad_request(complaint + "corrupted")
    return dict(start)


def _is_start(start: Any) -> bool:
    return (
        isinstance(start, dict)
        and isinstance(start.get("sort_by"), str)
        and start["sort_by"] in {NAME_ASCENDING, NAME_DESCENDING, ID_ASCENDING}
        and isinstance(start.get("last_seen"), str)
        and isinstance(start.get("selector"), dict)
        and all(isinstance(value, str) for value in start["selector"].values())
    )
