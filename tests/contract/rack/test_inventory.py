"""The inventory: everything that is on the rack, in one order, without secrets."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from capox.rack import inventory, records
from capox.rack.table import Table
from tests.contract import rack_life
from tests.contract.rack import instance_life
from tests.rack import START, RackUnderTest


async def test_inventory_tells_the_whole_world(client: RackUnderTest) -> None:
    """The inventory holds what the API shows and what it hides, with user data as hash and length."""
    content = b"#cloud-config\npassword: hunter2\n"
    await instance_life.create(
        client,
        user_data=base64.b64encode(content).decode(),
        network_interfaces={"type": "default_ipv4"},
        boot_disk=instance_life.blank_disk("boot"),
    )

    found = inventory.dump(client.state)

    (lab,) = [silo for silo in found["silos"] if silo["name"] == "lab"]
    (demo,) = lab["projects"]
    (node,) = demo["instances"]
    assert node["user_data"] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert [disk["name"] for disk in demo["disks"]] == ["boot"]
    assert node["disks"] == [demo["disks"][0]["id"]]
    assert [nic["ipv4"] for nic in node["network_interfaces"]] == ["172.30.0.5"]
    assert {user["name"] for user in lab["users"]} >= {"admin", "viewer"}
    assert {pool["name"]: pool["addresses_taken"] for pool in found["ip_pools"]} == {"public-v4": 1, "public-v6": 0}
    assert [sled["name"] for sled in found["sleds"]] == ["sled0", "sled1", "sled2", "sled3"]


async def test_inventory_leaves_nothing_out(client: RackUnderTest) -> None:
    """Every record that the rack has is in the inventory, whatever its kind."""
    rack_life.furnish(client)
    client.state.timing = rack_life.INSTANT
    await rack_life.settle_in(rack_life.Life(client))

    text = json.dumps(inventory.dump(client.state))

    tables = [table for table in vars(client.state).values() if isinstance(table, Table)]
    assert all(len(table) for table in tables), "a kind of record is not there to be looked for"
    assert [record.id for table in tables for record in table if record.id not in text] == []
    addresses = [each.id for found in client.state.ephemeral_ips_of.values() for each in found]
    addresses += [snat.id for snat in client.state.snat_ips_of.values()]
    assert [identity for identity in [*addresses, *client.state.sleds] if identity not in text] == []


async def test_dumps_of_the_same_world_are_equal(client: RackUnderTest) -> None:
    """Two dumps differ only when something has changed; looking changes nothing, and neither does time alone."""
    await instance_life.create_running(client, boot_disk=instance_life.blank_disk("boot"))
    first = inventory.dump(client.state)

    await client.must(200, "GET", "/v1/projects")
    client.pass_time(60)
    assert inventory.dump(client.state) == first

    await client.must(202, "POST", instance_life.path(act="stop"))
    assert inventory.dump(client.state) != first


async def test_two_racks_with_one_history_are_equal() -> None:
    """The same seed, clock and requests make the same world, ids and all."""
    dumps = []
    for _ in range(2):
        async with RackUnderTest() as rack:
            await instance_life.create_running(rack, boot_disk=instance_life.blank_disk("boot"))
            dumps.append(inventory.dump(rack.state))

    assert dumps[0] == dumps[1]


def test_every_record_can_be_dumped() -> None:
    """A record with a kind of field that the inventory does not know is an error, not a leak."""

    class Unknown:
        """A type that no record has."""

    token = records.Token(id="1", user="2", sha256="3", time_created=START, time_expires=None)
    token.id = Unknown()  # type: ignore[assignment]  # on purpose

    with pytest.raises(TypeError, match="Unknown"):
        inventory.record(token)
