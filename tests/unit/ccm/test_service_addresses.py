"""Which address a Service gets: by annotation, by family, brought, kept, changed, taken over (S18 to S22, V9, V10)."""

from __future__ import annotations

from typing import Any

import pytest

from capox.ccm.kinds import NODES, SERVICES
from capox.ccm.service_mark import GO_DESCRIPTION
from capox.rack import external_addresses
from tests.sim.loop import simulated
from tests.sim.service_world import NAMESPACE, ServiceWorld

DUAL: Any = {"ipFamilies": ["IPv4", "IPv6"]}


async def world_of(nodes: int = 2) -> ServiceWorld:
    """A world with some nodes and a running controller."""
    world = ServiceWorld()
    await world.add_nodes(nodes)
    world.start()
    return world


async def make(world: ServiceWorld, name: str, *, description: str = "mine", ip: str = "198.51.100.40") -> Any:
    """A floating IP that somebody made by hand."""
    allocator = {"type": "explicit", "ip": ip}
    body = {"name": name, "description": description, "address_allocator": allocator}
    made = await world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
    return world.rack.state.floating_ips.by_id(made["id"])


def shown(world: ServiceWorld, name: str) -> list[str]:
    """The addresses from outside that a Service's status has."""
    return [each["ip"] for each in world.ingress(name) if each["ipMode"] == "Proxy"]


@simulated
async def test_an_address_that_is_asked_for_is_made() -> None:
    """S19: in whatever spelling; it is ours, and goes with the Service."""
    world = await world_of()
    world.add_service("web", annotations={"oxide.computer/floating-ip": "198.51.100.33"})
    world.add_service("six", ipFamilies=["IPv6"], annotations={"oxide.computer/floating-ip": "2001:DB8:0::000a"})

    await world.serve("web")
    await world.until(lambda: shown(world, "six") == ["2001:db8::a"], 30, "the IPv6 address is served")
    writes = world.writes.count
    await world.pass_time(300)
    assert world.writes.count == writes

    world.delete_service("web")
    world.delete_service("six")
    await world.until(lambda: not list(world.rack.state.floating_ips), 60, "both are gone")
    await world.end()


@simulated
async def test_load_balancer_ip_is_honoured() -> None:
    """S18: the deprecated field means an explicit address where no annotation does."""
    world = await world_of()
    world.add_service("web", loadBalancerIP="198.51.100.34")

    await world.serve("web")

    assert shown(world, "web") == ["198.51.100.34"]
    await world.end()


@simulated
async def test_version_and_pool() -> None:
    """The annotations -version and -pool choose where an address comes from."""
    world = await world_of()
    world.add_service("six", annotations={"oxide.computer/floating-ip-version": "v6"}, **DUAL)
    world.add_service("pool", "tcp:81", annotations={"oxide.computer/floating-ip-pool": "public-v6"}, **DUAL)

    await world.until(lambda: bool(shown(world, "six") and shown(world, "pool")), 40, "both are served")

    assert all(":" in shown(world, name)[0] for name in ("six", "pool"))
    assert all(len(world.ingress(name)) == 2 for name in ("six", "pool"))
    await world.end()


@simulated
async def test_a_pool_that_is_not_there() -> None:
    """S23: told, and nothing made."""
    world = await world_of()
    world.add_service("web", annotations={"oxide.computer/floating-ip-pool": "nowhere"})
    await world.pass_time(20)

    assert "PoolNotFound" in world.told.reasons("web")
    assert not list(world.rack.state.floating_ips)
    await world.end()


class TestFamilies:
    """S21: a floating IP has one family."""

    @pytest.mark.parametrize("policy", ["RequireDualStack", "PreferDualStack"])
    def test_two_families(self, policy: str) -> None:
        """Two addresses, each with the entry of its holder's address of that family; floating IPs first (V2)."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world = await world_of()
            world.add_service("web", ipFamilyPolicy=policy, **DUAL)
            await world.until(lambda: len(world.ingress("web")) == 4, 40, "four entries")
            four, six = sorted(world.floating_ips_of("web"), key=lambda each: each.ip.version)
            assert world.ingress("web") == [
                {"ip": str(four.ip), "ipMode": "Proxy"},
                {"ip": str(six.ip), "ipMode": "Proxy"},
                {"ip": world.private_addresses(world.holder_of(four) or "")[0], "ipMode": "VIP"},
                {"ip": world.private_addresses(world.holder_of(six) or "")[1], "ipMode": "VIP"},
            ]
            world.delete_service("web")
            await world.until(lambda: not list(world.rack.state.floating_ips), 60, "both are gone")
            await world.end()

        story()

    @simulated
    async def test_the_second_family_is_a_wish_only(self) -> None:
        """PreferDualStack: without an IPv6 pool the Service is served by IPv4, and people are told."""
        world = await world_of()
        world.fault("pool_exhausted", object="public-v6")
        world.add_service("web", ipFamilyPolicy="PreferDualStack", **DUAL)

        await world.until(lambda: len(world.ingress("web")) == 2, 40, "one family is served")

        assert "AddressNotAvailable" in world.told.reasons("web")
        await world.end()


class TestBrought:
    """S22: a floating IP that the user brings is attached and detached, never changed or deleted."""

    @pytest.mark.parametrize("reference", ["198.51.100.40", "brought", "id"])
    def test_brought(self, reference: str) -> None:
        """By address, name or id; at the end it is as it was."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world = await world_of()
            floating_ip = await make(world, "brought")
            named = floating_ip.id if reference == "id" else reference
            world.add_service("web", "tcp:443", annotations={"oxide.computer/floating-ip": named})
            await world.until(lambda: shown(world, "web") == ["198.51.100.40"], 40, "it is served")
            assert world.holder_of(floating_ip) is not None
            assert floating_ip.description == "mine"
            await world.crash()
            world.delete_service("web")
            await world.until(lambda: world.service("web") is None, 60, "the Service is gone")
            assert floating_ip.instance is None
            assert [each.name for each in world.rack.state.floating_ips] == ["brought"]
            assert floating_ip.description == "mine"
            await world.end()

        story()

    @simulated
    async def test_one_that_somebody_uses_is_not_taken(self) -> None:
        """An instance that is no Node keeps its address; the Service is told why it has none."""
        world = await world_of()
        await world.add_node("stranger")
        world.store.delete(NODES, "", "stranger")
        floating_ip = await make(world, "brought")
        external_addresses.attach(world.rack.state, floating_ip, world.instance("stranger"))
        world.add_service("web", annotations={"oxide.computer/floating-ip": "brought"})
        await world.pass_time(40)

        assert world.holder_of(floating_ip) == "stranger"
        assert "AddressInUse" in world.told.reasons("web")
        assert world.ingress("web") == []
        await world.end()

    @simulated
    async def test_another_services_is_not_taken(self) -> None:
        """A mark of somebody else."""
        world = await world_of()
        world.add_service("first")
        await world.serve("first")
        address = shown(world, "first")[0]
        world.add_service("second", "tcp:81", annotations={"oxide.computer/floating-ip": address})
        await world.pass_time(40)

        assert "AddressInUse" in world.told.reasons("second")
        assert world.is_served("first")
        await world.end()

    @simulated
    async def test_two_services_name_one(self) -> None:
        """The first one keeps it, whatever the order after a restart; it never goes back and forth."""
        world = await world_of()
        await make(world, "brought")
        world.add_service("second", annotations={"oxide.computer/floating-ip": "brought"})
        await world.until(lambda: bool(shown(world, "second")), 40, "it is served")
        world.add_service("first", "tcp:81", annotations={"oxide.computer/floating-ip": "198.51.100.40"})
        await world.crash()
        calls = len(world.calls("floating_ip_attach", "floating_ip_detach"))
        await world.pass_time(200)

        assert "AddressInUse" in world.told.reasons("first")
        assert len(world.calls("floating_ip_attach", "floating_ip_detach")) == calls
        world.delete_service("second")
        await world.until(lambda: bool(shown(world, "first")), 400, "the next one has it")
        await world.end()

    @simulated
    async def test_ports_of_brought_ones_count(self) -> None:
        """4.4: one without a mark takes its ports of its node too."""
        world = await world_of()
        floating_ip = await make(world, "brought")
        world.add_service("web", "tcp:443", annotations={"oxide.computer/floating-ip": "brought"})
        await world.until(lambda: bool(shown(world, "web")), 40, "it is served")
        world.add_service("api", "tcp:443")

        await world.serve("api")

        assert world.holder("api") != world.holder_of(floating_ip)
        await world.end()

    @simulated
    async def test_one_that_is_not_there(self) -> None:
        """A name that nobody bears is told, not made up."""
        world = await world_of()
        world.add_service("web", annotations={"oxide.computer/floating-ip": "nowhere"})
        await world.pass_time(20)
        assert "FloatingIPNotFound" in world.told.reasons("web")

        await make(world, "nowhere")

        await world.until(lambda: bool(shown(world, "web")), 400, "it is served")
        await world.end()


class TestReclaim:
    """What becomes of an address when its Service goes."""

    @simulated
    async def test_retain(self) -> None:
        """It is detached and nobody's; a new Service can name it."""
        world = await world_of()
        world.add_service("web", annotations={"oxide.computer/floating-ip-reclaim": "Retain"})
        await world.serve("web")
        floating_ip = world.floating_ip("web")
        assert " reclaim=retain " in floating_ip.description

        world.delete_service("web")
        await world.until(lambda: world.service("web") is None, 60, "the Service is gone")
        assert floating_ip.instance is None
        assert not floating_ip.description.startswith("Managed by")

        world.add_service("again", annotations={"oxide.computer/floating-ip": str(floating_ip.ip)})
        await world.until(lambda: shown(world, "again") == [str(floating_ip.ip)], 60, "it is served again")
        await world.end()

    @simulated
    async def test_a_change_of_mind_is_marked(self) -> None:
        """The mark follows the annotation, so the provider knows what to keep."""
        world = await world_of()
        world.add_service("web")
        await world.serve("web")

        world.annotate("web", "floating-ip-reclaim", "Retain")
        await world.until(lambda: "reclaim=retain" in world.floating_ip("web").description, 30, "it is marked")

        await world.end()

    @simulated
    async def test_an_unreadable_wish_keeps_rather_than_deletes(self) -> None:
        """No address is lost because of a typing mistake."""
        world = await world_of()
        world.add_service("web")
        await world.serve("web")
        world.annotate("web", "floating-ip-reclaim", "retain")

        world.delete_service("web")
        await world.until(lambda: world.service("web") is None, 60, "the Service is gone")

        assert len(list(world.rack.state.floating_ips)) == 1
        await world.end()

    @simulated
    async def test_an_orphan_that_is_named_is_adopted(self) -> None:
        """S11: whoever removed the finalizer by hand gets the address back by naming it."""
        world = await world_of()
        world.add_service("web")
        await world.serve("web")
        address = shown(world, "web")[0]
        await world.kill()
        world.change_service("web", metadata={"finalizers": None})
        world.delete_service("web")
        world.start()

        world.add_service("again", annotations={"oxide.computer/floating-ip": address})

        await world.until(lambda: shown(world, "again") == [address], 60, "it is served")
        assert len(world.floating_ips_of("again")) == 1
        await world.end()


class TestChange:
    """S22: the replacement is there and published before the old one goes."""

    @simulated
    async def test_another_pool(self) -> None:
        """At no moment the status is without an address that works."""
        world = await world_of()
        links = {world.rack.silo.id: False}
        world.rack.add_pool("second", "v4", "203.0.113.0", "203.0.113.15", links)
        world.add_service("web")
        await world.serve("web")
        before = len(world.published["web"])

        world.annotate("web", "floating-ip-pool", "second")
        await world.until(
            lambda: world.is_served("web") and shown(world, "web")[0].startswith("203.0.113."), 60, "it has changed"
        )

        for ingress in world.published["web"][before - 1 :]:
            assert [each for each in ingress if each["ipMode"] == "Proxy"]
            assert [each for each in ingress if each["ipMode"] == "VIP"]
        assert len(list(world.rack.state.floating_ips)) == 1
        await world.end()

    @simulated
    async def test_a_replacement_that_cannot_be_had_costs_nothing(self) -> None:
        """The old address goes on, also over a failover, and people are told."""
        world = await world_of()
        world.add_service("web")
        await world.serve("web")
        address, holder = shown(world, "web"), world.holder("web")
        assert holder is not None
        world.annotate("web", "floating-ip", "203.0.113.77")
        await world.until(lambda: "AddressNotAvailable" in world.told.reasons("web"), 30, "it is told")
        assert shown(world, "web") == address
        assert world.is_served("web")

        world.set_ready(holder, "Unknown")
        await world.until(lambda: world.holder("web") != holder and world.is_served("web"), 90, "it has moved")

        assert shown(world, "web") == address
        await world.end()

    @pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
    def test_from_brought_to_brought_with_a_crash(self, step: int) -> None:
        """The one that is wanted no more is let go, after whichever step the process died."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world = await world_of()
            first = await make(world, "first")
            second = await make(world, "second", ip="198.51.100.41")
            world.add_service("web", annotations={"oxide.computer/floating-ip": "first"})
            await world.until(lambda: shown(world, "web") == ["198.51.100.40"], 40, "it is served")
            world.die_after_write(step)
            world.annotate("web", "floating-ip", "second")
            await world.until(lambda: shown(world, "web") == ["198.51.100.41"], 90, "the other one is served")
            await world.pass_time(5)
            assert first.instance is None
            assert second.instance is not None
            await world.end()

        story()


class TestTakeover:
    """V10: floating IPs of Oxide's own controller become ours when they are provably this Service's."""

    @pytest.mark.parametrize("evidence", ["status", "attached"])
    def test_adopted(self, evidence: str) -> None:
        """By name, description and one more proof; the address, the name and the place stay."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world = ServiceWorld()
            await world.add_nodes(2)
            floating_ip = await make(world, f"kubernetes-{NAMESPACE}-web", description=GO_DESCRIPTION)
            external_addresses.attach(world.rack.state, floating_ip, world.instance("node-2"))
            world.add_service("web", finalizers=["service.kubernetes.io/load-balancer-cleanup"])
            if evidence == "status":
                external_addresses.detach(world.rack.state, floating_ip)
                ingress = [{"ip": str(floating_ip.ip), "ipMode": "Proxy"}, {"ip": "172.30.0.6"}]
                status = {"status": {"loadBalancer": {"ingress": ingress}}}
                world.store.patch(SERVICES, NAMESPACE, "web", status, subresource="status")
            world.start()
            await world.serve("web")
            assert world.floating_ip("web") is floating_ip
            assert floating_ip.name == f"kubernetes-{NAMESPACE}-web"
            assert len(list(world.rack.state.floating_ips)) == 1
            if evidence == "attached":
                assert world.holder("web") == "node-2"
            await world.end()

        story()

    @pytest.mark.parametrize(
        ("name", "description"),
        [
            (f"kubernetes-{NAMESPACE}-web", GO_DESCRIPTION),
            (f"kubernetes-{NAMESPACE}-web", "mine"),
            (f"kubernetes-{NAMESPACE}-other", GO_DESCRIPTION),
        ],
    )
    def test_never_by_a_bare_name(self, name: str, description: str) -> None:
        """Attached to nothing, and in no status: it is not touched."""

        @simulated
        async def story() -> None:
            """Tell the test's story."""
            world = ServiceWorld()
            await world.add_nodes(2)
            floating_ip = await make(world, name, description=description)
            world.add_service("web")
            world.start()
            await world.serve("web")
            world.delete_service("web")
            await world.until(lambda: world.service("web") is None, 60, "it is gone")
            assert [each.name for each in world.rack.state.floating_ips] == [name]
            assert (floating_ip.description, floating_ip.instance) == (description, None)
            await world.end()

        story()
