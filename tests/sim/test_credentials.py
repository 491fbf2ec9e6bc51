"""Credentials that come late, in the simulated world."""

from __future__ import annotations

from capox.kube.kind import SECRETS
from capox.provider.kinds import OXIDE_CLUSTERS
from tests.sim.cluster_api import CREDENTIALS, NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import TOKEN, World


def is_provisioned(world: World) -> bool:
    """Whether the cluster is."""
    (cluster,) = world.store.list(OXIDE_CLUSTERS, NAMESPACE)
    return bool((cluster.get("status") or {}).get("initialization", {}).get("provisioned"))


@simulated
async def test_a_secret_that_comes_late_is_found_within_a_minute() -> None:
    """Nobody watches Secrets, and still a person who makes the missing one need not wait long, and restarts nothing."""
    world = World(0)
    world.clear_up()
    world.store.delete(SECRETS, NAMESPACE, CREDENTIALS)
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.pass_time(140)
    assert not is_provisioned(world)

    world.cluster_api.add_credentials("http://rack", TOKEN)
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    await world.end()
