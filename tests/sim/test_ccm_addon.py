"""The add-on: when it installs and when it keeps its hands off, and what it does with what is there."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from capox.kube.kind import SECRETS, Kind
from capox.kube.lease import LEASES
from capox.kube.objects import format_timestamp
from capox.provider.ccm_addon_image import OwnImage
from capox.provider.ccm_addon_kinds import DAEMON_SETS, DEPLOYMENTS, INSTALLED, NODES, PODS
from capox.provider.kinds import CLUSTERS, OXIDE_CLUSTERS, OXIDE_MACHINES
from tests.sim.addon_world import ADMIN_TOKEN, IMAGE, TEAM, TOKEN, AddonWorld, WorkloadCluster
from tests.sim.loop import EPOCH, simulated

NAME = "capox-cloud-controller-manager"
EVERYTHING = {
    f"ServiceAccount/{NAME}",
    f"ClusterRole/{NAME}",
    f"ClusterRoleBinding/{NAME}",
    f"ClusterRoleBinding/{NAME}-auth-delegator",
    f"Role/{NAME}",
    f"RoleBinding/{NAME}",
    f"ConfigMap/{NAME}",
    f"Secret/{NAME}",
    f"DaemonSet/{NAME}",
}


def story(test: Callable[[AddonWorld], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a world one that runs on virtual time in a world of its own."""

    async def run() -> None:
        """Run the story."""
        world = AddonWorld()
        try:
            await test(world)
        finally:
            await world.end()

    decorated = simulated(run)
    decorated.__name__, decorated.__doc__ = test.__name__, test.__doc__
    return decorated


def container(workload: WorkloadCluster) -> dict[str, Any]:
    """The container of what is installed."""
    (found,) = workload.workload()["spec"]["template"]["spec"]["containers"]
    return dict(found)


@story
async def test_a_new_cluster_gets_it(world: AddonWorld) -> None:
    """A Node waits to be initialized and nobody else is there: everything is installed, with credentials (R5)."""
    web = world.add_cluster("web")
    result = await world.look("web")

    assert web.documents().keys() == EVERYTHING
    assert web.credentials() == {"oxide-host": "http://rack", "oxide-token": TOKEN, "oxide-project": "demo"}
    assert container(web)["image"] == IMAGE
    data = web.documents()[f"ConfigMap/{NAME}"]["data"]
    assert data["CAPOX_CLUSTER_ID"] == "id-of-web"
    assert (data["KUBERNETES_SERVICE_HOST"], data["KUBERNETES_SERVICE_PORT"]) == ("192.0.2.10", "6443")
    assert world.condition("web")[:2] == ("False", "Installing")
    assert result.requeue_after_seconds is not None
    assert result.requeue_after_seconds < 12

    web.run_pods()
    await world.look("web")
    assert world.condition("web") == ("True", "SharedCredentials", "")


@story
async def test_at_rest_nothing_is_written_and_hardly_anything_read(world: AddonWorld) -> None:
    """Looks between two full ones do not even enter the cluster; full ones write nothing (C-CO-7)."""
    web = world.add_cluster("web")
    await world.settle("web")
    writes, calls = web.writes(), web.calls()
    await world.look("web")
    assert web.calls() == calls

    world.restart()
    await world.look("web")
    assert web.calls() > calls
    assert web.writes() == writes
    assert not any(call.is_write for call in world.kube.calls)


@story
async def test_it_waits_for_what_is_not_there_yet(world: AddonWorld) -> None:
    """No kubeconfig, no answer, no Node: a wait that says what for, and no alarm."""
    web = world.add_cluster("web", nodes=0, has_kubeconfig=False, is_initialized=False)
    await world.look("web")
    assert world.condition("web")[1] == "WaitingForWorkloadCluster"
    assert "web-kubeconfig does not exist yet" in world.condition("web")[2]

    world.add_kubeconfig("web")
    web.is_dead = True
    await world.look("web")
    assert "does not answer yet" in world.condition("web")[2]

    web.is_dead = False
    await world.look("web")
    assert world.condition("web")[1:] == ("WaitingForWorkloadCluster", "no Node has registered yet")
    assert web.documents() == {}

    web.add_node("web-0")
    await world.settle("web")


@story
async def test_hands_off_nodes_that_somebody_else_has_initialized(world: AddonWorld) -> None:
    """Without a mode, until Managed is written."""
    web = world.add_cluster("web", is_new=False)
    await world.look("web")
    assert world.condition("web")[:2] == ("True", "NodesInitializedByAnother")
    assert "mode Managed" in world.condition("web")[2]
    assert web.writes() == 0

    world.set_ccm("web", {"mode": "Managed"})
    await world.look("web")
    assert web.documents().keys() == EVERYTHING


def foreign(kind: str, name: str, image: str, **labels: str) -> dict[str, Any]:
    """A workload that somebody else has made."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}},
    }


@story
async def test_hands_off_where_another_one_runs(world: AddonWorld) -> None:
    """Oxide's own by its image, ours as somebody has installed it by hand, a live holder of the Lease."""
    strangers: list[tuple[Kind[Any], dict[str, Any]]] = [
        (DEPLOYMENTS, foreign("Deployment", "ccm", "ghcr.io/oxidecomputer/oxide-cloud-controller-manager:v0.7.0")),
        (DAEMON_SETS, foreign("DaemonSet", "oxide-cloud-controller-manager", "registry.example.com/mirror:1")),
        (DAEMON_SETS, foreign("DaemonSet", NAME, IMAGE)),
    ]
    for number, (kind, document) in enumerate(strangers):
        web = world.add_cluster(f"web{number}")
        web.store.create(kind, "kube-system", document)
        await world.look(f"web{number}")
        assert world.condition(f"web{number}")[1] == "NodesInitializedByAnother", document
        assert "somebody else has installed" in world.condition(f"web{number}")[2]
        assert web.writes() == 0


@pytest.mark.parametrize(
    ("holder", "age_seconds", "is_installed"),
    [("node-1_uuid", 5, False), ("node-1_uuid", 300, True), (f"{NAME}-abcde_1f", 5, True), ("", 5, True)],
)
def test_the_lease_tells_of_others(holder: str, age_seconds: int, is_installed: bool) -> None:
    """One that lives and is not ours keeps the add-on away; a dead one does not."""

    @story
    async def run(world: AddonWorld) -> None:
        """With a Lease."""
        web = world.add_cluster("web")
        renewed = format_timestamp(EPOCH - datetime.timedelta(seconds=age_seconds))
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        metadata = {"name": "cloud-controller-manager", "namespace": "kube-system"}
        lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        web.store.create(LEASES, "kube-system", lease)
        await world.look("web")
        assert bool(web.documents()) is is_installed

    run()


@story
async def test_what_is_edited_is_repaired(world: AddonWorld) -> None:
    """A field, a rule, a deleted object and the Secret; an Event names what was changed."""
    web = world.add_cluster("web")
    await world.settle("web")
    patch = {"spec": {"template": {"spec": {"hostNetwork": False}}}}
    web.store.patch(DAEMON_SETS, "kube-system", NAME, patch)
    web.store.patch(INSTALLED["ClusterRole"], "", NAME, {"rules": []})
    web.store.delete(INSTALLED["ServiceAccount"], "kube-system", NAME)
    web.store.patch(SECRETS, "kube-system", NAME, {"data": {"oxide-token": "AAAA"}})
    world.restart()
    await world.look("web")

    documents = web.documents()
    assert documents.keys() == EVERYTHING
    assert documents[f"DaemonSet/{NAME}"]["spec"]["template"]["spec"]["hostNetwork"] is True
    assert documents[f"ClusterRole/{NAME}"]["rules"]
    assert web.credentials()["oxide-token"] == TOKEN
    assert any("ServiceAccount" in message and "DaemonSet" in message for _, _, message in world.recorded.events)


@story
async def test_a_new_token_reaches_the_cluster_without_a_restart_of_the_pods(world: AddonWorld) -> None:
    """The Secret is written again when its source changes; the Pods are as they were."""
    web = world.add_cluster("web")
    await world.settle("web")
    before = web.workload()
    world.rack.add_user("successor", world.rack.silo, "limited_collaborator")
    world.add_secret("oxide-credentials", "oxide-token-successor")
    await world.look("web")

    assert web.credentials()["oxide-token"] == "oxide-token-successor"
    assert web.workload() == before
    assert ("OxideCluster/web", "CloudControllerManagerRekeyed") in {event[:2] for event in world.recorded.events}
    assert not any("oxide-token-" in message for _, _, message in world.recorded.events)


@story
async def test_powerful_credentials_do_not_go_into_a_cluster(world: AddonWorld) -> None:
    """Those of a silo's administrator: a condition says whose, and what to take instead."""
    web = world.add_cluster("web")
    world.add_secret("oxide-credentials", ADMIN_TOKEN)
    await world.look("web")

    status, reason, message = world.condition("web")
    assert (status, reason) == ("False", "CredentialsTooPowerful")
    assert "silo_admin" in message
    assert "limited_collaborator" in message
    assert ADMIN_TOKEN not in message
    assert web.documents() == {}

    world.add_secret("oxide-ccm", TOKEN)
    world.set_ccm("web", {"credentialsRef": {"name": "oxide-ccm"}})
    await world.settle("web")
    assert world.condition("web")[1] == "Running"


@story
async def test_a_token_that_becomes_powerful_does_not_replace_the_one_that_is_there(world: AddonWorld) -> None:
    """What is in the cluster stays and runs; the condition tells."""
    web = world.add_cluster("web")
    await world.settle("web")
    world.add_secret("oxide-credentials", ADMIN_TOKEN)
    await world.look("web")

    assert world.condition("web")[1] == "CredentialsTooPowerful"
    assert web.credentials()["oxide-token"] == TOKEN


@story
async def test_shared_credentials_can_be_refused(world: AddonWorld) -> None:
    """By the flag; a Secret of the cloud controller manager's own is taken."""
    world.may_share = False
    world.restart()
    web = world.add_cluster("web")
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "SharedCredentials")
    assert "--ccm-shared-credentials=refuse" in world.condition("web")[2]
    assert web.documents() == {}

    world.add_secret("oxide-ccm", TOKEN)
    world.set_ccm("web", {"credentialsRef": {"name": "oxide-ccm"}})
    await world.settle("web")


@story
async def test_a_secret_of_another_namespace_has_to_allow_it(world: AddonWorld) -> None:
    """By its annotation, which names the cluster's namespace."""
    world.add_secret("shared", TOKEN, "other")
    web = world.add_cluster("web", credentialsRef={"name": "shared", "namespace": "other"})
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "CredentialsNotAllowed")
    assert web.documents() == {}

    annotation = {"infrastructure.cluster.x-k8s.io/allowed-namespaces": "elsewhere, team"}
    world.add_secret("shared", TOKEN, "other", **annotation)
    await world.settle("web")


@story
async def test_credentials_that_are_not_there_are_told(world: AddonWorld) -> None:
    """The Secret is missing, or the rack refuses its token."""
    web = world.add_cluster("web", {"credentialsRef": {"name": "oxide-ccm"}})
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "CredentialsInvalid")
    assert "team/oxide-ccm does not exist" in world.condition("web")[2]

    world.add_secret("oxide-ccm", "wrong-token-of-tests")
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "CredentialsInvalid")
    assert web.documents() == {}


@story
async def test_modes_and_what_lies_between_them(world: AddonWorld) -> None:
    """Managed, Orphan, Unmanaged, Managed: kept, left, removed with its Secret, installed."""
    web = world.add_cluster("web", {"mode": "Managed"}, is_new=False)
    await world.settle("web")

    world.set_ccm("web", {"mode": "Orphan"})
    web.store.patch(INSTALLED["ClusterRole"], "", NAME, {"rules": []})
    await world.look("web")
    assert world.condition("web")[:2] == ("True", "Orphaned")
    assert "rules" not in web.documents()[f"ClusterRole/{NAME}"] or not web.documents()[f"ClusterRole/{NAME}"]["rules"]
    assert web.documents().keys() == EVERYTHING

    world.set_ccm("web", {"mode": "Unmanaged"})
    await world.look("web")
    assert web.documents() == {}
    assert world.condition("web")[:2] == ("True", "Unmanaged")

    world.set_ccm("web", {"mode": "Managed"})
    await world.settle("web")
    assert web.documents().keys() == EVERYTHING


@story
async def test_only_what_is_ours_is_removed(world: AddonWorld) -> None:
    """Objects of the same names that somebody has installed by hand stay."""
    web = world.add_cluster("web", {"mode": "Unmanaged"})
    web.store.create(DAEMON_SETS, "kube-system", foreign("DaemonSet", NAME, IMAGE))
    await world.look("web")
    assert web.documents().keys() == {f"DaemonSet/{NAME}"}


@story
async def test_pause_and_move_are_honoured(world: AddonWorld) -> None:
    """Nothing is asked or changed while the Cluster is paused, or its objects are about to be moved."""
    web = world.add_cluster("web")
    world.store.patch(CLUSTERS, TEAM, "web", {"spec": {"paused": True}})
    await world.look("web")
    world.store.patch(CLUSTERS, TEAM, "web", {"spec": {"paused": None}})
    annotation = {"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}}
    world.store.patch(OXIDE_CLUSTERS, TEAM, "web", annotation)
    await world.look("web")

    assert web.calls() == 0
    assert world.condition("web") == ("", "", "")


@story
async def test_after_a_move_it_is_ours_still(world: AddonWorld) -> None:
    """Another management cluster finds it by its label, although no Node is new any more."""
    web = world.add_cluster("web")
    await world.settle("web")
    web.store.patch(INSTALLED["ClusterRole"], "", NAME, {"rules": []})
    writes = web.writes()
    other = AddonWorld()
    other.add_cluster("web")
    other.workloads["web"] = web
    web.store.patch(*_node(web), {"spec": {"taints": None}})
    await other.look("web")
    assert other.condition("web")[:2] == ("True", "SharedCredentials")
    assert web.writes() == writes + 1
    await other.end()


def _node(workload: WorkloadCluster) -> tuple[Any, str, str]:
    (node,) = workload.store.list(NODES, None)
    return NODES, "", node["metadata"]["name"]


@story
async def test_a_hosted_control_plane_has_it_on_its_workers(world: AddonWorld) -> None:
    """No control plane Machines and no such Node: a Deployment of two; back when there are some."""
    web = world.add_cluster("web", nodes=0)
    world.store.delete(OXIDE_MACHINES, TEAM, "web-0")
    web.add_node("worker-0", is_control_plane=False)
    await world.settle("web")
    assert web.workload()["kind"] == "Deployment"
    assert web.workload()["spec"]["replicas"] == 2
    assert "podAntiAffinity" in web.workload()["spec"]["template"]["spec"]["affinity"]

    web.add_node("cp-0")
    world.restart()
    await world.look("web")
    assert web.workload()["kind"] == "DaemonSet"


@story
async def test_a_first_node_without_its_role_is_no_hosted_control_plane(world: AddonWorld) -> None:
    """Kubeadm labels a Node some seconds after it has registered; Cluster API knows the Machine before."""
    web = world.add_cluster("web", nodes=0)
    web.add_node("web-0", is_control_plane=False)
    await world.look("web")
    assert web.workload()["kind"] == "DaemonSet"


@story
async def test_knobs_are_turned(world: AddonWorld) -> None:
    """Arguments, resources, pull secrets, host aliases and proxies; a wrong one is told and changes nothing."""
    web = world.add_cluster("web")
    world.add_knobs(
        "web",
        extra_args="--node-monitor-period=10s\n# a comment\n--region=north",
        memory_limit="1Gi",
        image_pull_secrets="registry",
        host_aliases="192.0.2.99 rack.example.com r2.example.com",
        https_proxy="http://proxy.example.com:3128",
    )
    await world.settle("web")
    pod = web.workload()["spec"]["template"]["spec"]
    assert container(web)["args"][-2:] == ["--node-monitor-period=10s", "--region=north"]
    assert container(web)["resources"]["limits"] == {"memory": "1Gi"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["hostAliases"] == [{"ip": "192.0.2.99", "hostnames": ["rack.example.com", "r2.example.com"]}]
    assert web.documents()[f"ConfigMap/{NAME}"]["data"]["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    before = web.workload()

    world.add_knobs("web", memory_limit="a lot")
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "InvalidConfiguration")
    assert "'a lot' is not an amount" in world.condition("web")[2]
    assert web.workload() == before


@story
async def test_image_and_version_are_chosen(world: AddonWorld) -> None:
    """The image, another tag of the provider's own, both."""
    for number, (ccm, image) in enumerate(
        [
            ({"version": "v0"}, "registry.example.com/capox:v0"),
            ({"image": "other.example.com:5000/ccm"}, "other.example.com:5000/ccm"),
            ({"image": "other.example.com:5000/ccm:v9", "version": "v8"}, "other.example.com:5000/ccm:v8"),
        ]
    ):
        web = world.add_cluster(f"web{number}", ccm)
        await world.look(f"web{number}")
        assert container(web)["image"] == image


@story
async def test_the_image_is_the_managers_own(world: AddonWorld) -> None:
    """Read from its Pod's container; without a Pod somebody has to say which, and until then it is told so."""
    containers = [{"name": "proxy", "image": "proxy:1"}, {"name": "manager", "image": IMAGE}]
    metadata = {"name": "capox-0", "namespace": "other"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    world.store.create(PODS, "other", pod)
    assert await OwnImage(world.kube, ("other", "capox-0"))() == IMAGE
    assert await OwnImage(world.kube, ("other", "capox-0"), "chosen:1")() == "chosen:1"
    assert await OwnImage(world.kube, ("other", "gone"))() == await OwnImage(world.kube, None)() == ""

    world.restart("")
    web = world.add_cluster("web")
    await world.look("web")
    assert world.condition("web")[:2] == ("False", "InvalidConfiguration")
    assert "--ccm-image" in world.condition("web")[2]
    assert web.documents() == {}
