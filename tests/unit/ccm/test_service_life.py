"""The life of a Service's floating IP: made, shown, repaired, given up (CCM rules S1 to S11; test groups 7 to 9)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from capox.ccm.kinds import NODES, SERVICES
from capox.ccm.placement import Port
from capox.ccm.service_mark import service_description
from capox.ccm.wanted import Owner
from capox.ownership import OwnerMark, format_mark
from capox.rack import external_addresses
from tests.sim.loop import EPOCH, simulated
from tests.sim.service_world import CLUSTER_ID, FINALIZER, NAMESPACE, ServiceWorld

PERIOD_SECONDS = 170.0
"""The longest time between two looks at a Service at rest, and that of a list."""


async def served(*names: str, nodes: int = 2) -> ServiceWorld:
    """A world with some nodes and these Services, all of them served, each with a port of its own."""
    world = ServiceWorld()
    await world.add_nodes(nodes)
    world.start()
    for number, name in enumerate(names):
        world.add_service(name, f"tcp:{443 + number}")
    await world.serve(*names)
    return world


@simulated
async def test_a_service_gets_an_address_on_a_node() -> None:
    """V1, V2: the status is [floating IP as Proxy, the holder's primary address as VIP]; the mark lists the ports."""
    world = ServiceWorld()
    await world.add_nodes(2)
    world.start()
    world.add_service("web", "tcp:443", "tcp:80")

    await world.serve("web")

    assert world.has_finalizer("web")
    assert world.floating_ip("web").description.endswith("ports=tcp:80,tcp:443")
    assert "EnsuredLoadBalancer" in world.told.reasons("web")
    await world.end()


@simulated
async def test_the_finalizer_is_there_before_anything_is_made() -> None:
    """3.3: a crash right after the first call of the rack leaves nothing that nobody knows of (group 6)."""
    world = ServiceWorld()
    await world.add_nodes(1)
    made_before: list[int] = []
    world.store.subscribe(
        lambda change: (
            made_before.append(len(world.calls("floating_ip_create")))
            if change.kind == SERVICES and FINALIZER in change.document["metadata"].get("finalizers", ())
            else None
        )
    )
    world.start()
    world.add_service("web")

    await world.serve("web")

    assert made_before[0] == 0
    await world.end()


@simulated
async def test_at_rest_nothing_is_written() -> None:
    """V1, S3, S6: periodic looks send no patch and tell nothing."""
    world = await served("web")
    writes, told = world.writes.count, len(world.told.events)

    await world.pass_time(400)

    assert world.writes.count == writes
    assert {reason for _, reason, _ in world.told.events[told:]} <= {"FirewallRuleMissing"}
    await world.end()


@simulated
async def test_a_status_that_somebody_wiped_is_restored() -> None:
    """S1, S6: in one period, and at once where the watch tells."""
    world = await served("web")
    expected = world.ingress("web")

    world.store.patch(SERVICES, NAMESPACE, "web", {"status": {"loadBalancer": {"ingress": None}}}, subresource="status")

    await world.until(lambda: world.ingress("web") == expected, PERIOD_SECONDS, "the status is back")
    await world.end()


@simulated
async def test_there_and_back_again_leaves_the_right_entry() -> None:
    """S6: A, then B, a restart, and A again; the status is compared with what is stored, not with what was sent."""
    world = await served("web")
    first = world.holder("web")
    assert first is not None
    world.label_node(first, "node.kubernetes.io/exclude-from-external-load-balancers", "true")
    await world.until(lambda: world.holder("web") != first and world.is_served("web"), 60, "it has moved")
    second = world.holder("web")
    assert second is not None
    await world.crash()

    world.label_node(first, "node.kubernetes.io/exclude-from-external-load-balancers", None)
    world.label_node(second, "node.kubernetes.io/exclude-from-external-load-balancers", "true")

    await world.until(lambda: world.holder("web") == first and world.is_served("web"), 60, "it is back")
    await world.end()


class TestRemoval:
    """What happens when a Service goes, or wants no load balancer any more (S4, S5, S10, S11)."""

    @simulated
    async def test_a_deleted_service_leaves_nothing(self) -> None:
        """3.4: the floating IP is detached and deleted, then the finalizer goes."""
        world = await served("web", "other")

        world.delete_service("web")

        await world.until(lambda: world.service("web") is None, 30, "the Service is gone")
        assert [each.name for each in world.rack.state.floating_ips] == [world.floating_ip("other").name]
        assert world.is_served("other")
        assert world.told.reasons("web")[-1] == "DeletedLoadBalancer"
        await world.end()

    @simulated
    async def test_while_another_finalizer_holds_it_nothing_is_made(self) -> None:
        """S4: deletionTimestamp means cleanup or nothing, whatever event comes."""
        world = ServiceWorld()
        await world.add_nodes(1)
        world.start()
        world.add_service("web", finalizers=["example.com/audit"])
        await world.serve("web")
        world.delete_service("web")
        await world.until(lambda: not world.has_finalizer("web"), 30, "our finalizer is gone")
        writes = world.writes.count

        world.annotate("web", "floating-ip-version", "v4")
        await world.crash()
        await world.pass_time(200)

        assert not world.floating_ips_of("web")
        assert not world.has_finalizer("web")
        assert world.writes.count == writes
        await world.end()

    @simulated
    async def test_other_finalizers_are_left_alone(self) -> None:
        """S5: ours is added and taken away, and nobody else's goes with it."""
        world = ServiceWorld()
        await world.add_nodes(1)
        world.start()
        world.add_service("web", finalizers=["example.com/audit"])
        await world.serve("web")

        world.delete_service("web")

        await world.until(lambda: not world.has_finalizer("web"), 30, "our finalizer is gone")
        found = world.service("web")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["example.com/audit"]
        await world.end()

    @simulated
    async def test_a_change_of_type_gives_the_address_up(self) -> None:
        """3.4, S7: with a crash in between, and with a status that the apiserver has wiped."""
        world = await served("web")
        world.change_service("web", spec={"type": "ClusterIP"})
        world.store.patch(SERVICES, NAMESPACE, "web", {"status": {"loadBalancer": None}}, subresource="status")
        world.die_after_write(1)

        await world.until(lambda: not world.has_finalizer("web"), 120, "it is given up")

        assert world.deaths == 1
        assert not list(world.rack.state.floating_ips)
        assert world.ingress("web") == []
        await world.end()

    @simulated
    async def test_with_the_rack_away_it_waits_in_terminating(self) -> None:
        """S11: nothing is forgotten because the rack does not answer; it ends when the rack is back."""
        world = await served("web")
        world.fault("unavailable")

        world.delete_service("web")
        await world.pass_time(120)

        assert world.has_finalizer("web")
        assert world.floating_ips_of("web")
        world.rack.app.faults.clear()
        await world.until(lambda: world.service("web") is None, 90, "the Service is gone")
        assert not list(world.rack.state.floating_ips)
        await world.end()

    @simulated
    async def test_a_service_without_an_address_goes_at_once(self) -> None:
        """S4: one that was refused never got a finalizer, so nothing holds it."""
        world = ServiceWorld()
        await world.add_nodes(1)
        world.start()
        world.add_service("web", externalTrafficPolicy="Local")
        await world.pass_time(5)

        world.delete_service("web")

        assert world.service("web") is None
        await world.end()

    @simulated
    async def test_a_create_that_comes_late_is_not_left_behind(self) -> None:
        """S24: an address that appears after its Service was deleted is found before the finalizer goes."""
        world = ServiceWorld()
        await world.add_nodes(1)
        world.start()
        world.fault("slow", operation="floating_ip_create", seconds=30, times=1)
        world.add_service("web")
        await world.pass_time(3)

        world.delete_service("web")
        await world.crash()

        await world.until(lambda: world.service("web") is None, 180, "the Service is gone")
        await world.pass_time(60)
        assert not list(world.rack.state.floating_ips)
        await world.end()


class TestDrift:
    """What somebody changes by hand is put right within a period (S1; group 9)."""

    @simulated
    async def test_detached_by_hand(self) -> None:
        """It is attached again."""
        world = await served("web")
        external_addresses.detach(world.rack.state, world.floating_ip("web"))

        await world.serve("web", seconds=PERIOD_SECONDS)

        await world.end()

    @simulated
    async def test_attached_elsewhere_by_hand(self) -> None:
        """On another of our nodes it may stay, and the status follows; it is not fought over."""
        world = await served("web")
        floating_ip = world.floating_ip("web")
        other = next(name for name in ("node-1", "node-2") if name != world.holder("web"))
        external_addresses.detach(world.rack.state, floating_ip)
        external_addresses.attach(world.rack.state, floating_ip, world.instance(other))

        await world.serve("web", seconds=PERIOD_SECONDS)

        assert world.holder("web") == other
        await world.end()

    @simulated
    async def test_attached_to_a_stranger_by_hand(self) -> None:
        """An instance that is no Node of ours does not keep it."""
        world = await served("web")
        await world.add_node("stranger")
        world.store.delete(NODES, "", "stranger")
        floating_ip = world.floating_ip("web")
        external_addresses.detach(world.rack.state, floating_ip)
        external_addresses.attach(world.rack.state, floating_ip, world.instance("stranger"))

        await world.until(
            lambda: world.holder("web") != "stranger" and world.is_served("web"), PERIOD_SECONDS, "it is back"
        )

        await world.end()

    @simulated
    async def test_deleted_by_hand(self) -> None:
        """There is a new one; the old address is lost, which nobody can help."""
        world = await served("web")
        floating_ip = world.floating_ip("web")
        external_addresses.detach(world.rack.state, floating_ip)
        await world.ask(204, "DELETE", f"/v1/floating-ips/{floating_ip.id}")

        await world.serve("web", seconds=PERIOD_SECONDS)

        await world.end()

    @simulated
    async def test_a_mark_written_over_by_hand_is_restored(self) -> None:
        """No address is lost because somebody tidied descriptions up: name and status still tell whose it is."""
        world = await served("web")
        address = world.floating_ip("web").ip
        world.floating_ip("web").description = "our web site"

        await world.until(lambda: bool(world.floating_ips_of("web")), PERIOD_SECONDS, "the mark is back")

        assert world.floating_ip("web").ip == address
        assert len(list(world.rack.state.floating_ips)) == 1
        await world.end()

    @simulated
    async def test_a_primary_address_that_changed_is_followed(self) -> None:
        """S14: the VIP entry is that of the holder's primary interface as it is now."""
        world = await served("web", nodes=1)
        instance = world.instance("node-1")
        interface = next(each for each in world.rack.state.network_interfaces if each.instance == instance.id)
        assert interface.ipv4 is not None
        interface.ipv4 = interface.ipv4 + 40
        instance.time_run_state_updated = world.rack.state.now()

        await world.serve("web", seconds=PERIOD_SECONDS)

        await world.end()

    @simulated
    async def test_marks_of_others_are_left_alone(self) -> None:
        """S8, V9: another cluster's with the same Service UID, and another UID's, are neither taken nor deleted."""
        world = await served("web")
        found = world.service("web")
        assert found is not None
        own = Owner(NAMESPACE, "web", found["metadata"]["uid"], EPOCH)
        ports = [Port("TCP", 443)]
        strangers = [
            service_description(own, "another-cluster", ports)[0],
            service_description(dataclasses.replace(own, uid="another-uid"), CLUSTER_ID, ports)[0],
            format_mark(OwnerMark(kind="OxideCluster", namespace="x", name="y", uid=own.uid, cluster_id=CLUSTER_ID)),
        ]
        made = [await _make(world, f"stranger-{number}", text) for number, text in enumerate(strangers)]

        world.delete_service("web")
        await world.until(lambda: world.service("web") is None, 60, "the Service is gone")

        left = {each.name: each.description for each in world.rack.state.floating_ips}
        assert left == {each["name"]: each["description"] for each in made}
        await world.end()


async def _make(world: ServiceWorld, name: str, description: str = "", **allocator: Any) -> dict[str, Any]:
    """A floating IP that somebody made by hand."""
    body = {
        "name": name,
        "description": description,
        "address_allocator": allocator or {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}},
    }
    made: dict[str, Any] = await world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
    return made


@pytest.mark.parametrize("step", range(1, 9))
def test_killed_after_any_write_of_a_life(step: int) -> None:
    """Group 6: killed after any single write of create, move and delete, it converges: one address, then none."""

    async def life() -> None:
        """Live the whole life."""
        world = ServiceWorld(step)
        await world.add_nodes(2)
        world.start()
        for chapter in ("create", "move", "delete"):
            deaths = world.deaths
            world.die_after_write(step)
            if chapter == "create":
                world.add_service("web", "tcp:443")
                await world.serve("web", seconds=120)
            elif chapter == "move":
                holder = world.holder("web")
                assert holder is not None
                await world.ask(202, "POST", f"/v1/instances/{world.instance(holder).id}/stop")
                await world.until(
                    lambda before=holder: world.holder("web") != before and world.is_served("web"),  # type: ignore[misc]
                    180,
                    "it has moved",
                )
            else:
                world.delete_service("web")
                await world.until(lambda: world.service("web") is None, 240, "it is gone")
                assert not list(world.rack.state.floating_ips)
            assert world.deaths - deaths == (1 if world.writes.count >= world.writes.deadly else 0)
        assert world.deaths > 0 or step > 4
        await world.end()

    from tests.sim.loop import simulate  # noqa: PLC0415 -- beside its only use

    simulate(life, seed=step)


@simulated
async def test_rest_costs_four_calls_a_minute() -> None:
    """The lists are shared and everything else is remembered; a list counts once, with the empty page that ends it."""
    world = await served(*(f"web-{number}" for number in range(12)), nodes=20)
    await world.pass_time(60)
    before = len(world.rack.app.log)
    minutes = 20
    await world.pass_time(60 * minutes)

    begun = [call for call in world.rack.app.log.entries()[before:] if "page_token=" not in call.query]
    assert len(begun) <= 4 * minutes
    assert {call.operation for call in begun} >= {"instance_list", "floating_ip_list"}
    await world.end()


@simulated
async def test_without_services_the_rack_is_not_asked() -> None:
    """Nodes alone are watched by Kubernetes."""
    world = ServiceWorld()
    await world.add_nodes(3)
    world.start()
    before = len(world.rack.app.log)
    await world.pass_time(300)

    assert len(world.rack.app.log) == before
    await world.end()
