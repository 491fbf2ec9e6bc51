"""What becomes of Nodes whose kubelets are silent or whose instances are gone (CCM test groups 4, 5 and 13)."""

from __future__ import annotations

import dataclasses

import pytest

from capox.ccm.kinds import NODES
from capox.ccm.node_marks import SHUTDOWN_TAINT
from tests.sim.loop import simulated
from tests.sim.node_world import NodeWorld
from tests.sim.store_client import Call

GRACE_SECONDS = 120.0
"""By when a Node is deleted for which all is proven: 40 s of a silent kubelet, and a few looks."""


async def world_of(count: int, **options: object) -> NodeWorld:
    """A world with so many Nodes, `node-0` and so on, all Ready."""
    world = NodeWorld(**options)  # type: ignore[arg-type]  # whatever a world takes
    for number in range(count):
        await world.join(f"node-{number}")
    return world


async def lose(world: NodeWorld, *names: str) -> None:
    """Delete instances, and have their kubelets' silence noticed."""
    for name in names:
        await world.delete_instance(name)
    for name in names:
        world.silence(name)


def deletions(world: NodeWorld) -> list[str]:
    """The Nodes that the process has asked to be deleted."""
    return [name for _, _, name in world.writes("delete")]


@simulated
async def test_a_node_of_an_absent_instance_is_deleted_once() -> None:
    """L1, L4, L9: with the whole proof there is one DELETE, after whoever cares for floating IPs was told."""
    world = await world_of(3)
    await lose(world, "node-1")
    await world.until(lambda: world.node("node-1") is None, GRACE_SECONDS, "it is deleted")
    await world.pass_time(60)

    assert deletions(world) == ["node-1"]
    assert world.process is not None
    assert world.process.gone == ["node-1"]
    assert "DeletingNode" in world.told.reasons("node-1")
    assert world.process.registry.value("capox_node_deletions_total", result="success") == 1
    await world.end()


@simulated
async def test_a_ready_node_is_never_deleted() -> None:
    """2.1, group 4: whatever the rack says of its instance."""
    world = await world_of(3)
    await world.ask(202, "POST", "/v1/instances/node-1/stop?project=demo")
    await world.pass_time(2)
    await world.ask(204, "DELETE", "/v1/instances/node-1?project=demo")
    await world.pass_time(1500)

    assert deletions(world) == []
    assert world.taints("node-1") == []
    await world.end()


@simulated
async def test_a_kubelet_that_renews_its_lease_keeps_its_node() -> None:
    """L1, group 4: a Node that is not Ready and whose kubelet lives stays, and it is told why."""
    world = await world_of(3)
    await world.delete_instance("node-1")
    world.revive("node-1")
    world.set_ready("node-1", "False")
    await world.pass_time(1500)

    assert deletions(world) == []
    assert "InstanceNotFound" in world.told.reasons("node-1")
    await world.end()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "unauthorized"},
        {"kind": "not_found_page", "operation": "instance_view"},
        {"kind": "unavailable", "operation": "instance_view"},
        {"kind": "internal_error", "operation": "instance_view"},
        {"kind": "lost_request", "operation": "instance_view"},
        {"kind": "lost_reply", "operation": "instance_list"},
        {"kind": "slow", "seconds": 60, "operation": "instance_view"},
        {"kind": "hidden", "operation": "project_view"},
        {"kind": "hidden", "operation": "instance_list"},
        {"kind": "not_found_page", "operation": "project_view"},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_nothing_but_the_whole_proof_deletes(fault: dict[str, object]) -> None:
    """L3, group 4: a Node stays as long as one part of the proof is an error; when it is not, it goes."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(3)
        await lose(world, "node-1")
        world.fault(**fault)  # type: ignore[arg-type]  # as the rack takes it
        await world.pass_time(400)
        assert deletions(world) == []

        world.rack.app.faults.clear()
        await world.until(lambda: world.node("node-1") is None, 300, "it is deleted")
        assert deletions(world) == ["node-1"]
        await world.end()

    story()


@simulated
async def test_another_project_deletes_nothing() -> None:
    """L1, group 5: an instance that is not in the wrong project's list, and is there all the same, is not absent."""
    world = await world_of(4)
    await world.ask(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    world.credentials = dataclasses.replace(world.credentials, project="other")
    world.silence("node-1")
    await world.pass_time(700)

    assert deletions(world) == []
    await world.end()


@simulated
async def test_all_nodes_at_once_delete_nothing() -> None:
    """L2, group 5: with all instances gone there is no anchor, and whoever looks is told."""
    world = await world_of(5)
    await lose(world, *(f"node-{number}" for number in range(5)))
    await world.pass_time(1500)

    assert deletions(world) == []
    assert "NodeDeletionHeld" in world.told.reasons("node-1")
    assert world.process is not None
    assert world.process.registry.value("capox_node_deletions_held") == 5
    await world.end()


@simulated
async def test_many_nodes_at_once_wait_longer() -> None:
    """L2, group 5: 3 of 5 go after ten minutes, and not before; it is told that they are held."""
    world = await world_of(5)
    await lose(world, "node-0", "node-1", "node-2")
    await world.pass_time(590)
    assert deletions(world) == []
    assert "NodeDeletionHeld" in world.told.reasons("node-0")

    await world.until(lambda: len(deletions(world)) == 3, 120, "they are deleted")
    assert {document["metadata"]["name"] for document in world.store.list(NODES, None)} == {"node-3", "node-4"}
    await world.end()


@simulated
async def test_drop_by_drop_is_many_too() -> None:
    """L2: Nodes that go one after the other are counted together."""
    world = await world_of(9)
    for number in range(5):
        await lose(world, f"node-{number}")
        await world.pass_time(100)

    assert len(deletions(world)) == 3
    await world.end()


@simulated
async def test_a_control_plane_node_has_more_time() -> None:
    """2.3: a Node of the control plane is deleted after five minutes, not after one."""
    world = await world_of(3)
    await world.join("control-plane", labels={"node-role.kubernetes.io/control-plane": ""})
    await lose(world, "control-plane")
    await world.pass_time(280)
    assert deletions(world) == []

    await world.until(lambda: deletions(world) == ["control-plane"], 120, "it is deleted")
    await world.end()


class Successor:
    """Weather in which the Node is deleted by somebody else, and made again, right before the process deletes it."""

    def __init__(self) -> None:
        self.world: NodeWorld | None = None
        self.uid = ""

    async def before(self, call: Call) -> None:
        """Exchange the Node."""
        if call.verb == "delete" and self.world is not None and not self.uid:
            self.world.store.delete(NODES, "", call.name)
            self.world.register(call.name, taints=(), is_ready=False)
            document = self.world.node(call.name)
            assert document is not None
            self.uid = document["metadata"]["uid"]

    async def after(self, call: Call) -> None:
        """Nothing happens."""


@simulated
async def test_a_successor_of_the_same_name_survives() -> None:
    """L4, group 5: the Node that was made again between decision and DELETE is another one."""
    weather = Successor()
    world = await world_of(3, weather=weather)
    weather.world = world
    await lose(world, "node-1")
    await world.until(lambda: bool(weather.uid), GRACE_SECONDS, "somebody has made it again")
    await world.pass_time(600)

    document = world.node("node-1")
    assert document is not None
    assert document["metadata"]["uid"] == weather.uid
    await world.end()


@simulated
async def test_nodes_that_are_not_ours_stay() -> None:
    """L5, N10: without a providerID, with a foreign one, or never initialised, nothing is proven by an absence."""
    world = await world_of(3)
    absent = "oxide://0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c00"
    world.register("none", taints=(), is_ready=False)
    world.register("foreign", taints=(), provider_id="aws:///eu/i-1", is_ready=False)
    world.register("new", provider_id=absent, is_ready=False)
    for name in ("none", "foreign", "new"):
        world.silence(name)
    await world.pass_time(700)

    assert deletions(world) == []
    await world.end()


@simulated
async def test_a_stopped_instance_gives_a_taint_until_the_node_is_ready() -> None:
    """L6, L8, group 5: the taint comes beside others, and goes when the kubelet is well again."""
    world = await world_of(2)
    await world.stop_instance("node-1")
    world.silence("node-1")
    world.store.patch(
        NODES, "", "node-1", {"spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": None}]}}
    )
    await world.until(lambda: SHUTDOWN_TAINT in world.taints("node-1"), 60, "it is tainted")
    assert world.taints("node-1") == ["a", SHUTDOWN_TAINT]
    document = world.node("node-1")
    assert document is not None
    assert document["spec"]["taints"][1] == {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}

    await world.start_instance("node-1")
    await world.pass_time(300)
    assert SHUTDOWN_TAINT in world.taints("node-1")
    world.revive("node-1")
    world.set_ready("node-1")
    await world.until(lambda: world.taints("node-1") == ["a"], 30, "the taint is gone")
    assert deletions(world) == []
    await world.end()


@pytest.mark.parametrize("state", ["failed", "migrating", "starting", "rebooting", "repairing", "stopping", "running"])
def test_other_states_change_nothing(state: str) -> None:
    """L6, group 5: the instance exists, so the Node is neither tainted nor deleted."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = await world_of(2)
        world.instance("node-1").state = state  # type: ignore[assignment]  # one of the rack's
        world.silence("node-1")
        await world.pass_time(900)

        assert world.taints("node-1") == []
        assert deletions(world) == []
        await world.end()

    story()


@simulated
async def test_silence_is_cheap_when_it_lasts() -> None:
    """L7: a Node whose stopped instance stays stopped costs lists at the pace of rest, and one write in all."""
    world = await world_of(3)
    await world.stop_instance("node-1")
    world.silence("node-1")
    await world.pass_time(400)
    began, writes = len(world.calls()), len(world.writes())
    await world.pass_time(1200)

    assert len(world.writes()) == writes
    assert len(world.calls("instance_view")) == 0
    # A list is two calls: the page, and the empty one behind it.
    assert (len(world.calls()) - began) / 20 <= 2 * 4
    await world.end()


@simulated
async def test_at_rest_the_rack_is_not_asked() -> None:
    """5.1: while all kubelets are well the lifecycle controller asks neither the rack nor Kubernetes anything."""
    world = await world_of(3)
    await world.pass_time(100)
    assert world.process is not None
    calls, asked = len(world.process.kube.calls), len(world.calls())
    await world.pass_time(150)

    assert len(world.process.kube.calls) == calls
    assert len(world.calls()) == asked
    await world.end()


@simulated
async def test_a_lost_lease_ends_all_writes() -> None:
    """R1, group 13: the loser neither taints nor deletes."""
    world = await world_of(4)
    assert world.process is not None
    world.process.is_leading = False
    await world.stop_instance("node-2")
    world.silence("node-2")
    await lose(world, "node-1")
    before = len(world.writes())
    await world.pass_time(300)

    assert len(world.writes()) == before
    await world.end()


@simulated
async def test_nothing_is_left_on_nodes_that_would_hold_them() -> None:
    """R8, group 13: with the process gone a Node can be deleted at once: it has no finalizer or annotation of ours."""
    world = await world_of(1)
    assert world.process is not None
    await world.process.kill()
    world.process = None
    document = world.node("node-0")
    assert document is not None
    assert not document["metadata"].get("finalizers")
    assert not document["metadata"].get("annotations")
    world.store.delete(NODES, "", "node-0")

    assert world.node("node-0") is None
    await world.end()
