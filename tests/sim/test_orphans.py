"""Floating IPs whose Services are gone: they are told of, and stay as they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from capox.ccm.kinds import NAMESPACES
from capox.ccm.orphans import Orphans
from capox.kube.metrics import Registry, ServiceMetrics
from capox.ownership import OwnerMark, format_mark
from tests.sim.loop import simulated
from tests.sim.service_world import CLUSTER_ID, ServiceWorld

REASON = "FloatingIPOrphaned"


class Search:
    """The search for orphans, beside the controller of Services."""

    def __init__(self, world: ServiceWorld) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
        world.store.create(NAMESPACES, "", document)
        assert world.process is not None
        self._world = world
        self._registry = Registry()
        self.orphans = Orphans(world.process.deps, CLUSTER_ID, ServiceMetrics(self._registry).on_orphans)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Search until the block is left."""
        task = asyncio.create_task(self.orphans.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def counted(self) -> float | None:
        """How many there are, by the metric."""
        return self._registry.value("capox_orphaned_floating_ips")

    def told(self) -> list[str]:
        """What people were told, each time."""
        return [text for about, reason, text in self._world.told.events if (about, reason) == ("kube-system", REASON)]


async def served(world: ServiceWorld) -> None:
    """Two nodes and one Service that has its address."""
    await world.add_nodes(2)
    world.start()
    world.add_service("web", "tcp:80")
    await world.serve("web")


def drop(world: ServiceWorld, name: str) -> None:
    """Delete a Service as somebody does who does not wait for its finalizer."""
    world.delete_service(name)
    world.change_service(name, metadata={"finalizers": None})
    assert world.service(name) is None


@simulated
async def test_an_address_that_is_left_over_is_told_once_and_stays() -> None:
    """An Event and the metric name it in ten minutes; it keeps its place, and ends when a Service names it."""
    world = ServiceWorld()
    await served(world)
    search = Search(world)
    floating_ip = world.floating_ip("web")
    holder = world.holder("web")
    async with search.running():
        drop(world, "web")
        await world.until(lambda: search.counted() == 1, 700, "it is counted")
        (message,) = search.told()
        assert f"floating IP {floating_ip.name} ({floating_ip.ip}), attached to instance" in message
        assert "was made for Service default/web, which is gone" in message

        await world.pass_time(3600)
        assert len(search.told()) == 1
        assert world.floating_ip("web") is floating_ip
        assert world.holder("web") == holder

        world.add_service("next", "tcp:80", annotations={"oxide.computer/floating-ip": str(floating_ip.ip)})
        await world.serve("next")
        await world.until(lambda: search.counted() == 0, 400, "it is nobody's no more")
        assert len(search.told()) == 1
    await world.end()


@simulated
async def test_one_look_is_not_enough() -> None:
    """A list and a cache that do not fit together for a moment are no proof."""
    world = ServiceWorld()
    await served(world)
    search = Search(world)
    drop(world, "web")
    for _ in range(3):
        await world.pass_time(20)
        await search.orphans.look()
    assert search.counted() == 0
    await world.pass_time(330)
    await search.orphans.look()

    assert search.counted() == 1
    await world.end()


@simulated
async def test_only_what_was_made_for_this_cluster_can_be_an_orphan() -> None:
    """Not a living Service's, not the user's, not another cluster's or another kind's."""
    world = ServiceWorld()
    await served(world)
    search = Search(world)
    marks = [
        OwnerMark(kind="Service", namespace="default", name="far", uid="far", cluster_id="another-cluster"),
        OwnerMark(kind="OxideCluster", namespace="team", name="web", uid="web", cluster_id=CLUSTER_ID),
    ]
    for number, description in enumerate(["by hand", *map(format_mark, marks)]):
        allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
        body = {"name": f"other-{number}", "description": description, "address_allocator": allocator}
        await world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
    async with search.running():
        await world.pass_time(1500)

    assert search.counted() == 0
    assert search.told() == []
    await world.end()


@simulated
async def test_nothing_is_concluded_before_the_services_are_known() -> None:
    """R9: an empty cache looks as if all Services were gone."""
    world = ServiceWorld()
    await served(world)
    await world.kill()
    world.start(unlisted="services")
    search = Search(world)
    async with search.running():
        await world.pass_time(1500)

    assert search.told() == []
    await world.end()
