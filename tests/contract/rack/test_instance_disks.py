"""Disks of instances: the list, attaching and detaching (semantics 3.2, 5)."""

from __future__ import annotations

import pytest

from capox.rack import records, storage
from tests.contract.rack.staging import add_attached_disk, add_disk, put_instance
from tests.rack import RackUnderTest

WITH_VMM: list[records.InstanceState] = ["starting", "running", "stopping", "rebooting"]


def _path(instance: records.Instance, act: str) -> str:
    return f"/v1/instances/{instance.id}/disks/{act}"


@pytest.mark.parametrize("state", ["stopped", "creating"])
async def test_disk_is_attached_at_once(client: RackUnderTest, state: records.InstanceState) -> None:
    """3.2: an attach is answered by 202 and the disk, which shows its instance already."""
    instance = put_instance(client, "i", state)
    disk = await add_disk(client, "data")

    shown = await client.must(202, "POST", _path(instance, "attach"), {"disk": "data"})

    assert shown["state"] == {"state": "attached", "instance": instance.id}
    assert await client.must(200, "GET", f"/v1/disks/{disk.id}") == shown
    assert (await client.must(200, "GET", f"/v1/instances/{instance.id}/disks"))["items"] == [shown]
    error = await client.refused(400, "DELETE", f"/v1/disks/{disk.id}")
    assert error["message"] == 'disk cannot be deleted in state "attached"'


@pytest.mark.parametrize("state", ["stopped", "creating", "failed"])
async def test_disk_is_detached_at_once(client: RackUnderTest, state: records.InstanceState) -> None:
    """3.2: a detach is answered by 202 and the detached disk, also of a failed instance; once more changes nothing."""
    instance = put_instance(client, "i", state)
    await add_attached_disk(client, "data", instance)

    for _ in range(2):
        shown = await client.must(202, "POST", _path(instance, "detach"), {"disk": "data"})
        assert shown["state"] == {"state": "detached"}
    assert (await client.must(200, "GET", f"/v1/instances/{instance.id}/disks"))["items"] == []


@pytest.mark.parametrize("state", WITH_VMM)
async def test_instance_with_a_vmm(client: RackUnderTest, state: records.InstanceState) -> None:
    """3.2: disks are neither attached to nor detached from an instance that is not fully stopped."""
    instance = put_instance(client, "i", state)
    free = await add_disk(client, "free")
    own = await add_attached_disk(client, "own", instance)

    error = await client.refused(400, "POST", _path(instance, "attach"), {"disk": "free"})
    assert error["message"] == "cannot attach disk: instance is not fully stopped"
    error = await client.refused(400, "POST", _path(instance, "detach"), {"disk": "own"})
    assert error["message"] == "cannot detach disk: instance is not fully stopped"
    assert (free.state, own.state) == ("detached", "attached")


@pytest.mark.parametrize("state", ["stopped", "running"])
async def test_attaching_again(client: RackUnderTest, state: records.InstanceState) -> None:
    """3.2: to attach a disk to the instance that has it is no error, whatever the instance does."""
    instance = put_instance(client, "i", state)
    disk = await add_attached_disk(client, "data", instance)

    shown = await client.must(202, "POST", _path(instance, "attach"), {"disk": disk.id})

    assert shown["state"]["instance"] == instance.id


async def test_failed_instance_takes_no_disk(client: RackUnderTest) -> None:
    """3.2: an attach to a failed instance is refused."""
    await add_disk(client, "data")

    error = await client.refused(400, "POST", _path(put_instance(client, "i", "failed"), "attach"), {"disk": "data"})

    assert error["message"] == "cannot attach disk to instance in failed state"


async def test_disk_of_another_instance(client: RackUnderTest) -> None:
    """3.2: a disk belongs to one instance at a time, and only that one can let it go."""
    other = put_instance(client, "other")
    instance = put_instance(client, "i")
    await add_attached_disk(client, "data", other)

    for act in ("attach", "detach"):
        error = await client.refused(400, "POST", _path(instance, act), {"disk": "data"})
        assert error["message"] == f'cannot {act} disk "data": disk is attached to another instance'


@pytest.mark.parametrize("state", ["faulted", "import_ready"])
async def test_disk_that_cannot_be_used(client: RackUnderTest, state: records.DiskStateName) -> None:
    """3.2: a disk that is faulted or waits for blocks is neither attached nor detached."""
    instance = put_instance(client, "i")
    disk = await add_disk(client, "data")
    disk.state = state

    for act in ("attach", "detach"):
        error = await client.refused(400, "POST", _path(instance, act), {"disk": "data"})
        assert error["message"] == f'cannot {act} disk "data": invalid state {state}'


async def test_boot_disk_cannot_be_detached(client: RackUnderTest) -> None:
    """3.2: the boot disk of a stopped instance is 409, and stays."""
    instance = put_instance(client, "i")
    disk = await add_attached_disk(client, "root", instance)
    instance.boot_disk = disk.id

    error = await client.refused(409, "POST", _path(instance, "detach"), {"disk": "root"})

    assert (error["error_code"], error["message"]) == ("Conflict", "boot disk cannot be detached")
    assert disk.instance == instance.id


async def test_disk_of_another_project(client: RackUnderTest) -> None:
    """1.6: a name is looked up in the instance's project; an id of another project is refused."""
    project = await client.must(201, "POST", "/v1/projects", {"name": "second", "description": ""})
    second = client.state.projects.by_id(project["id"])
    instance = put_instance(client, "i", project=second)
    disk = await add_disk(client, "data")

    error = await client.refused(404, "POST", _path(instance, "attach"), {"disk": "data"})
    assert error["message"] == 'not found: disk with name "data"'
    error = await client.refused(400, "POST", _path(instance, "attach"), {"disk": disk.id.upper()})
    assert error["message"] == "disk must be in the same project as the instance"


async def test_twelve_disks(client: RackUnderTest) -> None:
    """2.2: an instance has at most 12 disks; a freed slot is the next to be used."""
    instance = put_instance(client, "i")
    for number in range(12):
        await add_attached_disk(client, f"d{number:02}", instance)
    await add_disk(client, "one-more")
    error = await client.refused(400, "POST", _path(instance, "attach"), {"disk": "one-more"})
    assert error["message"] == "cannot attach more than 12 disks to instance"

    await client.must(202, "POST", _path(instance, "detach"), {"disk": "d03"})
    await client.must(202, "POST", _path(instance, "attach"), {"disk": "one-more"})

    by_slot = [disk.name for disk in storage.attached_disks(client.state, instance)]
    assert by_slot[:5] == ["d00", "d01", "d02", "one-more", "d04"]


async def test_list_is_paged(client: RackUnderTest) -> None:
    """5: an instance's disks come in pages as other lists do."""
    instance = put_instance(client, "i")
    for name in ("c", "a", "b"):
        await add_attached_disk(client, name, instance)

    first = await client.must(200, "GET", "/v1/instances/i/disks", project="demo", limit=2)
    rest = await client.must(200, "GET", "/v1/instances/i/disks", page_token=first["next_page"])
    end = await client.must(200, "GET", "/v1/instances/i/disks", page_token=rest["next_page"])

    assert [disk["name"] for disk in first["items"]] == ["a", "b"]
    assert [disk["name"] for disk in rest["items"]] == ["c"]
    assert end == {"items": [], "next_page": None}


async def test_who_may_attach(client: RackUnderTest) -> None:
    """1.1: who only sees an instance cannot attach to it."""
    instance = put_instance(client, "i")
    disk = await add_disk(client, "data")

    await client.refused(403, "POST", _path(instance, "attach"), {"disk": "data"}, user="viewer")

    assert disk.instance is None
