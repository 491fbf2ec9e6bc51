"""Which disks are written down as a machine's before it is deleted, seen on the simulated rack. On virtual time."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from capox.api.v1alpha1 import DiskRecord, OxideMachine, OxideMachineStatus
from capox.oxide import LoopClock, OxideClient, errors, models
from capox.provider import names
from capox.provider.machine_rack import Acts, MachineRack
from capox.provider.racks import Project
from capox.rack import storage
from tests.contract.oxide_rack import LiveRack
from tests.rack import GIB
from tests.sim.loop import simulated

MACHINE = OxideMachine.model_validate(
    {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideMachine",
        "metadata": {"namespace": "team", "name": "web-0", "uid": "a-uid"},
        "spec": {
            "imageID": "11111111-2222-4333-8444-555555555555",
            "nCPUs": 1,
            "memory": "1Gi",
            "diskSize": "2Gi",
            "dataDisks": [{"size": "1Gi"}, {"size": "1Gi", "reclaimPolicy": "Retain"}],
        },
    }
)
BOOT = names.boot_disk_name("team", "web-0")
DATA, RETAINED = (names.data_disk_name(index, "team", "web-0") for index in range(2))


async def with_disks(rack: LiveRack, oxide: OxideClient, *disk_names: str) -> models.Instance:
    """An instance that runs, with disks of these names."""
    first, *others = (
        models.InstanceDiskCreate(
            name=name,
            description="",
            size=2 * GIB,
            disk_backend=models.DistributedBackend(disk_source=models.ImageSource(image_id=UUID(rack.image.id))),
        )
        for name in disk_names
    )
    instance = models.InstanceCreate(
        name=names.instance_name("team", "web-0"),
        description="",
        hostname="web-0",
        ncpus=1,
        memory=GIB,
        boot_disk=first,
        disks=tuple(others),
        network_interfaces=models.DefaultInterface(type="default_ipv4"),
        ssh_public_keys=(),
    )
    return await oxide.instance_create(instance, project="demo")


def take_off(rack: LiveRack, *disk_names: str) -> None:
    """Detach disks, as the rack does for somebody else."""
    for disk in list(rack.state.disks):
        if disk.name in disk_names:
            storage.detach(rack.state, disk)


def seen_by(oxide: OxideClient) -> MachineRack:
    """The machine's view of its project; who it is plays no part in what is asked here."""
    identity: Any = None
    return MachineRack(Project(oxide, "demo", LoopClock()), MACHINE, identity, Acts())


@simulated
async def test_own_disks_are_those_of_the_right_name_on_the_instance() -> None:
    """Neither one that is to be retained nor a stranger's; all machines that go together share the list."""
    async with LiveRack() as rack, rack.client() as oxide:
        instance = await with_disks(rack, oxide, BOOT, DATA, RETAINED, "somebodys")

        found = await seen_by(oxide).attached_disks(instance.id)

        assert sorted(record.name for record in found) == sorted((BOOT, DATA))
        assert rack.asked("instance_disk_list") == rack.asked("instance_view") == 0


@simulated
async def test_a_disk_that_was_taken_off_is_left_to_whoever_did_it() -> None:
    """The instance is still there, so it was not the rack that has taken the disk off."""
    async with LiveRack() as rack, rack.client() as oxide:
        instance = await with_disks(rack, oxide, BOOT, DATA)
        take_off(rack, DATA)

        found = await seen_by(oxide).attached_disks(instance.id)

        assert [record.name for record in found] == [BOOT]


@simulated
async def test_nothing_is_concluded_from_an_instance_that_has_just_gone() -> None:
    """Its disks are loose then and look like nobody's: writing down that there are none would leave them for ever."""
    async with LiveRack() as rack, rack.client() as oxide:
        instance = await with_disks(rack, oxide, BOOT, DATA)
        take_off(rack, BOOT, DATA)
        gone = rack.state.instances.by_id(str(instance.id))
        assert gone is not None
        rack.state.instances.delete(gone)

        with pytest.raises(errors.ObjectNotFound):
            await seen_by(oxide).attached_disks(instance.id)


@simulated
async def test_a_list_from_before_a_deletion_does_not_bring_a_disk_back() -> None:
    """Its deletion was carried out and the answer lost, so nothing was noted as done; somebody else had read a list."""
    async with LiveRack() as rack, rack.client() as oxide:
        await with_disks(rack, oxide, BOOT)
        take_off(rack, BOOT)
        disk = rack.state.disks.by_name(rack.project.id, BOOT)
        assert disk is not None
        machine = MACHINE.model_copy(
            update={"status": OxideMachineStatus(disks=(DiskRecord(id=disk.id, name=disk.name),))}
        )
        project, identity = Project(oxide, "demo", LoopClock()), cast("Any", None)
        seen = MachineRack(project, machine, identity, Acts(last=project.inventory.now()))
        await project.inventory.disks.recent()

        await oxide.disk_delete(UUID(disk.id))

        assert await seen._recorded_disks() == ()
