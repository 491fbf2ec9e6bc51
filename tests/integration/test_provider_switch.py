"""The provider dies or is relieved in the middle of things: at every call to the rack, and of two replicas either."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.capi import ManagementCluster
from tests.integration.provider_process import NAMESPACE, ProviderProcess
from tests.integration.stage import Stage, open_stage, world
from tests.integration.waiting import eventually

CREATE = (
    "instance_list",
    "floating_ip_list",
    "floating_ip_create",
    "instance_create",
    "vpc_subnet_view",
    "vpc_subnet_list_network_interfaces",
    "floating_ip_attach",
)
"""The operations of a control plane machine's creation, with its cluster's."""

DELETE = (
    "instance_list",
    "floating_ip_list",
    "disk_list",
    "instance_stop",
    "instance_delete",
    "instance_view",
    "disk_view",
    "disk_delete",
    "floating_ip_delete",
)
"""The operations of its deletion."""

HELD_SECONDS = 6.0
"""How long a call is held: long enough to be noticed and for the provider to be killed in it, and over when the next
provider has begun to look around."""

LEASE = "capox.infrastructure.cluster.x-k8s.io"


@pytest.fixture
def stage(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A rack and the provider for each story; the control plane is shared."""
    with open_stage(own_kinds, namespace, tmp_path) as stage:
        yield stage


class Reaper:
    """Kills the provider in the first call of each of some operations, and starts it again each time.

    Args:
        stage: The stage.
        kind: `slow`: what was asked for is done only when the provider is dead; `slow_answer`: it is done, and nobody
            hears of it.
        operations: The operations.
    """

    def __init__(self, stage: Stage, kind: str, operations: tuple[str, ...]) -> None:
        self._stage = stage
        self._after = stage.last_call()
        self.outstanding = set(operations)
        for operation in operations:
            # It is asked for what is gone, and only what succeeds can be answered late.
            played = "slow" if operation == "instance_view" else kind
            stage.rack.control.add_fault(played, operation=operation, times=1, seconds=HELD_SECONDS)

    def strike(self) -> bool:
        """Kill and start the provider if a call is held; whether it was."""
        held = self._held()
        if held is None:
            return False
        self.outstanding.discard(held["operation"])
        self._after = max(self._after, held["number"])
        self._stage.provider.kill()
        self._stage.provider.start()
        return True

    def _held(self) -> dict[str, Any] | None:
        calls = self._stage.rack.control.calls(self._after)
        return next((call for call in calls if call["operation"] in self.outstanding and call["status"] is None), None)

    def strike_until(self, what: str, is_reached: Any) -> None:
        """Kill it in every such call until all were met and a state is reached."""
        eventually(what, lambda: not self.strike() and not self.outstanding and is_reached(), within_seconds=200)


@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", ["slow", "slow_answer"])
def test_killed_in_every_call(stage: Stage, kind: str) -> None:
    """Killed once in every kind of call: one instance, a disk and an address come, and nothing stays."""
    before = world(stage.rack)
    creating = Reaper(stage, kind, CREATE)
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
    creating.strike_until(
        "the machine is ready and has the address",
        lambda: (
            stage.is_ready("oxidemachine", "web-0")
            and stage.condition("oxidecluster", "web", "FloatingIPAttached").get("status") == "True"
        ),
    )
    (instance,), (floating_ip,), (_,) = (stage.on_rack(kind) for kind in ("instances", "floating-ips", "disks"))
    assert stage.get("oxidemachine", "web-0")["spec"]["providerID"] == f"oxide://{instance['id']}"
    assert floating_ip["instance_id"] == instance["id"]
    stage.await_endpoint("web", floating_ip["ip"])

    deleting = Reaper(stage, kind, DELETE)
    stage.delete("cluster", "web")
    deleting.strike_until("the Cluster is gone", lambda: stage.get("cluster", "web") is None)
    assert world(stage.rack) == before


def test_a_machine_that_is_deleted_while_its_instance_is_under_way(stage: Stage) -> None:
    """Killed in instance_create, and the Machine deleted before it comes back: the late one is removed."""
    before = world(stage.rack)
    stage.apply(*stage.plain_cluster("web"))
    stage.await_ready("oxidecluster", "web")
    stage.rack.control.add_fault("slow", operation="instance_create", times=1, seconds=15)
    stage.apply(*stage.control_plane_machine("web-0", "web"))
    eventually(
        "the call is held",
        lambda: [
            each
            for each in stage.rack.control.calls()
            if (each["operation"], each["status"]) == ("instance_create", None)
        ],
    )
    stage.provider.kill()
    stage.delete("machine", "web-0")
    stage.provider.start()
    assert stage.get("oxidemachine", "web-0") is not None
    stage.delete_cluster("web", within_seconds=200)
    assert world(stage.rack) == before


def leader(stage: Stage) -> str:
    """Who holds the Lease; empty when nobody does."""
    found = stage.plane.kubectl("get", "lease", LEASE, "-n", NAMESPACE, "-o", "json", "--ignore-not-found")
    return str(json.loads(found)["spec"].get("holderIdentity") or "") if found.strip() else ""


def test_of_two_replicas_one_works(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> None:
    """When the leader is killed, or asked to end, the other goes on with what was begun, and nothing is made twice."""
    elect = "--leader-elect"
    second_directory = tmp_path / "second"
    second_directory.mkdir()
    second = ProviderProcess(own_kinds, second_directory, f"--namespace={namespace}", elect)
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(open_stage(own_kinds, namespace, tmp_path, elect))
        first = stage.provider
        eventually("the first leads", lambda: leader(stage))
        stack.enter_context(second)
        stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
        stage.await_ready("oxidemachine", "web-0")
        led = leader(stage)

        stage.rack.control.add_fault("slow_answer", operation="instance_create", times=1, seconds=HELD_SECONDS)
        stage.apply(*stage.control_plane_machine("web-1", "web"))
        eventually("the second instance is being made", lambda: len(stage.instances()) == 2)
        first.kill()
        eventually("another leads", lambda: leader(stage) not in {"", led}, within_seconds=40)
        stage.await_ready("oxidemachine", "web-1")
        assert len(stage.instances()) == len(stage.on_rack("disks")) == 2

        first.start()
        led = leader(stage)
        assert second.stop() == 0
        eventually("the first leads again", lambda: leader(stage) not in {"", led}, within_seconds=15)
        stage.apply(*stage.control_plane_machine("web-2", "web"))
        stage.await_ready("oxidemachine", "web-2")
        assert len(stage.instances()) == len(stage.on_rack("disks")) == 3
        stage.delete_cluster("web")
        assert stage.instances() == stage.on_rack("disks") == stage.on_rack("floating-ips") == []
