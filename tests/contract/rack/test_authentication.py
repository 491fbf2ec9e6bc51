"""Who the caller is and what that allows (semantics 1.1)."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from capox.rack import access, records
from tests.contract.rack import staging
from tests.rack import START, RackUnderTest

PROJECT: dict[str, Any] = {"name": "mine", "description": ""}


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer oxide-token-unknown",
        "Bearer admin",
        "Bearer OXIDE-TOKEN-admin",
        "bearer oxide-token-admin",
        "Basic oxide-token-admin",
        "oxide-token-admin",
        "Bearer  oxide-token-admin",
    ],
)
async def test_bad_credentials(client: RackUnderTest, authorization: str | None) -> None:
    """1.1: missing, unknown and foreign credentials all get the same 401."""
    headers = {} if authorization is None else {"authorization": authorization}

    answer = await client.http.get("/v1/me", headers=headers)

    assert answer.status_code == 401
    assert answer.json()["error_code"] == "Unauthorized"
    assert answer.json()["message"] == "credentials missing or invalid"


async def test_expired_token(client: RackUnderTest) -> None:
    """1.1: a token is good until it expires, and unknown from then on."""
    user = client.add_user("brief", client.silo, "admin")
    token = client.state.tokens[access.hash_token("oxide-token-brief")]
    token.time_expires = START + datetime.timedelta(seconds=60)
    await client.must(200, "GET", "/v1/me", user="brief")

    client.pass_time(60)

    error = await client.refused(401, "GET", "/v1/me", user="brief")
    assert error["message"] == "credentials missing or invalid"
    assert client.state.users.by_id(user.id) is not None


async def test_own_tokens_are_listed_and_deleted(client: RackUnderTest) -> None:
    """8: by id, never by value; a deleted one is refused from then on, those of others are not there."""
    client.add_user("brief", client.silo, "viewer")
    brief = client.state.tokens[access.hash_token("oxide-token-brief")]
    second = dataclasses.replace(brief, id=client.state.new_id(), sha256=access.hash_token("oxide-token-second"))
    second.time_expires = START + datetime.timedelta(seconds=60)
    client.state.tokens[second.sha256] = second
    others = client.state.tokens[access.hash_token("oxide-token-admin")]

    listed = (await client.must(200, "GET", "/v1/me/access-tokens", user="brief"))["items"]
    assert [each["id"] for each in listed] == sorted([brief.id, second.id])
    expiries = {each["id"]: each["time_expires"] for each in listed}
    assert expiries[brief.id] is None
    assert expiries[second.id].startswith("20")
    (first,) = (await client.must(200, "GET", "/v1/me/access-tokens", user="brief", limit=1))["items"]
    assert first == listed[0]

    await client.refused(404, "DELETE", f"/v1/me/access-tokens/{others.id}", user="brief")
    await client.must(204, "DELETE", f"/v1/me/access-tokens/{brief.id}", user="second")
    await client.refused(401, "GET", "/v1/me", user="brief")
    await client.must(200, "GET", "/v1/me")
    assert [each["id"] for each in (await client.must(200, "GET", "/v1/me/access-tokens", user="second"))["items"]] == [
        second.id
    ]


async def test_401_comes_before_404(client: RackUnderTest) -> None:
    """1.1: with bad credentials even what does not exist is 401."""
    await client.refused(401, "GET", "/v1/projects/missing", user=None)
    await client.refused(401, "GET", "/v1/instances/missing", user="unknown", project="missing")


async def test_parsing_comes_before_401(client: RackUnderTest) -> None:
    """1.1: path, query and body are decoded before the caller is known, and routes are found before that."""
    await client.refused(400, "GET", "/v1/projects/Bad_Name", user=None)
    await client.refused(400, "GET", "/v1/projects", user=None, limit="none")
    await client.refused(400, "POST", "/v1/projects", {"name": "UPPER"}, user=None)
    await client.refused(404, "GET", "/v1/nothing", user=None)
    await client.refused(401, "POST", "/v1/projects", PROJECT, user=None)
    assert client.state.projects.by_name(client.silo.id, "mine") is None


async def test_ping_is_open(client: RackUnderTest) -> None:
    """1.1: ping answers anybody."""
    for user in ("admin", "unknown", None):
        assert await client.must(200, "GET", "/v1/ping", user=user) == {"status": "ok"}


async def test_me(client: RackUnderTest) -> None:
    """8: the current user's view tells the token's owner, the silo and whether the user administers it."""
    view = await client.must(200, "GET", "/v1/me", user="viewer")

    assert view["display_name"] == "viewer"
    assert (view["silo_name"], view["silo_id"]) == ("lab", client.silo.id)
    assert (view["silo_admin"], view["fleet_viewer"]) == (False, False)
    assert (await client.must(200, "GET", "/v1/me"))["silo_admin"] is True


@pytest.mark.parametrize("user", ["nobody", "stranger"])
async def test_what_may_not_be_read_is_hidden(client: RackUnderTest, user: str) -> None:
    """1.1: an object that the caller may not read is 404 for reading and changing alike, and lists leave it out."""
    disk = await staging.add_disk(client, "data")
    for method, path in (
        ("GET", "/v1/projects/demo"),
        ("GET", f"/v1/projects/{client.project.id}"),
        ("DELETE", f"/v1/projects/{client.project.id}"),
        ("GET", f"/v1/disks/{disk.id}"),
        ("DELETE", f"/v1/disks/{disk.id}"),
        ("GET", "/v1/disks?project=demo"),
    ):
        error = await client.refused(404, method, path, user=user)
        assert error["error_code"] == "ObjectNotFound"
    assert (await client.must(200, "GET", "/v1/projects", user=user))["items"] == []
    assert client.state.disks.by_id(disk.id) is disk


@pytest.mark.parametrize(
    ("user", "compute", "network", "project"),
    [
        ("viewer", 403, 403, 403),
        ("limited_collaborator", 201, 403, 403),
        ("collaborator", 201, 201, 201),
        ("admin", 201, 201, 201),
    ],
)
async def test_roles(client: RackUnderTest, user: str, compute: int, network: int, project: int) -> None:
    """1.1: readable but not modifiable is 403; a limited collaborator manages compute only."""
    disk = staging.disk_body("data")
    vpc = {"name": "net", "description": "", "dns_name": "net"}

    assert (await client.ask("POST", "/v1/disks", disk, user=user, project="demo")).status_code == compute
    assert (await client.ask("POST", "/v1/vpcs", vpc, user=user, project="demo")).status_code == network
    answer = await client.ask("POST", "/v1/projects", PROJECT, user=user)
    assert answer.status_code == project
    if project == 403:
        assert (answer.json()["error_code"], answer.json()["message"]) == ("Forbidden", "Forbidden")


async def test_role_on_one_project(client: RackUnderTest) -> None:
    """1.1: a role on a project holds there and nowhere else."""
    other = await client.must(201, "POST", "/v1/projects", PROJECT)
    nobody = client.state.users.by_name(client.silo.id, "nobody")
    assert nobody is not None
    client.project.roles[nobody.id] = "limited_collaborator"

    await client.must(201, "POST", "/v1/disks", staging.disk_body("data"), user="nobody", project="demo")

    await client.refused(404, "GET", f"/v1/projects/{other['id']}", user="nobody")
    listed = await client.must(200, "GET", "/v1/projects", user="nobody")
    assert [project["name"] for project in listed["items"]] == ["demo"]


async def test_tokens_are_kept_as_hashes(client: RackUnderTest) -> None:
    """1.1: the rack's state holds no token, only what one is recognised by."""
    records_of_tokens = list(client.state.tokens.values())

    assert all(isinstance(token, records.Token) for token in records_of_tokens)
    assert "oxide-token-" not in repr(records_of_tokens)
