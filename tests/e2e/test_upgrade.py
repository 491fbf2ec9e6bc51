"""The life of a cluster of machines that boot, a client at its endpoint: it grows, gets another version, and goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.nodeimage.register import RegisteredImage
from tests.e2e.endpoint_watch import longest_pause, machines_after, silence_of, unexcused
from tests.e2e.management import Machines, open_machines
from tests.e2e.workload import BOOT_SECONDS, LOOK_SECONDS, Watch, Workload, await_as_before, world
from tests.integration.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

# Four machines boot one after the other, and four are taken away.
UPGRADE_SECONDS = 2400
# TCP repeats its first packet after a second, and two CPUs have machines to run meanwhile.
PATIENCE_SECONDS = 3.0
# The client asks ten times a second, unless the computer gives it no time; in longer than this a gap could hide.
PAUSE_SECONDS = 5.0
# Lists that are read for all machines at their own pace, and may happen to be read between a detach and its attach;
# nobody who moves an address waits for them.
SHARED_READS = {"GET instance_list", "GET floating_ip_list"}


@pytest.fixture
def machines(docker_host: str, node_images: list[RegisteredImage], tmp_path: Path) -> Iterator[Machines]:
    """A management cluster, a provider and a rack of the test's own."""
    if len(node_images) < 2:
        pytest.skip("two node images are needed; `make node-image` makes them")
    with open_machines(tmp_path, docker_host, node_images[:2]) as made:
        yield made


def test_a_cluster_grows_is_upgraded_and_goes(
    machines: Machines, node_images: list[RegisteredImage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One control plane becomes three without a gap; all machines are replaced, and the endpoint follows the living."""
    old, new = node_images[:2]
    group = {"name": "control-planes", "description": "", "policy": "fail", "failure_domain": "sled"}
    machines.stage.tell("/v1/anti-affinity-groups", group)
    before = world(machines)
    web = Workload(machines)
    machines.make_cluster(
        web.name,
        old,
        template="cluster-template-ha.yaml",
        control_planes=1,
        workers=1,
        CONTROL_PLANE_ANTI_AFFINITY_GROUP="control-planes",
    )
    web.await_nodes(2, old.kubernetes)
    web.expect_nodes_of_instances()

    with web.watched(tmp_path / "answers") as watch:
        try:
            grow(machines, web, watch, old)
            upgrade(web, watch, old, new)
        finally:
            with capsys.disabled():
                print(f"\nThe endpoint while the control plane grew and was upgraded:\n{watch.tell()}")  # noqa: T201 - a figure for people
    web.expect_nodes_of_instances()
    # The machines held both, so nobody had to ask a registry.
    eventually(
        "every Node has the new kube-proxy",
        lambda: web.proxies_ready(new) == 4,
        within_seconds=300,
        every_seconds=LOOK_SECONDS,
    )

    machines.stage.delete_cluster(web.name, within_seconds=BOOT_SECONDS)
    await_as_before(machines, before)


def grow(machines: Machines, web: Workload, watch: Watch, image: RegisteredImage) -> None:
    """From one control plane machine to three, on as many sleds, each a member of etcd."""
    first = web.endpoint()["instance_id"]
    web.change_control_plane({"replicas": 3})
    web.await_nodes(4, image.kubernetes, within_seconds=2 * BOOT_SECONDS)

    assert watch.moves() == []
    assert web.endpoint()["instance_id"] == first
    assert unexcused(watch.answers(), []) == []
    names = {node["metadata"]["name"] for node in web.control_plane_nodes()}
    assert len(names) == 3
    members = machines.stage.ask("/v1/anti-affinity-groups/control-planes/members")["items"]
    assert {each["value"]["name"] for each in members} == names
    etcds = machines.objects(web.name, "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Detcd")
    assert {each["spec"]["nodeName"] for each in etcds} == names
    assert all(each["status"]["containerStatuses"][0]["ready"] for each in etcds)


def upgrade(web: Workload, watch: Watch, old: RegisteredImage, new: RegisteredImage) -> None:
    """Every machine is replaced; whoever has the endpoint has a living API server, and who asks waits for the rack."""
    before = {node["metadata"]["uid"] for node in web.nodes()}
    web.upgrade(old, new)
    web.await_nodes(4, new.kubernetes, within_seconds=UPGRADE_SECONDS)
    eventually("the endpoint answers", watch.is_answered, within_seconds=60)

    assert before.isdisjoint({node["metadata"]["uid"] for node in web.nodes()})
    answers, moves = watch.answers(), watch.moves()
    assert longest_pause(answers) < PAUSE_SECONDS
    # The first holder is gone, so it has moved; no more often than there were holders to lose.
    assert 1 <= len(moves) <= 3
    assert unexcused(answers, moves) == []
    for number, move in enumerate(moves):
        assert move.writes == []
        assert set(move.between) - SHARED_READS == {"GET floating_ip_view"}
        assert silence_of(answers, move) <= move.ended - move.began + PATIENCE_SECONDS
        until = moves[number + 1].began if number + 1 < len(moves) else float("inf")
        # Between two moves one machine answers, and before it had the address another did.
        holder = machines_after(answers, move, until)
        assert len(holder) == 1
        assert holder.isdisjoint({each.machine for each in answers if each.ended < move.began})
