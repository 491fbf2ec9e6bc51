"""Where an address goes when its node fails, and when it stays (CCM rules S12 to S15, S25, V7, V8; groups 10, 13)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.ccm.kinds import NODES
from capox.rack import instance_states
from tests.sim.loop import simulated
from tests.sim.service_world import EXCLUDE, ServiceWorld


async def world_with_holder(nodes: int = 3) -> tuple[ServiceWorld, str]:
    """A world with one served Service, and the name of the node that has its address."""
    world = ServiceWorld()
    await world.add_nodes(nodes)
    world.start()
    world.add_service("web", "tcp:443")
    await world.serve("web")
    holder = world.holder("web")
    assert holder is not None
    return world, holder


async def expect_move(world: ServiceWorld, holder: str, seconds: float) -> None:
    """The address moves, once, and the status follows."""
    attaches = len(world.calls("floating_ip_attach"))
    await world.until(lambda: world.holder("web") not in (None, holder) and world.is_served("web"), seconds, "a move")
    await world.pass_time(200)
    assert world.holder("web") != holder
    assert len(world.calls("floating_ip_attach")) == attaches + 1


async def expect_no_move(world: ServiceWorld, holder: str, seconds: float = 200) -> None:
    """The address stays, attached and shown, all the time."""
    attaches = len(world.calls("floating_ip_attach", "floating_ip_detach"))
    await world.pass_time(seconds)
    assert world.holder("web") == holder
    assert len(world.calls("floating_ip_attach", "floating_ip_detach")) == attaches


class TestMoves:
    """Reasons to move."""

    @pytest.mark.parametrize("status", ["Unknown", "False"])
    def test_not_ready_for_too_long(self, status: str) -> None:
        """S13: after the grace, not before."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world, holder = await world_with_holder()
            world.set_ready(holder, status)
            await expect_no_move(world, holder, 28)
            await expect_move(world, holder, 20)
            await world.end()

        story()

    @simulated
    async def test_not_ready_for_a_moment(self) -> None:
        """S13: a node that comes back within the grace keeps its address."""
        world, holder = await world_with_holder()
        world.set_ready(holder, "Unknown")
        await world.pass_time(20)
        world.set_ready(holder, "True")

        await expect_no_move(world, holder)

        await world.end()

    @simulated
    async def test_instance_stopped(self) -> None:
        """S13, S14: seen at the rack, without waiting for Kubernetes to notice or for the Service's own turn."""
        world, holder = await world_with_holder()
        await world.ask(202, "POST", f"/v1/instances/{world.instance(holder).id}/stop")

        await expect_move(world, holder, 45)

        await world.end()

    @simulated
    async def test_instance_gone(self) -> None:
        """The rack has detached the address itself."""
        world, holder = await world_with_holder()
        instance = world.instance(holder).id
        await world.ask(202, "POST", f"/v1/instances/{instance}/stop")
        await world.pass_time(4)
        await world.ask(204, "DELETE", f"/v1/instances/{instance}")

        await world.until(lambda: world.holder("web") is not None and world.is_served("web"), 120, "it is elsewhere")

        await world.end()

    @pytest.mark.parametrize(("value", "is_excluded"), [("true", True), ("", True), ("no", True), ("false", False)])
    def test_excluded_by_label(self, value: str, is_excluded: bool) -> None:
        """3.5: every value but Go's false keeps a node out."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world, holder = await world_with_holder()
            world.label_node(holder, EXCLUDE, value)
            if is_excluded:
                await expect_move(world, holder, 20)
            else:
                await expect_no_move(world, holder)
            await world.end()

        story()

    @pytest.mark.parametrize(
        "taint",
        [
            "ToBeDeletedByClusterAutoscaler",
            "node.cloudprovider.kubernetes.io/shutdown",
            "node.kubernetes.io/out-of-service",
        ],
    )
    def test_tainted_as_leaving(self, taint: str) -> None:
        """S12: the taints of a Node that goes."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world, holder = await world_with_holder()
            world.taint_node(holder, taint)
            await expect_move(world, holder, 20)
            await world.end()

        story()

    @simulated
    async def test_node_being_deleted(self) -> None:
        """3.5: a Node with a deletionTimestamp."""
        world, holder = await world_with_holder()
        world.store.patch(NODES, "", holder, {"metadata": {"finalizers": ["example.com/drain"]}})
        world.store.delete(NODES, "", holder)

        await expect_move(world, holder, 20)

        await world.end()

    @simulated
    async def test_node_object_gone(self) -> None:
        """S14: the instance runs on, but it is no Node any more."""
        world, holder = await world_with_holder()
        world.store.delete(NODES, "", holder)

        await expect_move(world, holder, 20)

        await world.end()


class TestStays:
    """Reasons to stay."""

    @simulated
    async def test_all_nodes_not_ready(self) -> None:
        """S13: then it is the apiserver or the network, and nothing is let go."""
        world, holder = await world_with_holder()
        for name in ("node-1", "node-2", "node-3"):
            world.set_ready(name, "Unknown")

        await expect_no_move(world, holder, 400)

        assert world.is_served("web")
        await world.end()

    @simulated
    async def test_the_old_holder_comes_back(self) -> None:
        """S13: nothing moves back by itself."""
        world, first = await world_with_holder()
        world.set_ready(first, "Unknown")
        await expect_move(world, first, 60)
        second = world.holder("web")
        assert second is not None

        world.set_ready(first, "True")

        await expect_no_move(world, second)
        await world.end()

    @simulated
    async def test_a_restart_moves_nothing(self) -> None:
        """S25: the placement is read from the rack, not from memory."""
        world, holder = await world_with_holder(5)
        await world.add_node("a-new-node")

        await world.crash()

        await expect_no_move(world, holder)
        await world.end()

    @simulated
    async def test_there_is_nobody_else(self) -> None:
        """A node that works badly is better than none; people are told."""
        world, holder = await world_with_holder(1)
        world.set_ready(holder, "Unknown")

        await expect_no_move(world, holder, 300)

        assert "UnAvailableLoadBalancer" in world.told.reasons("web")
        await world.end()

    @simulated
    async def test_reboot(self) -> None:
        """S12: a rebooting instance keeps its address; it is back before anything would be gained."""
        world, holder = await world_with_holder()
        await world.ask(202, "POST", f"/v1/instances/{world.instance(holder).id}/reboot")

        await expect_no_move(world, holder)

        await world.end()


class TestNoNodes:
    """A cluster with nobody to carry an address (3.3, 3.5)."""

    @simulated
    async def test_the_address_waits_and_is_shown(self) -> None:
        """3.5: without nodes the floating IP is kept and shown alone; the first node gets it."""
        world = ServiceWorld()
        world.start()
        world.add_service("web", "tcp:443")
        await world.until(lambda: bool(world.ingress("web")), 30, "the address is shown")
        assert world.ingress("web") == [{"ip": str(world.floating_ip("web").ip), "ipMode": "Proxy"}]
        assert "UnAvailableLoadBalancer" in world.told.reasons("web")

        await world.add_node("node-1")

        await world.serve("web", seconds=20)
        await world.end()

    @simulated
    async def test_excluding_the_only_node(self) -> None:
        """3.5: excluded is excluded, also where nobody else is; the address is kept."""
        world, holder = await world_with_holder(1)
        address = str(world.floating_ip("web").ip)
        world.label_node(holder, EXCLUDE, "true")

        await world.until(lambda: world.holder("web") is None, 30, "it is detached")
        await world.until(lambda: world.ingress("web") == [{"ip": address, "ipMode": "Proxy"}], 30, "status")

        world.label_node(holder, EXCLUDE, None)
        await world.serve("web", seconds=30)
        assert str(world.floating_ip("web").ip) == address
        await world.end()

    @simulated
    async def test_nodes_that_cannot_be_read_harm_nobody(self) -> None:
        """S17: no providerID, and somebody else's."""
        world = ServiceWorld()
        for name, provider_id in (("a-bare", ""), ("b-foreign", "aws:///eu/i-1")):
            document = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "spec": {"providerID": provider_id},
            }
            world.store.create(NODES, "", document)
        await world.add_nodes(1)
        world.start()
        world.add_service("web")

        await world.serve("web")

        await world.end()

    @simulated
    async def test_new_nodes_get_nothing_before_they_are_initialised(self) -> None:
        """S12: the uninitialized taint."""
        world = ServiceWorld()
        await world.add_node("node-1")
        world.taint_node("node-1", "node.cloudprovider.kubernetes.io/uninitialized")
        world.start()
        world.add_service("web")
        await world.pass_time(60)
        assert world.holder("web") is None

        world.taint_node("node-1")

        await world.serve("web", seconds=20)
        await world.end()


class TestOrder:
    """The order of a move (V7), and who may carry it out (R1, R9)."""

    @simulated
    async def test_the_status_names_the_new_node_before_the_old_one_lets_go(self) -> None:
        """V7: {FIP}, {old}, {new} comes before the detach when the old holder lives."""
        world, holder = await world_with_holder()
        old, address = world.private_addresses(holder)[0], str(world.floating_ip("web").ip)
        attached: list[tuple[str | None, list[Any]]] = []
        world.store.subscribe(lambda _: attached.append((world.holder("web"), world.ingress("web"))))
        world.label_node(holder, EXCLUDE, "true")

        await expect_move(world, holder, 20)

        new = world.private_addresses(world.holder("web") or "")[0]
        during = [
            {"ip": address, "ipMode": "Proxy"},
            {"ip": old, "ipMode": "VIP"},
            {"ip": new, "ipMode": "VIP"},
        ]
        assert (holder, during) in attached
        assert world.ingress("web") == [during[0], during[2]]
        await world.end()

    @simulated
    async def test_a_dead_holder_is_not_shown_any_more(self) -> None:
        """V7: the old VIP is skipped, so that its address is not captured on every node for nothing."""
        world, holder = await world_with_holder()
        old = world.private_addresses(holder)[0]
        await world.ask(202, "POST", f"/v1/instances/{world.instance(holder).id}/stop")
        await expect_move(world, holder, 120)

        both = [each for each in world.published["web"] if old in str(each) and len(each) > 2]

        assert not both
        await world.end()

    @simulated
    async def test_a_failed_holder_cannot_let_go(self) -> None:
        """V8: it is told with the cause, the status stays true, and it moves when the instance is stopped."""
        world, holder = await world_with_holder()
        instance_states.fail(world.rack.state, world.instance(holder))
        world.set_ready(holder, "Unknown")
        await world.until(lambda: "FailoverBlocked" in world.told.reasons("web"), 120, "it is told")
        await world.pass_time(60)
        assert world.holder("web") == holder
        assert world.is_served("web")
        assert len(world.told.messages("web", "FailoverBlocked")) == 1

        await world.ask(202, "POST", f"/v1/instances/{world.instance(holder).id}/stop")

        await expect_move(world, holder, 60)
        await world.end()

    @simulated
    async def test_who_lost_the_lease_writes_nothing_more(self) -> None:
        """R1: lost in the middle of a move, the loser makes no further call; its successor finishes."""
        world, holder = await world_with_holder()
        world.label_node(holder, EXCLUDE, "true")
        await world.until(lambda: bool(world.calls("floating_ip_detach")), 30, "it is detached")
        process = world.process
        assert process is not None
        process.is_leading = False
        await world.pass_time(2)
        writes = world.writes.count

        await world.pass_time(120)

        assert world.writes.count == writes
        await world.crash()
        await world.serve("web", seconds=30)
        assert world.holder("web") != holder
        await world.end()

    @simulated
    async def test_nothing_is_concluded_before_everything_is_known(self) -> None:
        """R9: a list of Nodes that does not come is not an empty one."""
        world, holder = await world_with_holder()
        await world.kill()
        world.start(unlisted="nodes")

        await expect_no_move(world, holder, 200)

        await world.end()

    @simulated
    async def test_two_moves_at_once_meet_nowhere(self) -> None:
        """S15: two Services with one port lose their node at once and go to different ones."""
        world = ServiceWorld()
        await world.add_nodes(4)
        world.start()
        world.add_service("web", "tcp:443")
        world.add_service("api", "tcp:443")
        await world.serve("web", "api")
        for name in {world.holder("web"), world.holder("api")}:
            assert name is not None
            world.set_ready(name, "Unknown")

        await world.pass_time(60)

        assert world.is_served("web")
        assert world.is_served("api")
        assert world.holder("web") != world.holder("api")
        await world.end()
