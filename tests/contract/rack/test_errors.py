"""What a refusal looks like: the two families of errors and their texts (semantics 1.3, 1.4, 2.1)."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from capox.rack import errors
from tests.contract.rack import instance_life, staging
from tests.rack import RackUnderTest

NOWHERE = "00000000-0000-4000-8000-000000000000"


async def create_project(client: RackUnderTest, body: Any) -> dict[str, Any]:
    """Send a body that the parser has to refuse."""
    return await client.refused(400, "POST", "/v1/projects", body)


async def test_every_answer_has_a_request_id(client: RackUnderTest) -> None:
    """1.3: success and refusal carry `x-request-id`, a new UUID each time, and a refusal repeats it in its body."""
    good = await client.ask("GET", "/v1/ping")
    bad = await client.ask("GET", "/v1/projects/missing")

    assert uuid.UUID(good.headers["x-request-id"]).version == 4
    assert bad.json()["request_id"] == bad.headers["x-request-id"] != good.headers["x-request-id"]


async def test_refusals_are_pretty_printed_json(client: RackUnderTest) -> None:
    """1.3: an error's body is JSON over several lines, with its content type."""
    answer = await client.ask("GET", "/v1/projects/missing")

    assert answer.headers["content-type"] == "application/json"
    assert answer.text.splitlines()[0] == "{"
    assert list(answer.json()) == ["request_id", "error_code", "message"]


async def test_missing_objects_are_named_as_they_were_asked_for(client: RackUnderTest) -> None:
    """1.3: 404 ObjectNotFound quotes the kind of resource, and the name or the id."""
    by_name = await client.refused(404, "GET", "/v1/projects/missing")
    by_id = await client.refused(404, "GET", f"/v1/projects/{NOWHERE}")

    assert (by_name["error_code"], by_id["error_code"]) == ("ObjectNotFound", "ObjectNotFound")
    assert by_name["message"] == 'not found: project with name "missing"'
    assert by_id["message"] == f'not found: project with id "{NOWHERE}"'


@pytest.mark.parametrize(
    ("refusal", "status", "code", "message"),
    [
        (errors.not_found("floating-ip", name="a"), 404, "ObjectNotFound", 'not found: floating-ip with name "a"'),
        (errors.not_found("disk", identity="1"), 404, "ObjectNotFound", 'not found: disk with id "1"'),
        (errors.not_found_text("nothing there"), 404, "ObjectNotFound", "not found: nothing there"),
        (errors.already_exists("disk", "a"), 400, "ObjectAlreadyExists", 'already exists: disk "a"'),
        (errors.invalid_request("no such thing"), 400, "InvalidRequest", "no such thing"),
        (errors.invalid_value("size", "too small"), 400, "InvalidValue", 'unsupported value for "size": too small'),
        (errors.unauthorized(), 401, "Unauthorized", "credentials missing or invalid"),
        (errors.forbidden(), 403, "Forbidden", "Forbidden"),
        (errors.conflict("not now"), 409, "Conflict", "not now"),
        (errors.internal_error(), 500, "Internal", "Internal Server Error"),
        (errors.service_unavailable(), 503, "ServiceNotAvailable", "Service Unavailable"),
        (errors.insufficient_capacity("full"), 507, "InsufficientCapacity", "Insufficient capacity: full"),
    ],
)
def test_codes_statuses_and_messages(refusal: errors.Refusal, status: int, code: str, message: str) -> None:
    """1.3: each code has its status and the form of its message; a taken name is 400 and a full rack 507."""
    body = refusal.body("an-id")

    assert refusal.status == status
    assert body == {"request_id": "an-id", "error_code": code, "message": message}


async def test_taken_name_is_no_conflict(client: RackUnderTest) -> None:
    """1.3: ObjectAlreadyExists is 400 and names the resource in kebab case."""
    error = await client.refused(400, "POST", "/v1/projects", {"name": "demo", "description": ""})

    assert (error["error_code"], error["message"]) == ("ObjectAlreadyExists", 'already exists: project "demo"')


async def test_state_conflicts_are_409(client: RackUnderTest) -> None:
    """1.3: what an object's state forbids for now is 409 Conflict where the API says so."""
    await instance_life.create_in(client, "stopping")

    error = await client.refused(409, "POST", instance_life.path(act="start"))

    assert error["error_code"] == "Conflict"
    assert error["message"] == "instance must finish stopping before it can be started"


async def test_invalid_values_name_their_label(client: RackUnderTest) -> None:
    """1.3: InvalidValue quotes the label and says what is wrong."""
    error = await instance_life.refuse_create(client, 400, memory=1)

    assert error["error_code"] == "InvalidValue"
    assert error["message"] == 'unsupported value for "size": memory must be at least 1 GiB'


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/v1/projects/demo/more", "/v2/ping"])
async def test_unknown_route(client: RackUnderTest, path: str) -> None:
    """1.3: no operation at a path is 404 `Not Found` without an error code, with credentials or without."""
    for user in ("admin", None):
        error = await client.refused(404, "GET", path, user=user)

        assert error.keys() == {"request_id", "message"}
        assert error["message"] == "Not Found"


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_wrong_method(client: RackUnderTest, method: str) -> None:
    """1.3: a path that is there, but not with this method, is 405 without an error code, and `Allow` says what is."""
    answer = await client.ask(method, "/v1/projects")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.json().keys() == {"request_id", "message"}
    assert answer.json()["message"] == "Method Not Allowed"


async def test_path_is_decoded_before_the_caller_is_known(client: RackUnderTest) -> None:
    """1.1, 1.3: a segment that is neither name nor id is a parse error, and needs no credentials to be one."""
    error = await client.refused(400, "GET", "/v1/projects/Not_A_Name", user=None)

    assert error.keys() == {"request_id", "message"}
    assert error["message"] == "bad parameter in URL path: data did not match any variant of untagged enum NameOrId"


async def test_missing_query_parameter(client: RackUnderTest) -> None:
    """1.3, 1.6: a list within a project needs `project`; without it the query cannot be parsed."""
    error = await client.refused(400, "GET", "/v1/disks")

    assert "error_code" not in error
    assert error["message"] == "unable to parse query string: missing field `project`"


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5", "", "4294967296"])
async def test_bad_query_value(client: RackUnderTest, limit: str) -> None:
    """1.5: a limit of 0, or one that is no number, is a parse error."""
    error = await client.refused(400, "GET", "/v1/projects", limit=limit)

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse query string: ")


async def test_query_parameters_are_given_once(client: RackUnderTest) -> None:
    """1.3: a parameter twice is a parse error; one that nobody knows is ignored."""
    error = await client.refused(400, "GET", "/v1/projects?limit=1&limit=2")

    assert error["message"] == "unable to parse query string: duplicate field `limit`"
    await client.must(200, "GET", "/v1/projects", colour="blue")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "unable to parse JSON body: missing field `"),
        ([], "unable to parse JSON body: invalid type: sequence"),
        ("text", "unable to parse JSON body: invalid type: string"),
        ({"name": 1, "description": ""}, "unable to parse JSON body: name: invalid type: integer `1`"),
        ({"name": "a", "description": None}, "unable to parse JSON body: description: invalid type: null"),
    ],
)
async def test_body_that_does_not_fit(client: RackUnderTest, body: Any, message: str) -> None:
    """1.3: a parse error of a body names the field, what was found, line and column, and has no error code."""
    error = await create_project(client, body)

    assert error.keys() == {"request_id", "message"}
    assert error["message"].startswith(message)
    assert " at line 1 column " in error["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"nonsense", b"\xff", b'{"name": NaN}', b"[" * 100_000])
async def test_body_that_is_not_json(client: RackUnderTest, raw: bytes) -> None:
    """1.3: bytes that are no JSON are a parse error with line and column."""
    headers = {"authorization": "Bearer oxide-token-admin", "content-type": "application/json"}

    answer = await client.http.post("/v1/projects", content=raw, headers=headers)

    assert answer.status_code == 400
    assert answer.json()["message"].startswith("unable to parse JSON body: ")
    assert " at line " in answer.json()["message"]


async def test_content_type(client: RackUnderTest) -> None:
    """1.3: a body without a content type is taken for JSON, one of another type is refused."""
    for number, (content_type, status) in enumerate(
        [(None, 201), ("application/json; charset=utf-8", 201), ("text/plain", 400)]
    ):
        headers = {"authorization": "Bearer oxide-token-admin"}
        if content_type is not None:
            headers["content-type"] = content_type
        content = b'{"name": "typed-%d", "description": ""}' % number
        answer = await client.http.post("/v1/projects", content=content, headers=headers)
        assert answer.status_code == status, content_type


async def test_unknown_fields_are_ignored(client: RackUnderTest) -> None:
    """1.3: a body may hold fields that the API does not know."""
    view = await client.must(201, "POST", "/v1/projects", {"name": "more", "description": "", "colour": "blue"})

    assert "colour" not in view


async def test_body_limit(client: RackUnderTest) -> None:
    """1.3: a body of 1 MiB is read, and one byte more is refused."""
    fits = b'{"name": "large", "description": "", "padding": ""}'
    padding = b" " * (1024 * 1024 - len(fits))
    headers = {"authorization": "Bearer oxide-token-admin"}

    exact = await client.http.post("/v1/projects", content=fits + padding, headers=headers)
    over = await client.http.post("/v1/projects", content=fits + padding + b" ", headers=headers)

    assert exact.status_code == 201
    assert over.status_code == 400
    assert over.json()["message"] == "request body exceeded maximum size of 1048576 bytes"
    assert "error_code" not in over.json()


async def test_bulk_write_takes_more(client: RackUnderTest) -> None:
    """1.3: only the bulk write of a disk takes up to 8 MiB."""
    source = {"type": "importing_blocks", "block_size": 512}
    await client.must(201, "POST", "/v1/disks", staging.disk_body("import", source=source), project="demo")
    await client.must(204, "POST", "/v1/disks/import/bulk-write-start", project="demo")
    path = "/v1/disks/import/bulk-write?project=demo"
    headers = {"authorization": "Bearer oxide-token-admin"}
    blocks = base64.b64encode(bytes(512 * 1024)).decode()
    body = b'{"offset": 0, "base64_encoded_data": "%s"}' % blocks.encode()

    within = await client.http.post(path, content=body + b" " * (8 * 1024 * 1024 - len(body)), headers=headers)
    over = await client.http.post(path, content=body + b" " * (8 * 1024 * 1024 + 1 - len(body)), headers=headers)

    assert within.status_code == 204, within.text
    assert over.status_code == 400
    assert over.json()["message"] == "request body exceeded maximum size of 8388608 bytes"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "name requires at least one character"),
        ("a" * 64, "name may contain at most 63 characters"),
        ("1a", "name must begin with an ASCII lowercase character"),
        ("Abc", "name must begin with an ASCII lowercase character"),
        ("-a", "name must begin with an ASCII lowercase character"),
        (
            "aBc",
            'name contains invalid character: "B" (allowed characters are lowercase ASCII, digits, and "-")',
        ),
        (
            "a.b",
            'name contains invalid character: "." (allowed characters are lowercase ASCII, digits, and "-")',
        ),
        ("abc-", 'name cannot end with "-"'),
        ("a0000000-0000-4000-8000-000000000000", "name cannot be a UUID to avoid ambiguity with IDs"),
    ],
)
async def test_names(client: RackUnderTest, name: str, complaint: str) -> None:
    """2.1: what is no name is a parse error that says why; the server refuses upper case that the document admits."""
    error = await create_project(client, {"name": name, "description": ""})

    assert "error_code" not in error
    assert error["message"].startswith(f"unable to parse JSON body: name: {complaint}")


@pytest.mark.parametrize("name", ["a", "a" * 63, "a-0", "a--b"])
async def test_good_names(client: RackUnderTest, name: str) -> None:
    """2.1: 1 to 63 characters from a lower case letter on, not ending in a hyphen."""
    assert (await client.must(201, "POST", "/v1/projects", {"name": name, "description": ""}))["name"] == name


async def test_description_is_checked_by_the_database_only(client: RackUnderTest) -> None:
    """2.1: 512 characters are kept, 513 end in 500, and the key cannot be left out."""
    await client.must(201, "POST", "/v1/projects", {"name": "fits", "description": "d" * 512})

    error = await client.refused(500, "POST", "/v1/projects", {"name": "over", "description": "d" * 513})
    missing = await create_project(client, {"name": "over"})

    assert (error["error_code"], error["message"]) == ("Internal", "Internal Server Error")
    assert "missing field `description`" in missing["message"]
    await client.refused(404, "GET", "/v1/projects/over")


@pytest.mark.parametrize(
    ("hostname", "complaint"),
    [
        ("a" * 254, "Max hostname length is 253"),
        ("-a", "Hostnames must comply with RFC 1035"),
        ("a-", "Hostnames must comply with RFC 1035"),
        ("a..b", "Hostnames must comply with RFC 1035"),
        ("", "Hostnames must comply with RFC 1035"),
        ("a_b", "Hostnames must comply with RFC 1035"),
    ],
)
async def test_hostnames(client: RackUnderTest, hostname: str, complaint: str) -> None:
    """2.1: what is no host name is a parse error that says why."""
    error = await instance_life.refuse_create(client, 400, hostname=hostname)

    assert "error_code" not in error
    assert error["message"].startswith(f"unable to parse JSON body: hostname: {complaint}")


@pytest.mark.parametrize(
    ("user_data", "complaint"),
    [
        ("not base64", "a valid base64 string"),
        ("YQ", "a valid base64 string"),
        ("YQ-_", "a valid base64 string"),
        (base64.b64encode(bytes(32 * 1024 + 1)).decode(), "less than 32 KiB"),
    ],
)
async def test_user_data(client: RackUnderTest, user_data: str, complaint: str) -> None:
    """2.1: user data is padded standard base64 of at most 32 KiB; the complaint does not repeat it."""
    error = await instance_life.refuse_create(client, 400, user_data=user_data)

    assert "error_code" not in error
    assert complaint in error["message"]
    assert user_data not in error["message"]


async def test_user_data_of_32_kib_fits(client: RackUnderTest) -> None:
    """2.1: 32768 bytes are taken, and no view shows them."""
    content = base64.b64encode(bytes(32 * 1024)).decode()

    view = await instance_life.create(client, user_data=content)

    assert "user_data" not in view
    assert instance_life.record(client).user_data == bytes(32 * 1024)


@pytest.mark.parametrize("memory", [-1, 2**63])
async def test_byte_counts(client: RackUnderTest, memory: int) -> None:
    """2.1: a byte count is between 0 and 2^63 - 1, else the body cannot be parsed."""
    error = await instance_life.refuse_create(client, 400, memory=memory)

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse JSON body: memory: ")


async def test_answers_ask_for_no_pause(client: RackUnderTest) -> None:
    """1.4: neither a refusal nor a 503 tells when to come back; the API knows no rate limit."""
    for path in ("/v1/projects", "/v1/projects/missing", "/v1/nothing"):
        answer = await client.ask("GET", path)
        assert "retry-after" not in answer.headers
        assert answer.status_code != 429
