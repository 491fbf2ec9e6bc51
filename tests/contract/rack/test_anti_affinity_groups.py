"""Anti-affinity groups and their members (semantics 2.2, 8)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.rack import affinity, records
from tests.contract.rack.staging import put_instance
from tests.rack import RackUnderTest

GROUPS = "/v1/anti-affinity-groups"


def _body(name: str, policy: str = "fail") -> dict[str, str]:
    return {"name": name, "description": "", "policy": policy, "failure_domain": "sled"}


async def _add_group(rack: RackUnderTest, name: str) -> records.AntiAffinityGroup:
    made = await rack.must(201, "POST", GROUPS, _body(name), project="demo")
    group = rack.state.anti_affinity_groups.by_id(made["id"])
    assert group is not None
    return group


async def _member(rack: RackUnderTest, status: int, method: str, group: str, instance: str) -> Any:
    return await rack.must(status, method, f"{GROUPS}/{group}/members/instance/{instance}", project="demo")


async def test_group_is_made_renamed_and_deleted(client: RackUnderTest) -> None:
    """8: policy and failure domain are given at creation; an update changes name and description only."""
    made = await client.must(201, "POST", GROUPS, _body("cp", "allow"), project="demo")
    assert (made["policy"], made["failure_domain"]) == ("allow", "sled")
    assert made["project_id"] == client.project.id

    body = {"name": "control-plane", "description": "apart", "policy": "fail"}
    changed = await client.must(200, "PUT", f"{GROUPS}/cp", body, project="demo")
    assert (changed["name"], changed["description"], changed["policy"]) == ("control-plane", "apart", "allow")
    assert (await client.must(200, "GET", GROUPS, project="demo"))["items"] == [changed]

    await client.must(204, "DELETE", f"{GROUPS}/{made['id']}")
    error = await client.refused(404, "GET", f"{GROUPS}/{made['id']}")
    assert error["message"] == f'not found: anti-affinity-group with id "{made["id"]}"'


async def test_taken_name_and_selectors(client: RackUnderTest) -> None:
    """1.6: the wording of refused selectors, and 400 ObjectAlreadyExists for a taken name."""
    group = await _add_group(client, "cp")

    error = await client.refused(400, "POST", GROUPS, _body("cp"), project="demo")
    assert error["message"] == 'already exists: anti-affinity-group "cp"'
    error = await client.refused(400, "GET", f"{GROUPS}/{group.id}", project="demo")
    assert error["message"] == "when providing anti_affinity_group as an ID, project should not be specified"
    error = await client.refused(400, "GET", f"{GROUPS}/cp")
    assert error["message"] == "anti_affinity_group should either be UUID or project should be specified"


async def test_membership(client: RackUnderTest) -> None:
    """8: an instance joins, is listed on both sides with its run state, and leaves."""
    group, instance = await _add_group(client, "cp"), put_instance(client, "i")
    member = {"type": "instance", "value": {"id": instance.id, "name": "i", "run_state": "stopped"}}

    assert await _member(client, 201, "POST", "cp", "i") == member
    assert await _member(client, 200, "GET", "cp", "i") == member
    listed = await client.must(200, "GET", f"{GROUPS}/{group.id}/members")
    assert listed["items"] == [member]
    listed = await client.must(200, "GET", f"/v1/instances/{instance.id}/anti-affinity-groups")
    assert [found["name"] for found in listed["items"]] == ["cp"]

    await _member(client, 204, "DELETE", "cp", "i")
    assert (await client.must(200, "GET", f"{GROUPS}/{group.id}/members"))["items"] == []
    assert client.state.groups_of == {}


async def test_group_and_instance_by_id(client: RackUnderTest) -> None:
    """8: with ids for both, no project may be given."""
    group, instance = await _add_group(client, "cp"), put_instance(client, "i")
    path = f"{GROUPS}/{group.id}/members/instance/{instance.id}"

    await client.refused(400, "POST", path, project="demo")
    await client.must(201, "POST", path)


async def test_joining_twice(client: RackUnderTest) -> None:
    """8: a second join is 400 ObjectAlreadyExists with the instance's id."""
    await _add_group(client, "cp")
    instance = put_instance(client, "i")
    await _member(client, 201, "POST", "cp", "i")

    error = await _member(client, 400, "POST", "cp", "i")

    assert error["error_code"] == "ObjectAlreadyExists"
    assert error["message"] == f'already exists: anti-affinity-group-member "{instance.id}"'


async def test_not_a_member(client: RackUnderTest) -> None:
    """8: an instance that is not a member is 404 of type `anti-affinity-group-member`."""
    await _add_group(client, "cp")
    instance = put_instance(client, "i")

    for method in ("GET", "DELETE"):
        error = await _member(client, 404, method, "cp", "i")
        assert error["message"] == f'not found: anti-affinity-group-member with id "{instance.id}"'


async def test_instance_with_a_reservation(client: RackUnderTest) -> None:
    """8: an instance that has a place on a sled cannot join, and may leave at any time."""
    group, instance = await _add_group(client, "cp"), put_instance(client, "i", "running")
    instance.sled = next(iter(client.state.sleds))

    error = await _member(client, 400, "POST", "cp", "i")
    assert error["message"] == "Instance cannot be added to anti-affinity group with reservation"

    instance.sled = None
    affinity.join(client.state, group, instance)
    instance.sled = next(iter(client.state.sleds))
    await _member(client, 204, "DELETE", "cp", "i")


async def test_group_with_members_is_deleted(client: RackUnderTest) -> None:
    """8: deleting a group ends its memberships and leaves the instances."""
    await _add_group(client, "cp")
    instance = put_instance(client, "i")
    await _member(client, 201, "POST", "cp", "i")

    await client.must(204, "DELETE", f"{GROUPS}/cp", project="demo")

    listed = await client.must(200, "GET", f"/v1/instances/{instance.id}/anti-affinity-groups")
    assert listed["items"] == []
    assert client.state.groups_of == {}


async def test_most_members(client: RackUnderTest) -> None:
    """2.2: a group has at most 32 members."""
    group = await _add_group(client, "cp")
    for number in range(32):
        affinity.join(client.state, group, put_instance(client, f"i{number}"))
    put_instance(client, "late")

    error = await _member(client, 400, "POST", "cp", "late")

    assert error["message"] == "Anti-affinity group already has maximum allowed members (32)"
    first = await client.must(200, "GET", f"{GROUPS}/{group.id}/members", limit=30)
    rest = await client.must(200, "GET", f"{GROUPS}/{group.id}/members", page_token=first["next_page"])
    assert (len(first["items"]), len(rest["items"])) == (30, 2)


async def test_most_groups(client: RackUnderTest) -> None:
    """2.2: an instance belongs to at most 16 groups."""
    instance = put_instance(client, "i")
    for number in range(16):
        affinity.join(client.state, await _add_group(client, f"g{number}"), instance)
    await _add_group(client, "late")

    error = await _member(client, 400, "POST", "late", "i")

    assert error["message"] == "Instance already belongs to maximum allowed anti-affinity groups (16)"


async def test_who_may_change_groups(client: RackUnderTest) -> None:
    """1.1: groups belong to compute: a limited collaborator changes them, a viewer does not."""
    await _add_group(client, "cp")
    await client.must(201, "POST", GROUPS, _body("x"), user="limited_collaborator", project="demo")

    await client.refused(403, "POST", GROUPS, _body("y"), user="viewer", project="demo")
    await client.refused(403, "DELETE", f"{GROUPS}/cp", user="viewer", project="demo")
    await client.must(200, "GET", f"{GROUPS}/cp", user="viewer", project="demo")


@pytest.mark.parametrize("missing", ["group", "instance"])
async def test_unknown_names(client: RackUnderTest, missing: str) -> None:
    """1.6: an unknown group or instance is 404 and named."""
    await _add_group(client, "cp")
    put_instance(client, "i")
    group, instance = ("no", "i") if missing == "group" else ("cp", "no")

    error = await _member(client, 404, "POST", group, instance)

    resource = "anti-affinity-group" if missing == "group" else "instance"
    assert error["message"] == f'not found: {resource} with name "no"'
