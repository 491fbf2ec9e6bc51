"""What an instance's life does to its disks, groups, keys and console, over HTTP (semantics 2.2, 4, 9)."""

from __future__ import annotations

from typing import Any

from tests.contract.rack import instance_life
from tests.contract.rack.staging import add_disk, disk_state
from tests.rack import GIB, RackUnderTest

GROUPS = "/v1/anti-affinity-groups"


async def _disks_of(rack: RackUnderTest, name: str = "node") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await rack.must(200, "GET", instance_life.path(name, "disks")))["items"]
    return items


async def test_disks_outlive_their_instance(client: RackUnderTest) -> None:
    """4.6: the boot disk and the others are detached when their instance is deleted, stay, and still count."""
    await add_disk(client, "data", gib=2)
    await instance_life.create(
        client,
        boot_disk=instance_life.blank_disk("root", size_gib=4),
        disks=[{"type": "attach", "name": "data"}],
    )
    assert {disk["name"] for disk in await _disks_of(client)} == {"root", "data"}

    await client.must(204, "DELETE", instance_life.path())

    assert [await disk_state(client, name) for name in ("root", "data")] == ["detached", "detached"]
    assert client.silo.provisioned_storage_bytes == 6 * GIB
    assert client.state.disks_of == {}


async def test_refused_creation_gives_its_storage_back(client: RackUnderTest) -> None:
    """4.2: when a later disk does not fit the quota, the disks that were made before it are gone and do not count."""
    client.silo.quota_storage_bytes = 5 * GIB

    error = await instance_life.refuse_create(
        client,
        507,
        disks=[instance_life.blank_disk("first", size_gib=4), instance_life.blank_disk("second", size_gib=4)],
    )

    assert "Storage Limit Exceeded" in error["message"]
    assert len(client.state.disks) == 0
    assert client.silo.provisioned_storage_bytes == 0
    assert client.state.storage_allocated_bytes == 0


async def test_disk_of_a_running_instance_stays(client: RackUnderTest) -> None:
    """3.2: a disk is detached only when its instance has stopped, and only then can another instance have it."""
    await instance_life.create_running(client, disks=[instance_life.blank_disk("data")])
    await instance_life.create(client, name="other")
    act = {"disk": "data"}
    await client.refused(400, "POST", instance_life.path(act="disks/detach"), act)
    await client.must(202, "POST", instance_life.path(act="stop"))
    await client.refused(400, "POST", instance_life.path(act="disks/detach"), act)

    client.pass_time(client.state.timing.instance_stop)

    await client.must(202, "POST", instance_life.path(act="disks/detach"), act)
    await client.must(202, "POST", instance_life.path("other", "disks/attach"), act)
    assert [disk["name"] for disk in await _disks_of(client, "other")] == ["data"]


async def test_group_named_at_creation(client: RackUnderTest) -> None:
    """8: an instance joins its groups when it is made, and leaves them when it is deleted."""
    body = {"name": "cp", "description": "", "policy": "allow", "failure_domain": "sled"}
    await client.must(201, "POST", GROUPS, body, project="demo")
    await instance_life.create_running(client, anti_affinity_groups=["cp", "cp"])

    (member,) = (await client.must(200, "GET", f"{GROUPS}/cp/members", project="demo"))["items"]
    assert (member["value"]["name"], member["value"]["run_state"]) == ("node", "running")
    await client.must(202, "POST", instance_life.path(act="stop"))
    client.pass_time(client.state.timing.instance_stop)
    await client.must(204, "DELETE", instance_life.path())
    assert (await client.must(200, "GET", f"{GROUPS}/cp/members", project="demo"))["items"] == []


async def test_keys_of_an_instance(client: RackUnderTest) -> None:
    """2.2: an instance has the keys that were chosen, or all of the caller's; a later one is not among them."""
    for name in ("work", "home"):
        await client.must(201, "POST", "/v1/me/ssh-keys", {"name": name, "description": "", "public_key": name})
    await instance_life.create(client, name="all")
    await instance_life.create(client, name="one", ssh_public_keys=["home"])
    await instance_life.create(client, name="none", ssh_public_keys=[])
    await client.must(201, "POST", "/v1/me/ssh-keys", {"name": "later", "description": "", "public_key": "later"})

    found = {
        name: [
            key["name"] for key in (await client.must(200, "GET", instance_life.path(name, "ssh-public-keys")))["items"]
        ]
        for name in ("all", "one", "none")
    }

    assert found == {"all": ["home", "work"], "one": ["home"], "none": []}


async def test_console_follows_the_life_of_the_instance(client: RackUnderTest) -> None:
    """9.2: a console is there from running to stop, goes on over a reboot, and begins anew with the next start."""

    async def end() -> int:
        """How many bytes are on the console."""
        shown = await client.must(200, "GET", instance_life.path(act="serial-console"), from_start=0)
        offset: int = shown["last_byte_offset"]
        return offset

    await instance_life.create_running(client)
    first = await end()
    await client.must(202, "POST", instance_life.path(act="reboot"))
    client.pass_time(client.state.timing.instance_reboot)
    assert await end() == 2 * first

    await client.must(202, "POST", instance_life.path(act="stop"))
    client.pass_time(client.state.timing.instance_stop)
    await client.refused(400, "GET", instance_life.path(act="serial-console"), from_start=0)
    await instance_life.start(client)
    assert await end() == first
