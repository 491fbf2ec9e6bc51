"""The add-on and many clusters: upgrades, neighbours that are dead or hostile, and the management cluster as a home."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from capox.kube import errors
from capox.kube.kind import SECRETS
from capox.kube.metrics import QueueMetrics, Registry
from capox.kube.workqueue import Request, Workqueue
from capox.provider.ccm_addon import PASS_SECONDS
from capox.provider.ccm_addon_kinds import CONFIG_MAPS, DEPLOYMENTS, NODES, SERVICE_ACCOUNTS
from capox.provider.ccm_addon_rollout import PATIENCE_SECONDS, UPGRADES_MAX
from capox.provider.kinds import CLUSTERS, OXIDE_CLUSTERS
from tests.sim.addon_world import DEAD_SECONDS, TEAM, TOKEN, AddonWorld
from tests.sim.loop import simulation_loop
from tests.sim.store import Document
from tests.sim.test_ccm_addon import EVERYTHING, container, story

NEW = "registry.example.com/capox:v2"
FLEET = [f"web{number}" for number in range(6)]


async def upgraded(world: AddonWorld) -> list[str]:
    """Have the add-on look at all clusters; gives those that run the new release."""
    for name in FLEET:
        await world.look(name)
    return [name for name in FLEET if container(world.workloads[name])["image"] == NEW]


async def with_a_fleet(world: AddonWorld) -> None:
    """A few clusters in which all is well, and then a new release of the provider."""
    for name in FLEET:
        world.add_cluster(name)
        await world.settle(name)
    world.restart(NEW)


@story
async def test_a_few_clusters_are_upgraded_at_a_time(world: AddonWorld) -> None:
    """The next ones when those are ready; who waits is told for whom, and runs on."""
    await with_a_fleet(world)
    first = await upgraded(world)
    assert len(first) == UPGRADES_MAX
    assert await upgraded(world) == first
    waiting = next(name for name in FLEET if name not in first)
    status, reason, message = world.condition(waiting)
    assert (status, reason) == ("True", "SharedCredentials")
    assert f"an upgrade waits for those of team/{first[0]}" in message
    assert world.condition(first[0])[:2] == ("False", "Upgrading")

    world.workloads[first[0]].run_pods()
    assert len(await upgraded(world)) == UPGRADES_MAX + 1
    for _ in range(3):
        for name in await upgraded(world):
            world.workloads[name].run_pods()
    assert await upgraded(world) == FLEET
    assert {world.condition(name)[0] for name in FLEET} == {"True"}


@story
async def test_upgrades_stop_at_the_first_that_fails(world: AddonWorld) -> None:
    """It is told there and by an Event; no further cluster follows, not after a restart either, until it is ready."""
    await with_a_fleet(world)
    first = await upgraded(world)
    for name in first:
        world.workloads[name].run_pods(ready=0)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    await upgraded(world)
    assert world.condition(first[0])[:2] == ("False", "UpgradeFailed")
    for name in first[1:]:
        world.workloads[name].run_pods()
    world.restart(NEW)
    assert await upgraded(world) == first
    waiting = next(name for name in FLEET if name not in first)
    assert f"{TEAM}/{first[0]} did not become ready" in world.condition(waiting)[2]
    assert (f"OxideCluster/{first[0]}", "UpgradeFailed") in {event[:2] for event in world.recorded.events}

    world.workloads[first[0]].run_pods()
    assert len(await upgraded(world)) > len(first)


@story
async def test_a_dead_cluster_does_not_stop_upgrades(world: AddonWorld) -> None:
    """Who does not answer is no evidence against the release."""
    await with_a_fleet(world)
    first = await upgraded(world)
    for name in first:
        world.workloads[name].is_dead = True
    assert len(await upgraded(world)) > len(first)
    assert world.condition(first[0])[:2] == ("Unknown", "WorkloadClusterUnreachable")


@story
async def test_a_pinned_version_stays(world: AddonWorld) -> None:
    """The provider's new image does not come to who has chosen a version."""
    web = world.add_cluster("web", {"version": "v1"})
    await world.settle("web")
    world.restart(NEW)
    writes = web.writes()
    await world.look("web")
    assert container(web)["image"] == "registry.example.com/capox:v1"
    assert web.writes() == writes


@story
async def test_a_new_token_comes_while_an_upgrade_waits(world: AddonWorld) -> None:
    """Waiting for others is no reason to let credentials run out."""
    await with_a_fleet(world)
    waiting = FLEET[-1]
    first = await upgraded(world)
    assert waiting not in first
    world.rack.add_user("successor", world.rack.silo, "limited_collaborator")
    world.add_secret("oxide-credentials", "oxide-token-successor")
    await upgraded(world)
    assert world.workloads[waiting].credentials()["oxide-token"] == "oxide-token-successor"
    assert container(world.workloads[waiting])["image"] != NEW


@story
async def test_dead_clusters_do_not_slow_the_others(world: AddonWorld) -> None:
    """Five times as many as there are workers do not answer; a new one is served as if it was alone."""
    dice = random.Random(1)
    queue = Workqueue(
        "addon", world.reconciler.reconcile, concurrency=20, randomness=dice, metrics=QueueMetrics(Registry())
    )
    for number in range(100):
        world.add_cluster(f"dead{number}").is_dead = True
        queue.add(Request(TEAM, f"dead{number}"))
    working = asyncio.create_task(queue.run())
    # Until it is known of each.
    await asyncio.sleep(600)
    waits = []
    for number in range(5):
        web = world.add_cluster(f"web{number}")
        began = simulation_loop().time()
        queue.add(Request(TEAM, f"web{number}"))
        while web.documents().keys() != EVERYTHING:
            await asyncio.sleep(0.1)
            assert simulation_loop().time() - began < 60
        waits.append(simulation_loop().time() - began)
        await asyncio.sleep(dice.uniform(0, 60))
    working.cancel()
    assert max(waits) < DEAD_SECONDS / 2


class Trickle:
    """A way to a cluster on which every call takes nearly as long as it may."""

    async def before(self, call: Any) -> None:
        """Take long."""
        del call
        await asyncio.sleep(9.0)

    async def after(self, call: Any) -> None:
        """Nothing happens."""


@story
async def test_a_cluster_that_trickles_ends_at_the_deadline(world: AddonWorld) -> None:
    """Each call is answered, late; the pass ends all the same, and tells so."""
    web = world.add_cluster("web")
    await world.settle("web")
    world.restart()
    began = simulation_loop().time()
    web.weather = Trickle()
    await world.look("web")
    assert simulation_loop().time() - began < PASS_SECONDS + 2
    assert world.condition("web")[:2] == ("Unknown", "WorkloadClusterUnreachable")
    assert "no end after 60 s" in world.condition("web")[2]


@story
async def test_a_hostile_kubeconfig_is_refused(world: AddonWorld) -> None:
    """Nothing in it is run, read or called; a condition says what was refused, and shows no secret."""
    web = world.add_cluster("web")
    text = b"""
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://web.example", certificate-authority-data: YQ==}}]
users: [{name: x, user: {token: secret-token-of-tests, exec: {command: /bin/sh, apiVersion: v1}}}]
"""
    world.add_kubeconfig("web", text)
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "KubeconfigRefused")
    assert "the user has exec" in world.condition("web")[2]
    assert "secret-token-of-tests" not in world.condition("web")[2]
    assert web.calls() == 0


@story
async def test_a_strangers_words_are_cut(world: AddonWorld) -> None:
    """What a hostile API says becomes one short printable line of the condition."""
    web = world.add_cluster("web")

    def rule(before: Document | None, after: Document) -> str:
        """Refuse in many words."""
        del before, after
        return "\x1b[31m" + "lies\n" * 10_000

    web.store.add_rule(SECRETS, rule)
    await world.look("web")
    message = world.condition("web")[2]
    assert world.condition("web")[:2] == ("Unknown", "WorkloadClusterUnreachable")
    assert len(message) < 400
    assert message.isprintable()


# -- at home -----------------------------------------------------------------------------------------------------------


@story
async def test_at_home_neither_token_nor_process_goes_abroad(world: AddonWorld) -> None:
    """A Deployment beside the OxideCluster, owned by it, without rights; back and forth nothing stays behind."""
    web = world.add_cluster("web")
    await world.settle("web")
    world.set_ccm("web", {"placement": "ManagementCluster"})
    await world.look("web")
    (deployment,) = world.store.list(DEPLOYMENTS, TEAM)
    (account,) = world.store.list(SERVICE_ACCOUNTS, TEAM)
    pod = deployment["spec"]["template"]["spec"]
    assert web.documents() == {}
    assert deployment["metadata"]["name"] == account["metadata"]["name"] == "web-cloud-controller-manager"
    assert deployment["metadata"]["ownerReferences"][0]["kind"] == "OxideCluster"
    assert pod["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "tolerations", "priorityClassName"} & pod.keys()
    mounted = {source["secret"]["name"] for source in pod["volumes"][0]["projected"]["sources"] if "secret" in source}
    assert mounted == {"oxide-credentials"}
    assert pod["volumes"][1]["secret"]["secretName"] == "web-kubeconfig"
    assert world.condition("web")[:2] == ("False", "Installing")

    status = {"status": {"updatedReplicas": 1, "readyReplicas": 1, "observedGeneration": 1}}
    world.store.patch(DEPLOYMENTS, TEAM, "web-cloud-controller-manager", status, subresource="status")
    await world.look("web")
    assert world.condition("web")[:2] == ("True", "SharedCredentials")

    world.set_ccm("web", {"placement": "WorkloadCluster", "mode": "Managed"})
    await world.settle("web")
    assert world.store.list(DEPLOYMENTS, TEAM) == world.store.list(SERVICE_ACCOUNTS, TEAM) == []
    assert web.documents().keys() == EVERYTHING


@story
async def test_at_home_it_stays_installed_when_the_nodes_are_not_new_any_more(world: AddonWorld) -> None:
    """Its own work does not make it take the Nodes for somebody else's."""
    web = world.add_cluster("web", {"placement": "ManagementCluster"})
    await world.look("web")
    (node,) = web.store.list(NODES, None)
    web.store.patch(NODES, "", node["metadata"]["name"], {"spec": {"taints": None}})
    world.restart()
    await world.look("web")
    assert world.condition("web")[1] != "NodesInitializedByAnother"

    world.set_ccm("web", {"mode": "Unmanaged", "placement": "ManagementCluster"})
    await world.look("web")
    assert world.store.list(DEPLOYMENTS, TEAM) == []


@story
async def test_at_home_the_owner_of_a_cluster_may_choose_less(world: AddonWorld) -> None:
    """No image, no argument, no Secret of elsewhere: the Pod runs next to other people's."""
    world.add_cluster("web", {"placement": "ManagementCluster", "image": "evil.example.com/miner:v1"})
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "InvalidConfiguration")

    world.set_ccm("web", {"placement": "ManagementCluster"})
    world.add_knobs("web", extra_args="--kubeconfig=/elsewhere")
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "InvalidConfiguration")
    world.store.delete(CONFIG_MAPS, TEAM, "web-cloud-controller-manager")

    annotation = {"infrastructure.cluster.x-k8s.io/allowed-namespaces": "*"}
    world.add_secret("shared", TOKEN, "other", **annotation)
    world.store.patch(
        OXIDE_CLUSTERS, TEAM, "web", {"spec": {"credentialsRef": {"name": "shared", "namespace": "other"}}}
    )
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "CredentialsNotAllowed")
    assert world.store.list(DEPLOYMENTS, TEAM) == []


@story
async def test_without_the_rights_it_does_not_run_at_home(world: AddonWorld) -> None:
    """A condition says what to apply; a provider without them never asks for Deployments of its own accord twice."""
    web = world.add_cluster("web", {"placement": "ManagementCluster"})
    forbid_deployments(world)
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "InvalidConfiguration")
    assert "config/ccm-at-home" in world.condition("web")[2]

    world.set_ccm("web", {"mode": "Managed"})
    await world.settle("web")
    assert web.documents().keys() == EVERYTHING


def forbid_deployments(world: AddonWorld) -> None:
    """Take the rights away that are switched on apart."""
    kube = world.kube
    allowed = kube.get

    async def get(kind: Any, namespace: str, name: str) -> Any:
        """Refuse Deployments."""
        if kind in (DEPLOYMENTS, SERVICE_ACCOUNTS):
            raise errors.Forbidden(403, "Forbidden", "deployments.apps is forbidden")
        return await allowed(kind, namespace, name)

    kube.get = get  # type: ignore[method-assign]  # as the API would answer


@story
async def test_nothing_is_done_in_a_cluster_that_goes(world: AddonWorld) -> None:
    """Deletion of the Cluster ends the add-on's part at once."""
    web = world.add_cluster("web")
    world.store.patch(CLUSTERS, TEAM, "web", {"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})
    world.store.delete(CLUSTERS, TEAM, "web")
    await world.look("web")
    assert web.calls() == 0
