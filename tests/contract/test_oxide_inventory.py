"""The shared observation of a project on the simulated rack. On virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from capox.oxide import ProjectInventory, TokenBucket, errors, models
from capox.oxide.models import InstanceState
from tests.contract.oxide_rack import LiveRack
from tests.contract.rack import staging
from tests.rack import GIB
from tests.sim.loop import seconds, simulated

if TYPE_CHECKING:
    from capox.oxide import OxideClient


def _instance(name: str) -> models.InstanceCreate:
    return models.InstanceCreate(
        name=name,
        description="",
        hostname=name,
        ncpus=2,
        memory=4 * GIB,
        network_interfaces=models.DefaultInterface(type="default_ipv4"),
        ssh_public_keys=(),
    )


@simulated
async def test_a_fleet_that_comes_up_is_watched_by_few_lists() -> None:
    """Forty instances are made, and followed until they run, by a list each interval instead of a view each."""
    async with LiveRack() as rack, rack.client() as oxide:
        inventory = ProjectInventory(oxide, "demo")

        async def bring_up(number: int) -> None:
            """Make one, and follow it."""
            made = await oxide.instance_create(_instance(f"machine-{number}"), project="demo")
            while True:
                seen = (await inventory.instances.fresh_since(inventory.now())).by_id(made.id)
                assert seen is not None, "an instance that was made is missing from a list that began later"
                if seen.run_state is InstanceState.RUNNING:
                    return

        async with asyncio.timeout(600):
            await asyncio.gather(*(bring_up(number) for number in range(40)))

        assert rack.asked("instance_view") == 0
        # Two requests make one list: the page of items, and the empty one after it.
        assert rack.asked("instance_list") <= 2 * (seconds() / 1.5 + 2)


@simulated
async def test_several_pages_are_one_list_whatever_happens_between_them() -> None:
    """2,500 instances in three pages; in between some vanish and others appear, and none that stays is missed."""
    async with LiveRack() as rack, rack.client() as oxide:
        records = [staging.put_instance(rack, f"machine-{number}") for number in range(2500)]
        by_id = sorted(records, key=lambda record: record.id)
        rack.play("slow_answer", "instance_list", seconds=2, times=None)
        inventory = ProjectInventory(oxide, "demo")
        reading = asyncio.create_task(inventory.instances.recent())
        gone = [by_id[0], by_id[1100], by_id[2499]]
        for number, record in enumerate(gone):
            await asyncio.sleep(2)
            await oxide.instance_delete(record.id)
            staging.put_instance(rack, f"newcomer-{number}")

        snapshot = await reading

        staying = {record.id for record in records} - {record.id for record in gone}
        assert staying <= {str(each.id) for each in snapshot}
        assert rack.asked("instance_list") == 4


@simulated
async def test_a_deletion_is_proven() -> None:
    """It is not absent while it exists, nor right after its deletion by an older list, but by proof."""
    async with LiveRack() as rack, rack.client() as oxide:
        inventory = ProjectInventory(oxide, "demo")
        record = staging.put_instance(rack, "machine-1")
        before = await inventory.instances.recent()
        assert not await inventory.is_instance_absent(UUID(record.id))

        await oxide.instance_delete(record.id)

        assert before.by_id(record.id) is not None
        assert await inventory.is_instance_absent(UUID(record.id))


@simulated
async def test_a_404_is_not_proof_enough() -> None:
    """A view that hides the instance is contradicted by the list; a wrong page is an error."""
    async with LiveRack() as rack, rack.client() as oxide:
        inventory = ProjectInventory(oxide, "demo")
        record = staging.put_instance(rack, "machine-1")
        rack.play("hidden", "instance_view")
        assert not await inventory.is_instance_absent(UUID(record.id))

        rack.play("not_found_page", "instance_view")
        with pytest.raises(errors.APIError) as caught:
            await inventory.is_instance_absent(UUID(record.id))

        assert type(caught.value) is errors.APIError


@simulated
async def test_credentials_that_see_nothing_prove_nothing() -> None:
    """A user without a role, and one of another silo, see neither instance nor project; that is not an absence."""
    for user in ("nobody", "stranger"):
        async with LiveRack() as rack, rack.client(user) as oxide:
            record = staging.put_instance(rack, "machine-1")
            for project in ("demo", rack.project.id):
                with pytest.raises(errors.NotVisible):
                    await ProjectInventory(oxide, project).is_instance_absent(UUID(record.id))


@simulated
async def test_floating_ips_disks_and_interfaces() -> None:
    """The other lists follow what happens on the rack, too."""
    async with LiveRack() as rack, rack.client() as oxide:
        inventory = ProjectInventory(oxide, "demo")
        made = await oxide.instance_create(_instance("machine-1"), project="demo")
        disk = await oxide.disk_create(
            models.DiskCreate(name="data-1", description="", size=GIB, disk_backend=models.LocalBackend()),
            project="demo",
        )
        address = await _endpoint(oxide, made)
        subnet = await oxide.vpc_subnet_view("default", vpc="default", project="demo")
        moment = inventory.now()

        floating_ips = await inventory.floating_ips.fresh_since(moment)
        disks = await inventory.disks.fresh_since(moment)
        interfaces = await inventory.network_interfaces(subnet.id).fresh_since(moment)

        found = floating_ips.by_address(str(address.ip))
        assert found is not None
        assert floating_ips.of_instance(made.id) == (found,)
        assert disks.by_name("data-1") is disks.by_id(disk.id)
        (interface,) = interfaces.of_instance(made.id)
        assert [str(each) for each in interface.addresses] == ["172.30.0.5"]
        assert not await inventory.is_floating_ip_absent(address.id)
        await oxide.disk_delete(disk.id)
        assert await inventory.is_disk_absent(disk.id)


async def _endpoint(oxide: OxideClient, instance: models.Instance) -> models.FloatingIp:
    await LiveRack.until(oxide, instance.id, InstanceState.RUNNING)
    made = await oxide.floating_ip_create(
        models.FloatingIpCreate(
            name="endpoint",
            description="",
            address_allocator=models.AnyAddress(pool_selector=models.ExplicitPool(pool="public-v4")),
        ),
        project="demo",
    )
    return await oxide.floating_ip_attach(made.id, models.FloatingIpAttach(parent=instance.id))


@simulated
async def test_two_credentials_of_one_rack_share_its_pace() -> None:
    """However many clients there are, the rack is asked no faster than its bucket lets through."""
    bucket = TokenBucket(rate_per_second=5, burst=5)
    async with LiveRack() as rack, rack.client(bucket=bucket) as one, rack.client("viewer", bucket=bucket) as other:
        inventories = [ProjectInventory(oxide, "demo") for oxide in (one, other)]
        for _ in range(20):
            await asyncio.gather(*(each.instances.fresh_since(each.now()) for each in inventories))
            await asyncio.gather(*(oxide.ping() for oxide in (one, other) for _ in range(10)))

        assert len(rack.app.log.entries()) <= 5 + 5 * seconds() + 1
