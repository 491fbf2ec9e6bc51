"""The Oxide client on the simulated rack: a whole life, with every operation in use. On virtual time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import SecretBytes

from capox.oxide import models
from capox.oxide.models import InstanceState
from tests.contract.oxide_rack import LiveRack
from tests.contract.test_oxide_client import OPERATIONS
from tests.rack import GIB
from tests.sim.loop import simulated

if TYPE_CHECKING:
    from capox.oxide import OxideClient

USER_DATA = b"#cloud-config\n{}\n"
KEY = {"name": "key", "description": "", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGh5 someone"}


def _instance(name: str, **changes: Any) -> models.InstanceCreate:
    interface = models.InstanceNetworkInterfaceCreate(
        name=name, description="", vpc_name="default", subnet_name="default", ip_config=models.OnlyV4Create()
    )
    fields: dict[str, Any] = {
        "name": name,
        "description": "Managed by capox",
        "hostname": name,
        "ncpus": 2,
        "memory": 4 * GIB,
        "network_interfaces": models.InterfacesCreate(params=(interface,)),
        "ssh_public_keys": (),
        "user_data": SecretBytes(USER_DATA),
        **changes,
    }
    return models.InstanceCreate(**fields)


@simulated
async def test_a_whole_life() -> None:
    """Everything that provider and CCM ask of a rack, once; nothing is left afterwards but what was there before."""
    rack = LiveRack()
    await rack.must(201, "POST", "/v1/me/ssh-keys", KEY)
    async with rack, rack.client() as oxide:
        await _look_around(oxide)
        await _groups(oxide)
        instance, floating_ip = await _make(rack, oxide)
        await _addresses(oxide, instance, floating_ip)
        await _change_while_stopped(oxide, instance)
        await _firewall(oxide, instance)
        await _take_down(oxide, instance, floating_ip)

        for left in (oxide.instance_list, oxide.disk_list, oxide.floating_ip_list, oxide.anti_affinity_group_list):
            assert await left(project="demo").all() == []
    assert rack.app.violations == []
    answered = {call.operation for call in rack.app.log.entries() if call.status is not None and call.status < 300}
    assert OPERATIONS.keys() <= answered


async def _look_around(oxide: OxideClient) -> None:
    assert (await oxide.ping()).status == "ok"
    me = await oxide.current_user_view()
    assert me.silo_name == "lab"
    (key,) = await oxide.current_user_ssh_key_list().all()
    assert await oxide.current_user_ssh_key_view("key") == key
    (project,) = await oxide.project_list().all()
    assert await oxide.project_view(project.id) == project
    pools = {pool.name: pool for pool in await oxide.ip_pool_list().all()}
    assert pools["public-v4"].ip_version is models.IpVersion.V4
    assert await oxide.ip_pool_view("public-v6") == pools["public-v6"]
    (image,) = await oxide.image_list().all()
    assert await oxide.image_view("debian") == image
    assert await oxide.image_list(project="demo").all() == []
    (vpc,) = await oxide.vpc_list(project="demo").all()
    assert await oxide.vpc_view("default", project="demo") == vpc
    (subnet,) = await oxide.vpc_subnet_list(vpc=vpc.id).all()
    assert await oxide.vpc_subnet_view("default", vpc="default", project="demo") == subnet


async def _groups(oxide: OxideClient) -> None:
    made = await oxide.anti_affinity_group_create(
        models.AntiAffinityGroupCreate(name="apart", description="", policy=models.AffinityPolicy.ALLOW), project="demo"
    )
    changed = await oxide.anti_affinity_group_update(made.id, models.AntiAffinityGroupUpdate(description="for nodes"))
    assert (changed.name, changed.description) == ("apart", "for nodes")
    assert await oxide.anti_affinity_group_view("apart", project="demo") == changed
    assert await oxide.anti_affinity_group_list(project="demo").all() == [changed]


async def _make(rack: LiveRack, oxide: OxideClient) -> tuple[models.Instance, models.FloatingIp]:
    image = await oxide.image_view("debian")
    boot = models.InstanceDiskCreate(
        name="boot-1",
        description="",
        size=10 * GIB,
        disk_backend=models.DistributedBackend(disk_source=models.ImageSource(image_id=image.id)),
    )
    instance = await oxide.instance_create(
        _instance("machine-1", boot_disk=boot, anti_affinity_groups=("apart",), ssh_public_keys=("key",)),
        project="demo",
    )
    record = rack.state.instances.by_id(str(instance.id))
    assert record is not None
    assert record.user_data == USER_DATA
    instance = await LiveRack.until(oxide, instance.id, InstanceState.RUNNING)
    assert [each.name for each in await oxide.instance_list(project="demo").all()] == ["machine-1"]
    assert [disk.name for disk in await oxide.instance_disk_list("machine-1", project="demo").all()] == ["boot-1"]
    assert [each.name for each in await oxide.instance_anti_affinity_group_list(instance.id).all()] == ["apart"]
    assert [each.name for each in await oxide.instance_ssh_public_key_list(instance.id).all()] == ["key"]
    floating_ip = await oxide.floating_ip_create(
        models.FloatingIpCreate(
            name="endpoint",
            description="",
            address_allocator=models.AnyAddress(pool_selector=models.ExplicitPool(pool="public-v4")),
        ),
        project="demo",
    )
    return instance, floating_ip


async def _addresses(oxide: OxideClient, instance: models.Instance, floating_ip: models.FloatingIp) -> None:
    attached = await oxide.floating_ip_attach(floating_ip.id, models.FloatingIpAttach(parent=instance.id))
    assert attached.instance_id == instance.id
    renamed = await oxide.floating_ip_update(floating_ip.id, models.FloatingIpUpdate(description="of the cluster"))
    assert await oxide.floating_ip_view("endpoint", project="demo") == renamed
    assert await oxide.floating_ip_list(project="demo").all() == [renamed]
    v4 = models.EphemeralIpCreate(pool_selector=models.DefaultPool(ip_version=models.IpVersion.V4))
    ephemeral = await oxide.instance_ephemeral_ip_attach(instance.id, v4)
    assert isinstance(ephemeral, models.EphemeralIp)
    external = await oxide.instance_external_ip_list(instance.id).all()
    assert {type(each) for each in external} == {models.SnatIp, models.EphemeralIp, models.AttachedFloatingIp}
    await oxide.instance_ephemeral_ip_detach(instance.id, ip_version=models.IpVersion.V4)
    await oxide.floating_ip_detach(floating_ip.id)
    assert (await oxide.floating_ip_view(floating_ip.id)).instance_id is None


async def _change_while_stopped(oxide: OxideClient, instance: models.Instance) -> None:
    await oxide.instance_reboot(instance.id)
    await LiveRack.until(oxide, instance.id, InstanceState.RUNNING)
    assert (await oxide.instance_stop(instance.id)).run_state is InstanceState.STOPPING
    stopped = await LiveRack.until(oxide, instance.id, InstanceState.STOPPED)
    data = await oxide.disk_create(
        models.DiskCreate(
            name="data-1",
            description="",
            size=5 * GIB,
            disk_backend=models.DistributedBackend(disk_source=models.BlankSource(block_size=4096)),
        ),
        project="demo",
    )
    attached = await oxide.instance_disk_attach(instance.id, models.DiskPath(disk=data.id))
    assert attached.state.instance == instance.id
    await oxide.instance_disk_detach(instance.id, models.DiskPath(disk="data-1"))
    assert (await oxide.disk_view("data-1", project="demo")).state.instance is None
    larger = await oxide.instance_update(instance.id, stopped.as_update().model_copy(update={"ncpus": 4}))
    assert (larger.ncpus, larger.memory, larger.boot_disk_id) == (4, stopped.memory, stopped.boot_disk_id)

    (first,) = await oxide.instance_network_interface_list(instance="machine-1", project="demo").all()
    changed = await oxide.instance_network_interface_update(
        first.id, models.InstanceNetworkInterfaceUpdate(transit_ips=("10.244.0.0/24",))
    )
    assert changed.addresses == first.addresses
    assert await oxide.vpc_subnet_list_network_interfaces(first.subnet_id).all() == [changed]
    viewed = await oxide.instance_network_interface_view("machine-1", instance="machine-1", project="demo")
    assert viewed == changed
    await oxide.instance_network_interface_delete(first.id)
    await oxide.instance_network_interface_create(
        models.InstanceNetworkInterfaceCreate(
            name="again", description="", vpc_name="default", subnet_name="default", ip_config=models.OnlyV4Create()
        ),
        instance=instance.id,
    )

    group = await oxide.anti_affinity_group_view("apart", project="demo")
    (member,) = await oxide.anti_affinity_group_member_list(group.id).all()
    assert isinstance(member, models.InstanceMember)
    assert member.value.id == instance.id
    assert await oxide.anti_affinity_group_member_instance_view(group.id, instance.id) == member
    await oxide.anti_affinity_group_member_instance_delete("apart", "machine-1", project="demo")
    assert await oxide.anti_affinity_group_member_instance_add("apart", "machine-1", project="demo") == member
    await oxide.instance_start(instance.id)
    await LiveRack.until(oxide, instance.id, InstanceState.RUNNING)


async def _firewall(oxide: OxideClient, instance: models.Instance) -> None:
    before = await oxide.vpc_firewall_rules_view(vpc="default", project="demo")
    mine = models.VpcFirewallRuleUpdate(
        name="api-server",
        description="",
        status=models.FirewallStatus.ENABLED,
        direction=models.FirewallDirection.INBOUND,
        targets=(models.FirewallSubject(type="instance", value=instance.name),),
        filters=models.FirewallFilters(ports=("6443",), protocols=(models.TcpOrUdp(type="tcp"),)),
        action=models.FirewallAction.ALLOW,
        priority=100,
    )
    theirs = tuple(rule.as_update() for rule in before.rules)
    after = await oxide.vpc_firewall_rules_update(
        models.VpcFirewallRulesUpdate(rules=(*theirs, mine)), vpc="default", project="demo"
    )
    assert sorted([*(rule.name for rule in before.rules), "api-server"]) == [rule.name for rule in after.rules]

    def kept(rules: models.VpcFirewallRules) -> dict[str, Any]:
        return {rule.name: json.loads(rule.as_update().wire_bytes()) for rule in rules.rules}

    assert {name: rule for name, rule in kept(after).items() if name != "api-server"} == kept(before)


async def _take_down(oxide: OxideClient, instance: models.Instance, floating_ip: models.FloatingIp) -> None:
    await oxide.instance_stop(instance.id)
    await LiveRack.until(oxide, instance.id, InstanceState.STOPPED)
    disks = await oxide.instance_disk_list(instance.id).all()
    await oxide.instance_delete(instance.id)
    for disk in [*disks, await oxide.disk_view("data-1", project="demo")]:
        await oxide.disk_delete(disk.id)
    await oxide.floating_ip_delete(floating_ip.id)
    await oxide.anti_affinity_group_delete("apart", project="demo")
