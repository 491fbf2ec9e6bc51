"""The error tree, and the one table that classifies."""

from __future__ import annotations

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.oxide import errors

# Every error code of the rack with its status (semantics 1.3), and what it must become.
CODES = {
    ("ObjectNotFound", 404): errors.ObjectNotFound,
    ("ObjectAlreadyExists", 400): errors.ObjectAlreadyExists,
    ("InvalidRequest", 400): errors.InvalidRequest,
    ("InvalidValue", 400): errors.InvalidValue,
    ("Unauthorized", 401): errors.Unauthorized,
    ("Forbidden", 403): errors.Forbidden,
    ("Conflict", 409): errors.Conflict,
    ("Gone", 410): errors.Gone,
    ("Not Found", 404): errors.APIError,
    ("Internal", 500): errors.InternalError,
    ("ServiceNotAvailable", 503): errors.ServiceUnavailable,
    ("InsufficientCapacity", 507): errors.InsufficientCapacity,
}

# What a status means when no code says more: the rack's HTTP framework, a proxy, or a code newer than this client.
STATUSES = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    409: errors.Conflict,
    410: errors.Gone,
    429: errors.RateLimited,
    500: errors.InternalError,
    502: errors.ServiceUnavailable,
    503: errors.ServiceUnavailable,
    504: errors.ServiceUnavailable,
    507: errors.InsufficientCapacity,
}


def _tree(root: type[errors.OxideError]) -> dict[str, str]:
    """Name every class below a root, with its parent."""
    found = {}
    for child in root.__subclasses__():
        found[child.__name__] = root.__name__
        found |= _tree(child)
    return found


def _drawn() -> dict[str, str]:
    """Read the tree that the module's docstring draws: class to parent."""
    parents = ["OxideError"]
    found: dict[str, str] = {}
    for indent, names in re.findall(r"^ {4}([| ]*)[|`]- (\w+(?:, \w+)*)", inspect.getdoc(errors) or "", re.MULTILINE):
        depth = len(indent) // 3 + 1
        found |= dict.fromkeys(names.split(", "), parents[depth - 1])
        parents[depth:] = [names]
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    """The picture in the docstring names every class, below its parent, and nothing else."""
    assert _drawn() == _tree(errors.OxideError)


@pytest.mark.parametrize(("pair", "expected"), CODES.items(), ids=str)
def test_every_code_of_the_rack_has_its_class(pair: tuple[str, int], expected: type[errors.APIError]) -> None:
    """A documented code with its own status becomes exactly its class."""
    assert errors.error_class(*pair) is expected


@pytest.mark.parametrize("error_code", [None, "", "SomethingNewer"])
def test_every_status_has_a_class_without_a_known_code(error_code: str | None) -> None:
    """Without a code, or with an unknown one, the status decides; what has no row is a plain APIError."""
    classes = {status: errors.error_class(error_code, status) for status in range(400, 600)}

    assert classes == {status: STATUSES.get(status, errors.APIError) for status in range(400, 600)}


@pytest.mark.parametrize("error_code", [None, "Not Found", "objectnotfound", "Unknown", ""])
def test_a_404_without_the_code_is_not_absence(error_code: str | None) -> None:
    """A wrong URL or address answers 404 too; it is a plain APIError."""
    assert errors.error_class(error_code, 404) is errors.APIError


@given(st.one_of(st.none(), st.sampled_from([code for code, _ in CODES]), st.text()), st.integers(400, 599))
def test_only_documented_pairs_become_a_class_that_is_acted_upon(error_code: str | None, status: int) -> None:
    """Absence and existence are concluded from one pair each, whatever else arrives."""
    found = errors.error_class(error_code, status)

    assert (found is errors.ObjectNotFound) == ((error_code, status) == ("ObjectNotFound", 404))
    assert (found is errors.ObjectAlreadyExists) == ((error_code, status) == ("ObjectAlreadyExists", 400))


def test_what_is_retryable() -> None:
    """Of the rack's refusals, only those that pass by themselves are worth repeating as they are."""
    retryable = {
        name
        for name in _tree(errors.APIError) | {"APIError": ""}
        if getattr(errors, name)("no", operation="ping", status=500).retryable
    }

    assert retryable == {"RateLimited", "ServiceUnavailable", "InternalError"}
    assert errors.TransportError("cut", operation="ping", outcome_unknown=False).retryable
    assert not errors.NotVisible("not found: project", operation="instance_list").retryable


@pytest.mark.parametrize(("status", "expected"), [(200, False), (302, False), (400, False), (429, True), (502, True)])
def test_an_answer_in_a_foreign_form_is_retryable_by_its_status(status: int, expected: bool) -> None:
    """A proxy that says "busy" in its own words is asked again; nonsense from the rack is not."""
    assert errors.ResponseError("not JSON", operation="ping", status=status).retryable is expected


def test_an_error_reads_for_logs_and_stays_the_same_for_comparison() -> None:
    """`str` tells operation, status, code and request id; `message` is the rack's own and does not change with them."""
    first = errors.Conflict("busy", operation="instance_start", status=409, error_code="Conflict", request_id="a1")
    again = errors.Conflict("busy", operation="instance_start", status=409, error_code="Conflict", request_id="b2")

    assert str(first) == "instance_start: busy (HTTP 409, Conflict, request a1)"
    assert first.message == again.message == "busy"


def test_an_unknown_outcome_is_said() -> None:
    """Who reads the log of a failed write sees that it may have happened."""
    lost = errors.TransportError("no answer within 120 s", operation="disk_create", outcome_unknown=True)
    unsent = errors.TransportError("connection refused", operation="disk_create", outcome_unknown=False)

    assert str(lost) == "disk_create: no answer within 120 s (the request may have been carried out)"
    assert str(unsent) == "disk_create: connection refused"


@given(st.text(max_size=3000))
def test_a_message_is_one_bounded_printable_line(text: str) -> None:
    """Whatever a server writes cannot forge log lines or fill a disk."""
    message = errors.OxideError(text, operation="ping").message

    assert message.isprintable()
    assert len(message) <= errors.MESSAGE_LIMIT_CHARACTERS


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "86400"}, errors.RETRY_AFTER_LIMIT_SECONDS),
        ({"retry-after": "9" * 5000}, errors.RETRY_AFTER_LIMIT_SECONDS),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "Tue, 01 Sep 2026 12:00:20 GMT", "date": "Tue, 01 Sep 2026 12:00:00 GMT"}, 20.0),
        ({"retry-after": "Tue, 01 Sep 2026 11:00:00 GMT", "date": "Tue, 01 Sep 2026 12:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 01 Sep 2099 11:00:00 GMT", "date": "Tue, 01 Sep 2026 12:00:00 GMT"}, 60.0),
        ({"retry-after": "Tue, 01 Sep 2026 12:00:20 GMT"}, None),
        ({"retry-after": "Tue, 01 Sep 2026 12:00:20 -0000", "date": "Tue, 01 Sep 2026 12:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_and_capped(headers: dict[str, str], expected: float | None) -> None:
    """Seconds and dates are understood, nonsense is ignored, and no server can stop its clients."""
    assert errors.retry_after_seconds(headers) == expected


@given(st.text(max_size=50), st.text(max_size=50))
def test_retry_after_survives_any_text(retry_after: str, date: str) -> None:
    """Any header is answered with a number in bounds or with nothing."""
    seconds = errors.retry_after_seconds({"retry-after": retry_after, "date": date})

    assert seconds is None or 0 <= seconds <= errors.RETRY_AFTER_LIMIT_SECONDS
