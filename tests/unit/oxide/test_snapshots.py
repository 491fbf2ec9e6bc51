"""What a reading of a list is kept as."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from capox.oxide import (
    FloatingIpSnapshot,
    InventorySnapshot,
    Moment,
    NetworkInterfaceSnapshot,
    ObservedDisk,
    ObservedFloatingIp,
    ObservedInstance,
    ObservedNetworkInterface,
)
from capox.oxide.models import Disk, FloatingIp, Instance, InstanceNetworkInterface
from tests.unit.oxide import examples

BEGAN = Moment(order=1, seconds=0.0)


def _instances(*numbers: int, **changes: Any) -> InventorySnapshot[ObservedInstance]:
    read = (Instance.model_validate(examples.instance(number, **changes)) for number in numbers)
    return InventorySnapshot(BEGAN, [ObservedInstance.of(each) for each in read])


def test_an_object_is_found_by_id_and_by_name() -> None:
    """By id in any spelling; what is not there is None."""
    snapshot = _instances(1, 2)
    second = snapshot.by_name("instance-2")

    assert second is not None
    assert second.memory_bytes == 8 * 2**30
    assert snapshot.by_id(second.id) is second
    assert snapshot.by_id(str(second.id).upper()) is second
    assert snapshot.by_id(examples.instance_id(3)) is None
    assert snapshot.by_name("instance-3") is None
    assert [each.name for each in snapshot] == ["instance-1", "instance-2"]
    assert len(snapshot) == 2


def test_a_mistyped_id_is_not_an_absent_object() -> None:
    """What is no UUID at all raises, instead of looking like something that is gone."""
    for text in ("", "instance-1", "oxide://00000000-0000-4000-8000-000000000001"):
        with pytest.raises(ValueError, match="UUID"):
            _instances(1).by_id(text)


def test_floating_ips_are_found_by_address_and_by_instance() -> None:
    """Addresses are compared as such, not as texts."""
    instance = examples.instance_id(1)
    read = [
        examples.floating_ip(1, instance_id=instance),
        examples.floating_ip(2, ip="2001:db8::5", instance_id=instance),
        examples.floating_ip(3),
    ]
    snapshot = FloatingIpSnapshot(BEGAN, [ObservedFloatingIp.of(FloatingIp.model_validate(each)) for each in read])

    of_v6 = snapshot.by_address("2001:DB8:0:0::5")
    assert of_v6 is not None
    assert of_v6.name == "floating-ip-2"
    assert snapshot.by_address(of_v6.ip) is of_v6
    assert snapshot.by_address("198.51.100.9") is None
    assert [each.name for each in snapshot.of_instance(UUID(instance))] == ["floating-ip-1", "floating-ip-2"]
    assert snapshot.of_instance(UUID(examples.instance_id(2))) == ()
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        snapshot.by_address("oxide.example.com")


def test_interfaces_are_found_by_instance() -> None:
    """Every instance has an interface of the same name, so the name finds nothing."""
    read = [InstanceNetworkInterface.model_validate(examples.network_interface(number)) for number in (1, 2)]
    snapshot = NetworkInterfaceSnapshot(BEGAN, [ObservedNetworkInterface.of(each) for each in read])

    (interface,) = snapshot.of_instance(UUID(examples.instance_id(2)))
    assert [str(address) for address in interface.addresses] == ["172.30.0.6", "fd00::2"]
    assert snapshot.of_instance(UUID(examples.instance_id(3))) == ()
    assert not hasattr(snapshot, "by_name")


def test_a_disk_keeps_its_instance() -> None:
    """An attached disk is found to be attached, and to whom."""
    attached = {"state": "attached", "instance": examples.instance_id(1)}
    disk = ObservedDisk.of(Disk.model_validate(examples.disk(1, state=attached)))

    assert (disk.state, str(disk.instance_id)) == ("attached", examples.instance_id(1))


def test_a_snapshot_cannot_be_changed() -> None:
    """Everybody shares it."""
    snapshot = _instances(1)

    with pytest.raises(AttributeError):
        snapshot.something = 1  # type: ignore[attr-defined]  # that it has no such place is what the test is about
    with pytest.raises(AttributeError):
        next(iter(snapshot)).name = "other"  # type: ignore[misc]  # see above


def test_thousands_of_instances_stay_lean() -> None:
    """What is kept of an instance takes less than half of its wire model, and about a kilobyte."""
    number = 2000
    tracemalloc.start()
    try:
        wire = [Instance.model_validate(examples.instance(each)) for each in range(number)]
        of_wire, _ = tracemalloc.get_traced_memory()
        snapshot = InventorySnapshot(BEGAN, [ObservedInstance.of(each) for each in wire])
        both, _ = tracemalloc.get_traced_memory()
        del wire
        of_snapshot, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(snapshot) == number
    assert of_snapshot / number < 1500, f"{of_snapshot / number} bytes an instance"
    assert of_snapshot < of_wire / 2, f"{of_snapshot} of {of_wire}, together {both}"
    assert sys.getsizeof(next(iter(snapshot))) < 200
