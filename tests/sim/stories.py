"""What happens in a simulated world: the same life of a cluster for every seed, in weather that the seed makes."""

from __future__ import annotations

import random
from typing import Any

from capox.kube.kind import SECRETS
from capox.provider import names
from capox.provider.kinds import CLUSTERS, OXIDE_CLUSTERS, OXIDE_MACHINES
from tests.sim.cluster_api import CREDENTIALS, NAMESPACE
from tests.sim.invariants import IN_FLIGHT_SECONDS
from tests.sim.world import NETWORK_TOKEN, TOKEN, Weather, World

CLUSTER = "web"
CONVERGENCE_SECONDS = 1500.0
"""How long, on virtual time, everything may take once faults are off; the longest backoff fits in several times."""


async def life_of_a_cluster(seed: int, *, weather: Weather, crashes: int) -> None:
    """A cluster is made, grows, shrinks, is paused, and is deleted, while things fail and the provider is killed.

    Raises:
        InvariantError: Something happened that must never happen.
        AssertionError: The world did not converge, or was not as before in the end.
    """
    story = Story(seed, weather, crashes)
    await story.create()
    await story.grow_and_shrink()
    await story.pause()
    await story.delete()
    await story.world.end()


class Story:
    """The life of one cluster.

    Args:
        seed: Of the world.
        weather: How bad things are while things change.
        crashes: How often the provider is killed in each chapter.
    """

    def __init__(self, seed: int, weather: Weather, crashes: int) -> None:
        # Every other provider may change networks, and is asked to keep the firewall.
        self._keeps_firewall = seed % 2 == 1
        self.world = World(seed, weather, NETWORK_TOKEN if self._keeps_firewall else TOKEN)
        self._dice = random.Random(f"story {seed}")
        self._crashes = crashes
        self._before = _inventory(self.world)

    async def create(self) -> None:
        """The cluster, its first control plane machine, and two workers."""
        core, image = self.world.cluster_api, {"imageID": self.world.rack.image.id}
        apart = {"controlPlane": {"policy": "allow"}, "workers": {"policy": "allow"}}
        firewall = {"mode": "Managed", "apiServerSources": ["192.0.2.0/24"]} if self._keeps_firewall else {}
        core.add_cluster(CLUSTER, ipType="v4", antiAffinity=apart, firewall=firewall)
        core.add_machine(CLUSTER, "web-cp-0", image, is_control_plane=True)
        for number in range(2):
            core.add_machine(CLUSTER, f"web-w-{number}", image | {"dataDisks": [{"size": "5Gi"}]})
        await self._suffer()
        await self._converge(["web-cp-0", "web-w-0", "web-w-1"])
        holder = names.instance_name(NAMESPACE, "web-cp-0")
        self.world.declare_alive(holder)
        core.report_health("web-cp-0", is_healthy=True)
        core.initialize_control_plane(CLUSTER)

    async def grow_and_shrink(self) -> None:
        """A second control plane machine joins, the first one goes, and so does a worker."""
        core, image = self.world.cluster_api, {"imageID": self.world.rack.image.id}
        if self._dice.random() < 0.5:
            self.world.delay_creation(names.instance_name(NAMESPACE, "web-hasty"))
        self._weather(is_fair=False)
        core.add_machine(CLUSTER, "web-cp-1", image, is_control_plane=True)
        core.add_machine(CLUSTER, "web-w-2", image)
        # Somebody has an instance of this machine's name: it is never taken, and the machine can be deleted.
        core.add_machine(CLUSTER, "web-taken", image)
        core.delete_machine("web-w-0")
        # A machine that is not wanted any more as soon as it was made: its instance may still be under way (M-5).
        core.add_machine(CLUSTER, "web-hasty", image)
        await self.world.pass_time(self._dice.uniform(1.0, 15.0))
        core.delete_machine("web-hasty")
        await self._suffer()
        core.delete_machine("web-taken")
        await self._converge(["web-cp-0", "web-cp-1", "web-w-1", "web-w-2"])
        # The holder fails while the other one has no apiserver yet: the endpoint stays where it is (M-26).
        self.world.fail(names.instance_name(NAMESPACE, "web-cp-0"))
        await self.world.pass_time(20)
        await self._converge(["web-cp-0", "web-cp-1", "web-w-1", "web-w-2"])
        self.world.declare_alive(names.instance_name(NAMESPACE, "web-cp-1"))
        core.report_health("web-cp-1", is_healthy=True)
        self._weather(is_fair=False)
        core.delete_machine("web-cp-0")
        await self._suffer()
        await self._converge(["web-cp-1", "web-w-1", "web-w-2"])

    async def pause(self) -> None:
        """At rest nothing is written; a worker that is deleted in a pause stays on the rack until the pause ends."""
        core = self.world.cluster_api
        await self.world.pass_time(60)
        writes = [call for call in self.world.process.kube.calls if call.is_write]
        # Longer than the period after which everything is looked at again.
        await self.world.pass_time(700)
        assert [call for call in self.world.process.kube.calls if call.is_write] == writes, "a write at rest (C-CO-7)"
        core.pause(CLUSTER, paused=True)
        await self.world.pass_time(IN_FLIGHT_SECONDS + 5)
        core.delete_machine("web-w-2")
        self._weather(is_fair=False)
        await self._suffer()
        await self.world.pass_time(60)
        self._weather(is_fair=True)
        core.pause(CLUSTER, paused=False)
        await self._converge(["web-cp-1", "web-w-1"])

    async def delete(self) -> None:
        """The whole cluster is deleted, and the rack is as before."""
        self._weather(is_fair=False)
        self.world.cluster_api.delete_cluster(CLUSTER)
        # As `kubectl delete -f` or the end of a namespace does: the infrastructure at once as well (M-10).
        self.world.store.delete(OXIDE_CLUSTERS, NAMESPACE, CLUSTER)
        self.world.store.delete(SECRETS, NAMESPACE, CREDENTIALS)
        await self._suffer()
        self._weather(is_fair=True)
        world = self.world
        await world.until(
            lambda: (
                not any(world.store.list(kind, None) for kind in (CLUSTERS, OXIDE_CLUSTERS, OXIDE_MACHINES, SECRETS))
            ),
            CONVERGENCE_SECONDS,
            "all objects are gone",
        )
        assert _inventory(world) == self._before

    async def _suffer(self) -> None:
        """Let time pass in bad weather, with crashes at moments that chance picks."""
        moments = sorted(self._dice.uniform(0.05, 20.0) for _ in range(self._crashes))
        passed = 0.0
        for moment in moments:
            await self.world.pass_time(moment - passed)
            passed = moment
            await self.world.crash()
        await self.world.pass_time(20.0 - passed)

    async def _converge(self, machines: list[str]) -> None:
        """Faults off: exactly these machines have running instances and are provisioned, and the endpoint is served."""
        self._weather(is_fair=True)
        expected = sorted(names.instance_name(NAMESPACE, machine) for machine in machines)
        await self.world.until(
            lambda: self.world.running() == expected and self._is_provisioned(machines) and self._has_holder(),
            CONVERGENCE_SECONDS,
            f"{machines} run",
        )

    def _is_provisioned(self, machines: list[str]) -> bool:
        documents = {each["metadata"]["name"]: each for each in self.world.store.list(OXIDE_MACHINES, NAMESPACE)}
        return sorted(documents) == sorted(machines) and all(
            (document.get("status") or {}).get("initialization", {}).get("provisioned")
            for document in documents.values()
        )

    def _has_holder(self) -> bool:
        return all(floating_ip.instance is not None for floating_ip in self.world.rack.state.floating_ips)

    def _weather(self, *, is_fair: bool) -> None:
        if is_fair:
            self.world.clear_up()
        else:
            self.world.cloud_over()


def _inventory(world: World) -> dict[str, list[Any]]:
    """What there is on the rack, by name."""
    rack = world.rack.state
    tables: dict[str, Any] = {
        "instances": rack.instances,
        "disks": rack.disks,
        "floating IPs": rack.floating_ips,
        "NICs": rack.network_interfaces,
        "anti-affinity groups": rack.anti_affinity_groups,
    }
    inventory: dict[str, list[Any]] = {name: sorted(each.name for each in table) for name, table in tables.items()}
    inventory["firewall rules"] = [rule["name"] for vpc in rack.vpcs for rule in vpc.firewall_rules]
    inventory["addresses"] = [pool.taken_count for pool in rack.pool_addresses.values()]
    return inventory
