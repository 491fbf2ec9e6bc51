"""How an HTTP answer becomes a model or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.oxide import errors
from capox.oxide.answer import Answer, read_answer
from capox.oxide.operations.instances import INSTANCE_DELETE, INSTANCE_LIST, INSTANCE_START, INSTANCE_VIEW
from tests.unit.oxide import examples
from tests.unit.oxide.scripted import REQUEST_ID

JSON = {"content-type": "application/json", "x-request-id": REQUEST_ID}


def _answer(status: int, body: Any, **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers={**JSON, **headers}, body=content)


def _error(status: int, **fields: Any) -> Answer:
    return _answer(status, {"request_id": REQUEST_ID, "message": "no", **fields})


def test_a_good_answer_is_its_model() -> None:
    """The documented status and form give the model."""
    assert str(read_answer(INSTANCE_VIEW, _answer(200, examples.instance())).id) == examples.instance_id(1)


def test_a_deletion_answers_nothing() -> None:
    """204 without a body is the whole answer."""
    assert read_answer(INSTANCE_DELETE, _answer(204, b"")) is None


def test_a_refusal_has_all_that_the_rack_said() -> None:
    """Class, message, code, status and request id arrive."""
    message = 'already exists: instance "machine-1"'
    with pytest.raises(errors.ObjectAlreadyExists) as caught:
        read_answer(INSTANCE_VIEW, _error(400, error_code="ObjectAlreadyExists", message=message))

    error = caught.value
    assert (error.operation, error.status, error.error_code) == ("instance_view", 400, "ObjectAlreadyExists")
    assert (error.message, error.request_id) == (message, REQUEST_ID)


def test_a_refusal_without_a_code_is_judged_by_its_status() -> None:
    """The rack's HTTP framework leaves the code out: a parse error is an invalid request, a 404 is never absence."""
    with pytest.raises(errors.InvalidRequest):
        read_answer(INSTANCE_VIEW, _error(400, message="unable to parse JSON body"))
    with pytest.raises(errors.APIError) as caught:
        read_answer(INSTANCE_VIEW, _error(404, message="Not Found"))

    assert type(caught.value) is errors.APIError


def test_the_request_id_of_the_header_wins() -> None:
    """It is there on every answer; the body's is taken when a proxy has lost the header."""
    with pytest.raises(errors.Gone) as from_header:
        read_answer(INSTANCE_VIEW, _error(410, request_id="from-the-body"))
    with pytest.raises(errors.Gone) as from_body:
        read_answer(INSTANCE_VIEW, Answer(status=410, headers={}, body=b'{"message":"Gone","request_id":"from-body"}'))

    assert from_header.value.request_id == REQUEST_ID
    assert from_body.value.request_id == "from-body"


@pytest.mark.parametrize("status", [200, 201, 203, 204, 206, 299, 100, 101, 600, 999])
def test_another_success_than_the_documented_one_is_not_understood(status: int) -> None:
    """What another status would mean is not known, so nothing is concluded from it."""
    with pytest.raises(errors.ResponseError, match="the status of success is 202") as caught:
        read_answer(INSTANCE_START, _answer(status, examples.instance()))

    assert caught.value.status == status
    assert caught.value.request_id == REQUEST_ID


def test_a_body_where_there_is_none_is_not_understood() -> None:
    """A deletion that shows something was perhaps something else."""
    with pytest.raises(errors.ResponseError, match="has a body where there is none"):
        read_answer(INSTANCE_DELETE, _answer(204, examples.instance()))


@pytest.mark.parametrize("location", ["https://evil.example/?t=secret", "", "//[", "/v2/instances"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
def test_a_redirect_is_an_error(status: int, location: str) -> None:
    """It names the host at most, and never the rest of the address."""
    with pytest.raises(errors.ResponseError, match="a redirect") as caught:
        read_answer(INSTANCE_VIEW, _answer(status, b"", location=location))

    assert "secret" not in str(caught.value)
    assert ("evil.example" in str(caught.value)) == location.startswith("https")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>hello</html>",
        b"\xff\xfe\x00",
        b'{"id": "\xff"}',
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"{",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        json.dumps([examples.instance()]).encode(),
        json.dumps(examples.instance(id="not-a-uuid")).encode(),
        json.dumps(examples.instance(memory="much")).encode(),
        json.dumps(examples.instance(memory=1.5)).encode(),
        json.dumps(examples.instance(time_created="yesterday")).encode(),
        json.dumps(examples.instance(time_created="2026-09-01T12:00:00")).encode(),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_what_does_not_fit_is_one_kind_of_error(body: bytes) -> None:
    """No JSON, invalid UTF-8, another shape, endless nesting: all are a ResponseError that repeats nothing of it."""
    for ask in (
        lambda: read_answer(INSTANCE_VIEW, _answer(200, body)),
        lambda: read_answer(INSTANCE_LIST, _answer(200, body)),
        lambda: read_answer(INSTANCE_START, _answer(202, body)),
    ):
        with pytest.raises(errors.ResponseError) as caught:
            ask()

        assert not caught.value.retryable
        assert "hello" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Bad Gateway",
        b"<html>",
        b"[]",
        b"{}",
        b'{"message": 5}',
        b'{"error": "x"}',
        b'{"message":"x","error_code":5}',
    ],
)
@pytest.mark.parametrize(("status", "retryable"), [(404, False), (400, False), (502, True), (503, True), (429, True)])
def test_an_error_in_a_foreign_form(status: int, body: bytes, retryable: bool) -> None:
    """A proxy's own error is not the rack's: never absence, but worth repeating where its status says so."""
    with pytest.raises(errors.ResponseError) as caught:
        read_answer(INSTANCE_VIEW, _answer(status, body))

    assert caught.value.status == status
    assert caught.value.retryable is retryable


def test_html_hints_at_the_address() -> None:
    """The usual reason for a page of HTML is an address that is not the API's."""
    with pytest.raises(errors.ResponseError, match="text/html, not JSON; is this the address of the rack's API"):
        read_answer(INSTANCE_VIEW, _answer(200, b"<html>", **{"content-type": "text/html; charset=utf-8"}))


def test_a_misfit_names_its_place() -> None:
    """Whoever reports it to the rack's vendor can say which field."""
    page = {"items": [examples.instance(1), examples.instance(2, run_state=7)], "next_page": None}
    with pytest.raises(errors.ResponseError, match=r"at items\.1\.run_state"):
        read_answer(INSTANCE_LIST, _answer(200, page))


@given(st.integers(100, 999), st.binary(max_size=200), st.text(max_size=20))
def test_any_answer_is_understood_or_an_oxide_error(status: int, body: bytes, header: str) -> None:
    """Nothing that a server can send raises anything else."""
    headers = {"retry-after": header, "location": header, "content-type": header, "x-request-id": header}
    answer = Answer(status=status, headers=headers, body=body)
    for ask in (lambda: read_answer(INSTANCE_VIEW, answer), lambda: read_answer(INSTANCE_DELETE, answer)):
        said = ""
        try:
            ask()
        except errors.OxideError as error:
            said = str(error)
        assert said.isprintable()
