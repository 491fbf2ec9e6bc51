"""Floating IPs of Services, when their cluster goes: released before the OxideCluster, whatever fails meanwhile."""

from __future__ import annotations

import pytest

from capox.ownership import OwnerMark, format_mark
from capox.provider.kinds import CLUSTERS, OXIDE_CLUSTERS
from capox.rack import records
from tests.sim.cluster_api import NAMESPACE
from tests.sim.loop import simulate
from tests.sim.world import Weather, World

CLUSTER = "web"
SECONDS = 1500.0


def add_floating_ip(world: World, name: str, cluster_id: str, **further: str) -> None:
    """Put a floating IP of a Service on the rack, as the cloud controller manager does."""
    state = world.rack.state
    mark = OwnerMark(kind="Service", namespace="a", name=name, uid="u", cluster_id=cluster_id, further=further)
    number = len(list(state.floating_ips)) + 40
    address = world.rack.pool_v4.ranges[0][0] + number
    state.floating_ips.insert(
        records.FloatingIp(
            **state.identity(name, format_mark(mark)),
            project=world.rack.project.id,
            ip=address,
            pool=world.rack.pool_v4.id,
        )
    )


async def deletion(seed: int, weather: Weather, crashes: int) -> None:
    """A cluster with floating IPs of Services is deleted while things fail and the provider is killed."""
    world = World(seed, weather)
    world.clear_up()
    world.cluster_api.add_cluster(CLUSTER, ipType="v4")

    def spec() -> dict[str, object]:
        """Give the OxideCluster's spec."""
        return dict(world.store.get(OXIDE_CLUSTERS, NAMESPACE, CLUSTER)["spec"])

    await world.until(lambda: bool(spec().get("controlPlaneEndpoint")), SECONDS, "the endpoint is there")
    cluster_id = str(spec()["clusterID"])
    for name in ("svc-a", "svc-b", "svc-c"):
        add_floating_ip(world, name, cluster_id)
    add_floating_ip(world, "svc-kept", cluster_id, reclaim="retain")
    add_floating_ip(world, "svc-other", "another-cluster")
    world.cloud_over()
    world.cluster_api.delete_cluster(CLUSTER)
    for _ in range(crashes):
        await world.pass_time(3.0)
        await world.crash()
    await world.pass_time(20.0)
    world.clear_up()

    def left() -> list[str]:
        """Give the names of the floating IPs that are there."""
        return sorted(each.name for each in world.rack.state.floating_ips)

    await world.until(lambda: not world.store.list(CLUSTERS, None), SECONDS, "the cluster is gone")
    assert left() == ["svc-kept", "svc-other"]
    await world.end()


@pytest.mark.parametrize("seed", range(8))
def test_they_go_with_their_cluster(seed: int) -> None:
    """In fair weather and in bad; what is to be kept and what is somebody else's stays."""
    weather = Weather() if seed == 0 else Weather(kube=0.1, rack=0.15)
    simulate(lambda: deletion(seed, weather, seed % 3), seed=seed)
