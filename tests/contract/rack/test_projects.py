"""Projects (semantics 7.1, 8)."""

from __future__ import annotations

from tests.rack import RackUnderTest


async def test_new_project_contains_a_default_vpc(client: RackUnderTest) -> None:
    """7.1: a new project cannot be deleted until its default VPC is gone, and the refusal names the VPC."""
    await client.must(201, "POST", "/v1/projects", {"name": "fresh", "description": ""})

    error = await client.refused(400, "DELETE", "/v1/projects/fresh")

    assert error["error_code"] == "InvalidRequest"
    assert error["message"] == "project to be deleted contains a vpc: default"


async def test_project_names_are_unique_in_a_silo(client: RackUnderTest) -> None:
    """1.3: a taken name is answered by 400 ObjectAlreadyExists, not 409."""
    error = await client.refused(400, "POST", "/v1/projects", {"name": "demo", "description": ""})

    assert error["error_code"] == "ObjectAlreadyExists"
    assert error["message"] == 'already exists: project "demo"'


async def test_projects_of_another_silo_do_not_exist(client: RackUnderTest) -> None:
    """1.1: what the caller may not see is answered by 404, by name and by id alike."""
    for reference in ("demo", client.project.id):
        error = await client.refused(404, "GET", f"/v1/projects/{reference}", user="stranger")
        assert error["error_code"] == "ObjectNotFound"
    assert (await client.must(200, "GET", "/v1/projects", user="stranger"))["items"] == []


async def test_viewer_may_see_but_not_change_a_project(client: RackUnderTest) -> None:
    """1.1: readable but not modifiable is 403."""
    await client.must(200, "GET", "/v1/projects/demo", user="viewer")

    error = await client.refused(403, "PUT", "/v1/projects/demo", {"description": "mine"}, user="viewer")

    assert error["error_code"] == "Forbidden"
    assert client.project.description == ""
