"""The rack and its guests: states wait for them, what happens to them shows, and addresses lead to them."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from capox.rack import instance_states, records
from capox.rack.guests import wiring
from capox.rack.guests.interface import Then
from tests.contract.rack.instance_life import MINIMAL
from tests.rack import RackUnderTest


class SlowGuests:
    """Guests that arrive when they are told to."""

    def __init__(self, rack: RackUnderTest) -> None:
        self.rack = rack
        self.acts: list[str] = []
        self.waiting: list[Then] = []
        self.addresses_brought = 0

    def start(self, instance: records.Instance) -> None:
        """Note it."""
        self.acts.append(f"start {instance.name}")

    def stop(self, instance: records.Instance) -> None:
        """Note it."""
        self.acts.append(f"stop {instance.name}")

    def reset(self, instance: records.Instance) -> None:
        """Note it."""
        self.acts.append(f"reset {instance.name}")

    def kill(self, instance: records.Instance) -> None:
        """Note it."""
        self.acts.append(f"kill {instance.name}")

    def delete(self, disk: records.Disk) -> None:
        """Note it."""
        self.acts.append(f"delete {disk.name}")

    def console(self, instance: records.Instance, moment: datetime.datetime) -> None:
        """Write something else than nothing would."""
        del moment
        instance.console.write(f"{instance.name} runs".encode())

    def when_settled(self, instance: records.Instance, moment: datetime.datetime, then: Then) -> None:
        """Wait to be told."""
        del instance, moment
        self.waiting.append(then)

    async def addresses(self) -> None:
        """Count it."""
        self.addresses_brought += 1

    def arrive(self) -> None:
        """Let everybody arrive now."""
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(self.rack.state.now())
        self.rack.state.settle()


@pytest.fixture
async def rack() -> AsyncIterator[RackUnderTest]:
    """A rack with slow guests."""
    async with RackUnderTest() as made:
        made.state.guests = SlowGuests(made)
        yield made


def new_instance(name: str) -> dict[str, Any]:
    """What makes an instance and starts it."""
    return MINIMAL | {"name": name, "start": True, "network_interfaces": {"type": "default_ipv4"}}


def guests_of(rack: RackUnderTest) -> SlowGuests:
    """The rack's guests."""
    assert isinstance(rack.state.guests, SlowGuests)
    return rack.state.guests


async def state_of(rack: RackUnderTest, name: str) -> str:
    """An instance's state."""
    return str((await rack.must(200, "GET", f"/v1/instances/{name}?project=demo"))["run_state"])


async def test_states_wait_for_the_guest(rack: RackUnderTest) -> None:
    """An instance runs, and is stopped, when its time has passed and its guest is there as well (semantics 3)."""
    guests = guests_of(rack)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    rack.pass_time(60)
    assert await state_of(rack, "one") == "starting"
    guests.arrive()
    assert await state_of(rack, "one") == "running"
    (instance,) = rack.state.instances
    assert instance.time_run_state_updated == rack.state.now(), "it runs since its guest does"

    await rack.must(202, "POST", "/v1/instances/one/reboot?project=demo")
    guests.arrive()
    assert await state_of(rack, "one") == "rebooting", "its time has not passed"
    rack.pass_time(60)
    assert await state_of(rack, "one") == "running"

    await rack.must(202, "POST", "/v1/instances/one/stop?project=demo")
    rack.pass_time(60)
    assert await state_of(rack, "one") == "stopping"
    guests.arrive()
    assert await state_of(rack, "one") == "stopped"
    assert guests.acts == ["start one", "reset one", "stop one"]


async def test_a_stop_overtakes_a_start(rack: RackUnderTest) -> None:
    """A guest that arrives where it is no longer wanted changes nothing."""
    guests = guests_of(rack)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    started, guests.waiting = guests.waiting, []
    await rack.must(202, "POST", "/v1/instances/one/stop?project=demo")
    for then in started:
        then(rack.state.now())
    rack.pass_time(60)
    assert await state_of(rack, "one") == "stopping"
    guests.arrive()
    assert await state_of(rack, "one") == "stopped"


async def test_a_lost_guest_is_killed(rack: RackUnderTest) -> None:
    """When a VMM is taken away its guest goes with it, and an automatic restart starts it (semantics 3.3)."""
    guests = guests_of(rack)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    rack.pass_time(1)
    guests.arrive()
    (instance,) = rack.state.instances
    instance_states.crash_guest(rack.state, instance)
    rack.pass_time(1)
    assert await state_of(rack, "one") == "failed"
    rack.pass_time(1)
    assert await state_of(rack, "one") == "starting"
    instance_states.fail(rack.state, instance)
    assert guests.acts == ["start one", "kill one", "start one", "kill one"]


async def test_a_guest_s_own_reboot(rack: RackUnderTest) -> None:
    """A guest that reboots itself shows as rebooting; one that does not run cannot (semantics 3.3)."""
    guests = guests_of(rack)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    (instance,) = rack.state.instances
    with pytest.raises(ValueError, match="no running guest"):
        instance_states.reboot_guest(rack.state, instance)
    rack.pass_time(1)
    guests.arrive()
    instance_states.reboot_guest(rack.state, instance)
    assert await state_of(rack, "one") == "rebooting"
    assert guests.acts[-1] == "reset one"


async def test_disks_and_addresses(rack: RackUnderTest) -> None:
    """A deleted disk is forgotten, and a request that changes something is answered when addresses hold (6)."""
    guests = guests_of(rack)
    backend = {"type": "distributed", "disk_source": {"type": "blank", "block_size": 512}}
    disk = {"name": "data", "description": "", "size": 1024**3, "disk_backend": backend}
    await rack.must(201, "POST", "/v1/disks?project=demo", disk)
    await rack.must(204, "DELETE", "/v1/disks/data?project=demo")
    assert guests.acts == ["delete data"]
    assert guests.addresses_brought == 2
    await rack.must(200, "GET", "/v1/disks?project=demo")
    await rack.refused(404, "DELETE", "/v1/disks/data?project=demo")
    assert guests.addresses_brought == 2


async def test_a_restored_sled_does_not_act_again(rack: RackUnderTest) -> None:
    """What a guest was told before its sled was cut off it is not told again when the sled is back."""
    guests = guests_of(rack)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    (instance,) = rack.state.instances
    sled = rack.state.sleds[instance.sled or ""]
    instance_states.lose_sled(rack.state, sled)
    guests.arrive()
    rack.pass_time(60)
    assert await state_of(rack, "one") == "starting"
    instance_states.restore_sled(rack.state, sled)
    guests.arrive()
    rack.pass_time(60)
    assert await state_of(rack, "one") == "running"
    assert guests.acts == ["start one"]


async def test_wiring(rack: RackUnderTest) -> None:
    """Addresses lead to the primary NIC, and the way out is chosen in the API's order (semantics 6, 7.4)."""
    ephemeral = {"type": "ephemeral", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = new_instance("one") | {"external_ips": [ephemeral]}
    await rack.must(201, "POST", "/v1/instances?project=demo", body)
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("two"))
    rack.pass_time(1)
    guests_of(rack).arrive()
    made = await floating_ip(rack, "endpoint")
    await rack.must(202, "POST", "/v1/floating-ips/endpoint/attach?project=demo", {"kind": "instance", "parent": "two"})

    (vpc,) = wiring.wire(rack.state).vpcs.values()

    one, two = (port.address for port in sorted(vpc.ports, key=lambda port: port.address))
    egress = dict(vpc.egress)
    assert [str(one), str(two)] == ["172.30.0.5", "172.30.0.6"]
    assert str(egress[two].address) == made["ip"]
    assert egress[two].ports is None
    assert dict(vpc.inbound) == {egress[one].address: one, egress[two].address: two}
    assert vpc.members["instance", "two"] == (two,)
    assert vpc.mute == ()

    await rack.must(204, "DELETE", "/v1/instances/one/external-ips/ephemeral?project=demo")
    (vpc,) = wiring.wire(rack.state).vpcs.values()
    assert dict(vpc.egress)[one].ports == (1, 16383), "the share of an address has no port 0"


async def test_a_pool_without_a_gateway_is_mute(rack: RackUnderTest) -> None:
    """An address of a pool that no gateway has receives, and another one is used for the way out (semantics 7.4)."""
    pool = rack.add_pool("second", "v4", "203.0.113.0", "203.0.113.15", {rack.silo.id: False})
    await rack.must(201, "POST", "/v1/instances?project=demo", new_instance("one"))
    rack.pass_time(1)
    guests_of(rack).arrive()
    selector = {"type": "explicit", "pool": pool.name}
    made = await floating_ip(rack, "endpoint", address_allocator={"type": "auto", "pool_selector": selector})
    await rack.must(202, "POST", "/v1/floating-ips/endpoint/attach?project=demo", {"kind": "instance", "parent": "one"})

    (vpc,) = wiring.wire(rack.state).vpcs.values()

    assert [str(external) for external in vpc.mute] == [made["ip"]]
    ((_, seen),) = vpc.egress
    assert str(seen.address) != made["ip"]
    assert seen.ports is not None


async def floating_ip(rack: RackUnderTest, name: str, **fields: Any) -> Any:
    """Make a floating IP."""
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = {"name": name, "description": "", "address_allocator": allocator} | fields
    return await rack.must(201, "POST", "/v1/floating-ips?project=demo", body)
