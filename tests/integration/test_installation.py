"""Installing the provider: what is applied, what its policies refuse, what its account may do, what clusterctl reads.

The installation is tried on a control plane of its own, as bare as a user's: the policies would bite other tests.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.binaries import Binaries
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import RequestError
from hack.controlplane.plane import CommandError, ControlPlane
from hack.controlplane.programs import KUBECTL
from hack.release.assemble import CONFIG, Release, assemble
from tests.contract.kustomization import build
from tests.integration.waiting import await_established, eventually
from tests.unit.api.crd_values import MACHINE_SPEC, UUID, changed, thing

ACCOUNT = "system:serviceaccount:capox-system:capox-manager"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
VARIABLES = {
    "OXIDE_PROJECT": "kubernetes",
    "OXIDE_IMAGE_ID": UUID,
    "KUBERNETES_VERSION": "v1.36.3",
    "CONTROL_PLANE_MACHINE_COUNT": "3",
}

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of which nobody but this module knows, with the provider installed and its policies in force."""
    with ControlPlane(binaries, directory=tmp_path_factory.mktemp("installation")) as own:
        own.kubectl("apply", "-k", str(CONFIG / "default"))
        await_established(own)
        # The plugin learns of new policies a moment after they were made.
        own.kubectl("create", "namespace", "try")
        Tenant(own, "try").create(thing("OxideMachineTemplate", MACHINE_SPEC))
        eventually("the policies are in force", lambda: is_refused(own), within_seconds=60)
        yield own


def is_refused(plane: ControlPlane) -> bool:
    """Whether a template may no longer be changed."""
    try:
        Tenant(plane, "try").change(
            "oxidemachinetemplates", {"spec": {"template": {"spec": {"nCPUs": 64}}}}, dry_run=True
        )
    except RequestError as error:
        return error.status == 422
    return False


class Tenant:
    """Objects of this provider in a namespace.

    Args:
        plane: the control plane.
        namespace: the namespace.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def create(self, document: dict[str, Any]) -> None:
        """Make an object."""
        document = copy.deepcopy(document)
        document["metadata"]["namespace"] = self.namespace
        self.plane.client.post(self._path(f"{document['kind'].lower()}s"), document)

    def change(self, plural: str, patch: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Patch the object `probe`.

        Raises:
            RequestError: the change is refused.
        """
        path = f"{self._path(plural)}/probe{'?dryRun=All' if dry_run else ''}"
        return self.plane.client.request("PATCH", path, patch, content_type="application/merge-patch+json")

    def refusal(self, plural: str, patch: dict[str, Any]) -> str:
        """Patch the object `probe`, which must be refused as invalid; give the words."""
        with pytest.raises(RequestError) as failure:
            self.change(plural, patch)
        assert failure.value.status == 422, failure.value
        return str(failure.value)

    def _path(self, plural: str) -> str:
        return f"/apis/{INFRASTRUCTURE}/v1alpha1/namespaces/{self.namespace}/{plural}"


@pytest.fixture
def tenant(plane: ControlPlane) -> Tenant:
    """A namespace for one test, with a machine and a template named `probe`."""
    name = f"try-{secrets.token_hex(4)}"
    plane.kubectl("create", "namespace", name)
    made = Tenant(plane, name)
    made.create(thing("OxideMachine", MACHINE_SPEC))
    made.create(thing("OxideMachineTemplate", MACHINE_SPEC))
    return made


def key(each: dict[str, Any]) -> tuple[str, str]:
    """What an object is called."""
    return each["kind"], each["metadata"]["name"]


def test_applying_it_again_changes_nothing(plane: ControlPlane) -> None:
    """The apiserver keeps what is applied as it was written, so GitOps finds no difference, nor does `kubectl diff`."""
    again = plane.kubectl("apply", "-k", str(CONFIG / "default")).splitlines()

    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert plane.kubectl("diff", "-k", str(CONFIG / "default")) == ""


def test_kubectl_makes_of_it_what_the_rules_were_tried_on(plane: ControlPlane) -> None:
    """The contract tests read config/ without kubectl; they read the same objects."""
    rendered = list(yaml.safe_load_all(plane.kubectl("kustomize", str(CONFIG / "default"))))

    assert sorted(rendered, key=key) == sorted(build(CONFIG / "default"), key=key)


@pytest.mark.parametrize("policy", ["capox-machine-spec", "capox-template-spec", "capox-secrets-data"])
def test_the_expressions_of_a_policy_fit_the_types(plane: ControlPlane, policy: str) -> None:
    """Kubernetes checks them against the schemas, and has nothing to say."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"

    def status() -> dict[str, Any]:
        found = plane.client.get(path)
        status: dict[str, Any] = found.get("status", {})
        return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}

    assert not eventually("the policy has been checked", status)["typeChecking"].get("expressionWarnings")


CHANGES = [
    ("nCPUs", 8),
    ("memory", "16Gi"),
    ("diskSize", "60Gi"),
    ("imageID", UUID.replace("f", "a")),
    ("antiAffinityGroups", ["group"]),
    ("sshPublicKeys", ["key"]),
    ("ipPool", "pool"),
    ("dataDisks", [{"size": "10Gi"}]),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_what_an_instance_was_made_from_cannot_be_changed(tenant: Tenant, field: str, value: Any) -> None:
    """The refusal names the field and the way to another machine."""
    said = tenant.refusal("oxidemachines", {"spec": {field: value}})

    assert f"spec.{field} of an OxideMachine cannot be changed; make a new Machine from a changed template" in said


def test_what_the_provider_and_cluster_api_write_goes_through(tenant: Tenant) -> None:
    """The first providerID, metadata, and how the instance is kept up; a second providerID does not (C-IM-13)."""
    tenant.change(
        "oxidemachines", {"metadata": {"labels": {"a": "b"}, "finalizers": [f"oxidemachine.{INFRASTRUCTURE}"]}}
    )
    tenant.change("oxidemachines", {"spec": {"providerID": f"oxide://{UUID}"}})
    tenant.change("oxidemachines", {"spec": {"powerPolicy": "Observe"}})

    assert "providerID" in tenant.refusal(
        "oxidemachines", {"spec": {"providerID": f"oxide://{UUID.replace('f', 'a')}"}}
    )


def test_a_template_cannot_be_changed(tenant: Tenant) -> None:
    """The refusal says what to do; its metadata and status are not meant (C-T-4)."""
    said = tenant.refusal("oxidemachinetemplates", {"spec": {"template": {"spec": {"nCPUs": 64}}}})
    tenant.change("oxidemachinetemplates", {"metadata": {"labels": {"a": "b"}}})

    assert "OxideMachineTemplate probe: spec.template.spec cannot be changed; make a new template" in said


@pytest.mark.parametrize(
    ("has_annotation", "is_dry_run", "is_allowed"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_the_topology_may_try_a_change_of_a_template(
    tenant: Tenant, has_annotation: bool, is_dry_run: bool, is_allowed: bool
) -> None:
    """ClusterClass compares by a server-side apply that is a dry run and says so; nothing else passes (C-T-4)."""
    document = thing("OxideMachineTemplate", changed(MACHINE_SPEC, "nCPUs", 64))
    document["metadata"]["namespace"] = tenant.namespace
    if has_annotation:
        document["metadata"]["annotations"] = {"topology.cluster.x-k8s.io/dry-run": ""}
    options = ["--server-side", "--force-conflicts", "--field-manager=capi-topology", "--filename=-"]
    if is_dry_run:
        options.append("--dry-run=server")

    try:
        tenant.plane.kubectl("apply", *options, stdin=json.dumps(document))
        refused = ""
    except CommandError as error:
        refused = str(error)

    assert bool(refused) is not is_allowed
    assert is_allowed or "spec.template.spec cannot be changed" in refused


def test_the_provider_keeps_its_hands_off_the_content_of_secrets(plane: ControlPlane, tenant: Tenant) -> None:
    """Its account may hold a Secret by a finalizer and label it for a move; the content stays its owner's."""
    token = base64.b64encode(b"token").decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "oxide-credentials"},
        "data": {"oxide-token": token},
    }
    plane.kubectl("create", "-n", tenant.namespace, "-f", "-", stdin=json.dumps(secret))

    def patch(patch: dict[str, Any], *options: str) -> str:
        arguments = ["patch", "secret", "oxide-credentials", "-n", tenant.namespace, "--type=merge", *options]
        return plane.kubectl(*arguments, "-p", json.dumps(patch))

    as_provider = f"--as={ACCOUNT}"
    labels = {"clusterctl.cluster.x-k8s.io/move": ""}
    patch({"metadata": {"finalizers": [f"oxidecluster.{INFRASTRUCTURE}/credentials"], "labels": labels}}, as_provider)
    for refused, what in (
        ({"data": {"oxide-token": base64.b64encode(b"other").decode()}}, "data"),
        ({"stringData": {"oxide-host": "https://elsewhere.example.com"}}, "data"),
        ({"data": None}, "data"),
        ({"metadata": {"annotations": {f"{INFRASTRUCTURE}/allowed-namespaces": "*"}}}, "annotations"),
        ({"immutable": True}, "mutability"),
    ):
        with pytest.raises(CommandError, match=f"may change the finalizers and labels of a Secret, not its {what}"):
            patch(refused, as_provider)
    patch({"metadata": {"finalizers": None}}, as_provider)
    patch({"stringData": {"oxide-token": "rotated"}})

    stored = plane.client.get(f"/api/v1/namespaces/{tenant.namespace}/secrets/oxide-credentials")
    assert stored["data"] == {"oxide-token": base64.b64encode(b"rotated").decode()}
    assert stored["metadata"]["labels"] == labels
    assert "finalizers" not in stored["metadata"]


OWN = ["oxideclusters", "oxidemachines", "oxidemachinetemplates"]
LEASES = "coordination.k8s.io/leases"
MAY = [
    *(("default", f"{INFRASTRUCTURE}/{kind}", verb) for kind in OWN for verb in ("get", "list", "watch", "patch")),
    *(("default", f"{INFRASTRUCTURE}/{kind}/status", "patch") for kind in OWN),
    *(("default", f"cluster.x-k8s.io/{kind}", verb) for kind in ("clusters", "machines") for verb in ("get", "watch")),
    *(("default", "/secrets", verb) for verb in ("get", "patch")),
    ("default", "/configmaps", "get"),
    *(("default", "events.k8s.io/events", verb) for verb in ("create", "patch")),
    ("", "authentication.k8s.io/tokenreviews", "create"),
    ("", "authorization.k8s.io/subjectaccessreviews", "create"),
    ("capox-system", LEASES, "create"),
    ("capox-system", f"{LEASES}=capox.{INFRASTRUCTURE}", "patch"),
    ("capox-system", f"{LEASES}=4c4262a8.cluster.x-k8s.io", "get"),
]
MAY_NOT = [
    *(("default", "/secrets", verb) for verb in ("list", "watch", "create", "update", "delete", "deletecollection")),
    *(("default", f"{INFRASTRUCTURE}/{kind}", verb) for kind in OWN for verb in ("create", "delete", "update")),
    *(
        ("default", f"cluster.x-k8s.io/{kind}", verb)
        for kind in ("clusters", "machines")
        for verb in ("patch", "delete")
    ),
    ("default", f"{INFRASTRUCTURE}/oxideclustertemplates", "patch"),
    ("default", "bootstrap.cluster.x-k8s.io/kubeadmconfigs", "get"),
    ("default", LEASES, "create"),
    ("capox-system", f"{LEASES}=another", "patch"),
    ("capox-system", LEASES, "list"),
    *(("default", "/configmaps", verb) for verb in ("list", "watch", "create", "patch", "delete")),
    *(("default", f"/{resource}", "get") for resource in ("pods", "serviceaccounts", "nodes")),
    ("default", "/serviceaccounts/token", "create"),
    ("default", "apps/deployments", "patch"),
    ("default", "rbac.authorization.k8s.io/clusterroles", "bind"),
    ("default", "apiextensions.k8s.io/customresourcedefinitions", "patch"),
    ("default", "admissionregistration.k8s.io/validatingadmissionpolicies", "patch"),
    ("default", "/users", "impersonate"),
]


def can_i(plane: ControlPlane, namespace: str, resource: str, verb: str) -> bool:
    """Ask what `kubectl auth can-i --as` asks.

    Args:
        plane: the control plane.
        namespace: where.
        resource: `group/resource`, `group/resource/subresource`, or either with `=name`.
        verb: what for.
    """
    path, _, name = resource.partition("=")
    group, plural, subresource = [*path.split("/"), ""][:3]
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": {**attributes, "name": name}},
    }
    answer = plane.client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    allowed: bool = answer["status"]["allowed"]
    return allowed


def test_the_account_may_do_its_work_and_no_more(plane: ControlPlane) -> None:
    """Kubernetes' own answers; above all, Secrets can be read by name and not be listed."""
    assert [asked for asked in MAY if not can_i(plane, *asked)] == []
    assert [asked for asked in MAY_NOT if can_i(plane, *asked)] == []


def test_kubectl_says_the_same(plane: ControlPlane) -> None:
    """The question as a person would put it."""
    assert plane.kubectl("auth", "can-i", "get", "secrets", "-A", f"--as={ACCOUNT}").strip() == "yes"
    with pytest.raises(CommandError):
        plane.kubectl("auth", "can-i", "list", "secrets", "-A", f"--as={ACCOUNT}")


def test_the_pod_is_let_into_its_namespace(plane: ControlPlane) -> None:
    """Pod Security `restricted` is enforced there; the manager's Pod passes, one that runs as root does not."""
    (deployment,) = [each for each in build(CONFIG / "default") if each["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "probe"}}
    path = "/api/v1/namespaces/capox-system/pods?dryRun=All"

    plane.client.post(path, pod)
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(RequestError, match="violates PodSecurity"):
        plane.client.post(path, pod)


@pytest.fixture
def release(tmp_path: Path, binaries: Binaries) -> Release:
    """A release as `make release VERSION=v0.1.0` makes it."""
    image = "registry.example.com/cluster-api-provider-oxide-controller:v0.1.0"
    return assemble(tmp_path, version="v0.1.0", image=image, kubectl=binaries.path(KUBECTL))


def generate(plane: ControlPlane, release: Release, *options: str) -> Objects:
    """What clusterctl would install."""
    config = ["--infrastructure", f"oxide:{release.version}", "--config", str(release.configuration)]
    return [each for each in yaml.safe_load_all(plane.clusterctl("generate", "provider", *config, *options)) if each]


def test_clusterctl_finds_the_release_and_needs_nothing_more(plane: ControlPlane, release: Release) -> None:
    """It takes every object as it is, asks for no variable, and the apiserver takes what it makes of them."""
    objects = generate(plane, release)

    deployment = next(each for each in objects if each["kind"] == "Deployment")
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "registry.example.com/cluster-api-provider-oxide-controller:v0.1.0"
    assert sorted(map(key, objects)) == sorted(map(key, build(CONFIG / "default")))
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(document))


def test_clusterctl_finds_the_cluster_template_of_the_release(plane: ControlPlane, release: Release) -> None:
    """Three variables have to be set, everything else has a default."""
    config = ["--infrastructure", f"oxide:{release.version}", "--config", str(release.configuration)]
    listed = plane.clusterctl("generate", "cluster", "web", *config, "--list-variables")

    required, _, optional = listed.partition("Optional Variables:")
    assert re.findall(r"- (\w+)", required) == ["KUBERNETES_VERSION", "OXIDE_IMAGE_ID", "OXIDE_PROJECT"]
    assert "OXIDE_SECRET_NAMESPACE" in optional


def test_clusterctl_installs_into_another_namespace(plane: ControlPlane, release: Release) -> None:
    """Everything moves along, subjects of bindings included, and nothing still names the old one (L-11)."""
    objects = generate(plane, release, "--target-namespace", "elsewhere")

    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"] == ["elsewhere"]
    subjects = [subject for each in objects for subject in each.get("subjects", [])]
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    assert deployment["metadata"]["namespace"] == "elsewhere"
    assert "capox-system" not in json.dumps(deployment["spec"])


def test_the_cluster_template_makes_objects_that_are_accepted(own_kinds: ManagementCluster, namespace: str) -> None:
    """With the variables that have no default, it is a cluster that Cluster API's webhooks and ours take."""
    template = str(CONFIG / "templates" / "cluster-template.yaml")
    arguments = ["generate", "cluster", "web", "--from", template, "--target-namespace", namespace]

    made = own_kinds.clusterctl(*arguments, variables=VARIABLES)
    own_kinds.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=made)

    objects = {key(each): each for each in yaml.safe_load_all(made)}
    cluster = objects["OxideCluster", "web"]
    assert cluster["spec"] == {
        "credentialsRef": {"name": "oxide-credentials", "namespace": namespace},
        "project": "kubernetes",
        "vpc": "default",
        "subnet": "default",
        "ipPool": "",
    }
    assert {each["metadata"]["namespace"] for each in objects.values()} == {namespace}
    assert objects["KubeadmControlPlane", "web-control-plane"]["spec"]["replicas"] == 3
