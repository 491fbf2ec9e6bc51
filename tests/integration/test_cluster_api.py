"""Cluster API's own controllers and webhooks run, and they know this provider's kinds."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest

from hack.controlplane.capi import is_established
from hack.controlplane.plane import CommandError
from hack.controlplane.programs import CAPI_CORE
from tests.integration.conftest import CRDS
from tests.integration.manifests import CONTROL_PLANE, CORE, INFRASTRUCTURE, ClusterManifests, collection
from tests.integration.waiting import eventually

if TYPE_CHECKING:
    from hack.controlplane.capi import ManagementCluster


@pytest.fixture
def manifests(own_kinds: ManagementCluster, namespace: str) -> ClusterManifests:
    """A Cluster that was applied to a namespace of its own."""
    applied = ClusterManifests("story", namespace)
    own_kinds.kubectl("apply", "-f", "-", stdin=json.dumps(applied.document()))
    return applied


def owners(plane: ManagementCluster, path: str) -> list[tuple[str, str]]:
    """Kind and name of an object's owners."""
    references: list[dict[str, Any]] = plane.client.get(path)["metadata"].get("ownerReferences", [])
    return [(reference["kind"], reference["name"]) for reference in references]


def test_own_kinds_are_established(own_kinds: ManagementCluster) -> None:
    """The CRDs of this tree are accepted and served, under the names by which Cluster API looks for them."""
    definitions = own_kinds.client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    served = {item["metadata"]["name"] for item in definitions if is_established(item)}
    own = {f"{path.stem}.{INFRASTRUCTURE}" for path in CRDS.glob("oxide*.yaml")}

    assert len(own) >= 4
    assert own <= served


def test_a_cluster_owns_its_parts(own_kinds: ManagementCluster, manifests: ClusterManifests) -> None:
    """Core finds the OxideCluster and the KubeadmControlPlane through our CRDs' labels and takes them for its own."""
    infrastructure = collection(INFRASTRUCTURE, "v1alpha1", manifests.namespace, "oxideclusters")
    control_planes = collection(CONTROL_PLANE, "v1beta2", manifests.namespace, "kubeadmcontrolplanes")
    for path in (f"{infrastructure}/story", f"{control_planes}/story"):
        owned_by = eventually(f"an owner of {path}", functools.partial(owners, own_kinds, path))

        assert owned_by == [("Cluster", "story")]
    label = own_kinds.client.get(f"{infrastructure}/story")["metadata"]["labels"]
    assert label["cluster.x-k8s.io/cluster-name"] == "story"


def test_describe_shows_the_cluster(own_kinds: ManagementCluster, manifests: ClusterManifests) -> None:
    """`clusterctl describe cluster` draws the tree with our kind in it; Machines come with infrastructure."""

    def described() -> str:
        text = own_kinds.clusterctl("describe", "cluster", "story", "--namespace", manifests.namespace, "--echo")
        return text if all(f"─{part}" in text for part in parts) else ""

    place = manifests.namespace
    parts = [f"OxideCluster {place}/story", f"KubeadmControlPlane {place}/story"]
    tree = eventually(f"a tree with {parts}", described)

    assert f"\nCluster {place}/story " in tree


def test_a_webhook_refuses_nonsense(own_kinds: ManagementCluster, namespace: str) -> None:
    """An even number of control plane machines with stacked etcd is refused, by Cluster API's own words."""
    even = ClusterManifests("even", namespace, replicas=2)

    with pytest.raises(CommandError, match="cannot be an even number when etcd is stacked"):
        own_kinds.kubectl("create", "-f", "-", stdin=json.dumps(even.kubeadm_control_plane()))


def test_a_webhook_fills_in_defaults(own_kinds: ManagementCluster, namespace: str) -> None:
    """A MachineDeployment without a strategy gets one: the mutating webhooks answer too."""
    written = ClusterManifests("defaults", namespace).machine_deployment()
    assert "rollout" not in written["spec"]

    stored = own_kinds.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(written))

    assert json.loads(stored)["spec"]["rollout"]["strategy"]["type"] == "RollingUpdate"


def test_old_clients_are_served_by_conversion(own_kinds: ManagementCluster, manifests: ClusterManifests) -> None:
    """A Cluster written as v1beta2 can be read as v1beta1, where references have a version."""
    old = own_kinds.client.get(f"{collection(CORE, 'v1beta1', manifests.namespace, 'clusters')}/story")

    assert old["apiVersion"] == f"{CORE}/v1beta1"
    assert old["spec"]["infrastructureRef"]["apiVersion"] == f"{INFRASTRUCTURE}/v1alpha1"


def test_managers_have_the_rights_they_ship_with(control_plane: ManagementCluster) -> None:
    """Core runs as its ServiceAccount: it may write infrastructure objects, and it is no administrator."""
    account = "--as=system:serviceaccount:capi-system:capi-manager"

    allowed = control_plane.kubectl("auth", "can-i", "patch", f"oxideclusters.{INFRASTRUCTURE}", account)
    assert allowed.strip() == "yes"
    with pytest.raises(CommandError, match="no"):
        control_plane.kubectl("auth", "can-i", "delete", "nodes", account)


def test_clusterctl_knows_what_is_installed(control_plane: ManagementCluster) -> None:
    """The inventory has the three providers, so clusterctl finds nothing to do, and needs no network to say so."""
    plan = control_plane.clusterctl("upgrade", "plan")

    assert "You are already up to date!" in plan
    assert plan.count(CAPI_CORE.version) == 3


def test_a_cluster_can_be_deleted(own_kinds: ManagementCluster, manifests: ClusterManifests) -> None:
    """Deleting the Cluster takes its infrastructure along, through core's finalizer and the garbage collector."""
    path = f"{collection(INFRASTRUCTURE, 'v1alpha1', manifests.namespace, 'oxideclusters')}/story"
    eventually("an owner of the OxideCluster", functools.partial(owners, own_kinds, path))

    arguments = ("delete", "cluster", "story", "--namespace", manifests.namespace, "--timeout=120s")
    own_kinds.kubectl(*arguments, timeout_seconds=130)

    assert not own_kinds.client.exists(path)
