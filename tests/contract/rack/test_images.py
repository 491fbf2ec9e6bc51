"""Images (semantics 1.6, 8)."""

from __future__ import annotations

from typing import Any

from capox.rack import records
from tests.contract.rack.staging import add_disk, add_snapshot
from tests.rack import GIB, RackUnderTest

MISSING = "00000000-0000-4000-8000-000000000000"


def _body(name: str, snapshot: str) -> dict[str, Any]:
    source = {"type": "snapshot", "id": snapshot}
    return {"name": name, "description": "", "os": "ubuntu", "version": "24.04", "source": source}


async def _add_project_image(rack: RackUnderTest, name: str = "own") -> records.Image:
    snapshot = await add_snapshot(rack, f"for-{name}", gib=3)
    made = await rack.must(201, "POST", "/v1/images", _body(name, snapshot.id), project="demo")
    image = rack.state.images.by_id(made["id"])
    assert image is not None
    return image


async def _names(rack: RackUnderTest, **query: str) -> list[str]:
    listed = await rack.must(200, "GET", "/v1/images", **query)
    return [item["name"] for item in listed["items"]]


async def test_image_is_made_from_a_snapshot(client: RackUnderTest) -> None:
    """8: an image has size and block size of its snapshot, belongs to a project, and outlives the snapshot."""
    snapshot = await add_snapshot(client, "base", gib=3)
    made = await client.must(201, "POST", "/v1/images", _body("own", snapshot.id), project="demo")

    assert (made["os"], made["version"]) == ("ubuntu", "24.04")
    assert (made["size"], made["block_size"], made["digest"]) == (3 * GIB, 512, None)
    assert made["project_id"] == client.project.id
    await client.must(204, "DELETE", "/v1/snapshots/base", project="demo")
    assert await client.must(200, "GET", f"/v1/images/{made['id']}") == made
    await add_disk(client, "root", source={"type": "image", "image_id": made["id"]})


async def test_lists_of_project_and_silo_are_apart(client: RackUnderTest) -> None:
    """8: with a project the list has that project's images only, without one the silo's only."""
    await _add_project_image(client)

    assert await _names(client, project="demo") == ["own"]
    assert await _names(client) == ["debian"]


async def test_names_are_looked_up_where_the_list_is(client: RackUnderTest) -> None:
    """1.6: an image's name with a project means the project's, without one the silo's; an id stands alone."""
    own = await _add_project_image(client)

    assert (await client.must(200, "GET", "/v1/images/own", project="demo"))["id"] == own.id
    assert (await client.must(200, "GET", "/v1/images/debian"))["id"] == client.image.id
    error = await client.refused(404, "GET", "/v1/images/own")
    assert error["message"] == 'not found: silo-image with name "own"'
    error = await client.refused(404, "GET", "/v1/images/debian", project="demo")
    assert error["message"] == 'not found: project-image with name "debian"'
    error = await client.refused(404, "GET", f"/v1/images/{MISSING}")
    assert error["message"] == f'not found: image with id "{MISSING}"'
    error = await client.refused(400, "GET", f"/v1/images/{own.id}", project="demo")
    assert error["message"] == "when providing image as an ID, project should not be specified"


async def test_promotion_and_demotion(client: RackUnderTest) -> None:
    """8: promoting gives a project's image to the silo, demoting gives it to a project; the id stays."""
    image = await _add_project_image(client)
    await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})

    promoted = await client.must(202, "POST", "/v1/images/own/promote", project="demo")
    assert (promoted["id"], promoted["project_id"]) == (image.id, None)
    assert await _names(client) == ["debian", "own"]
    assert await _names(client, project="demo") == []

    demoted = await client.must(202, "POST", "/v1/images/own/demote", project="second")
    assert demoted["id"] == image.id
    assert await _names(client) == ["debian"]
    assert await _names(client, project="second") == ["own"]


async def test_promotion_out_of_place(client: RackUnderTest) -> None:
    """8: a silo image cannot be promoted, nor a project image demoted."""
    image = await _add_project_image(client)

    error = await client.refused(400, "POST", "/v1/images/debian/promote")
    assert error["message"] == "Cannot promote a silo image"
    error = await client.refused(400, "POST", f"/v1/images/{image.id}/demote", project="demo")
    assert error["message"] == "Cannot demote a project image"


async def test_taken_names(client: RackUnderTest) -> None:
    """1.3: a taken name is 400 ObjectAlreadyExists, at creation, promotion and demotion alike."""
    image = await _add_project_image(client, "debian")
    snapshot = await add_snapshot(client, "again")

    for query in ({"project": "demo"}, {}):
        error = await client.refused(400, "POST", "/v1/images", _body("debian", snapshot.id), **query)
        assert (error["error_code"], error["message"]) == (
            "ObjectAlreadyExists",
            'already exists: project-image "debian"',
        )
    error = await client.refused(400, "POST", f"/v1/images/{image.id}/promote")
    assert error["message"] == 'already exists: silo-image "debian"'
    error = await client.refused(400, "POST", f"/v1/images/{client.image.id}/demote", project="demo")
    assert error["message"] == 'already exists: project-image "debian"'
    assert (image.project, client.image.project) == (client.project.id, None)


async def test_snapshot_that_cannot_be_used(client: RackUnderTest) -> None:
    """8: a project's image comes from a snapshot of the project; an unknown one is 404."""
    snapshot = await add_snapshot(client, "base")
    await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})

    error = await client.refused(400, "POST", "/v1/images", _body("own", snapshot.id), project="second")
    assert error["message"] == "snapshot does not belong to this project"
    error = await client.refused(404, "POST", "/v1/images", _body("own", MISSING), project="demo")
    assert error["message"] == f'not found: snapshot with id "{MISSING}"'


async def test_deleted_image_leaves_its_disks(client: RackUnderTest) -> None:
    """8: disks that were made from an image stay when it is deleted."""
    disk = await add_disk(client, "root", source={"type": "image", "image_id": client.image.id})

    await client.must(204, "DELETE", "/v1/images/debian")

    await client.refused(404, "DELETE", "/v1/images/debian")
    assert (await client.must(200, "GET", f"/v1/disks/{disk.id}"))["image_id"] == client.image.id


async def test_who_may_see_and_change_images(client: RackUnderTest) -> None:
    """1.1: silo images are seen with a role on the silo, and changed by limited collaborators and above."""
    image = await _add_project_image(client)
    client.project.roles[next(user.id for user in client.state.users if user.name == "nobody")] = "collaborator"

    await client.refused(403, "GET", "/v1/images", user="nobody")
    await client.refused(404, "GET", "/v1/images/debian", user="nobody")
    await client.refused(404, "GET", f"/v1/images/{image.id}", user="nobody")
    await client.must(200, "GET", "/v1/images/own", user="nobody", project="demo")
    await client.refused(403, "POST", "/v1/images/own/promote", user="nobody", project="demo")
    await client.refused(403, "DELETE", "/v1/images/debian", user="viewer")
    await client.refused(403, "DELETE", f"/v1/images/{image.id}", user="viewer")
    await client.refused(404, "GET", f"/v1/images/{image.id}", user="stranger")
    assert await client.must(200, "GET", "/v1/images", user="stranger") == {"items": [], "next_page": None}
    await client.must(202, "POST", f"/v1/images/{image.id}/promote", user="limited_collaborator")
