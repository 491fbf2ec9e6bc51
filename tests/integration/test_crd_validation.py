"""A real apiserver takes the CRDs, takes what is valid, and refuses the rest with words that help.

Nearly every object here is sent as a dry run: the apiserver validates it in full and stores nothing.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.api.crdgen import custom_resource_definition
from capox.api.resource import CUSTOM_RESOURCES
from capox.api.v1alpha1 import API_VERSION, GROUP, VERSION
from hack.controlplane.errors import RequestError
from hack.controlplane.plane import ControlPlane
from tests.integration.waiting import await_established
from tests.unit.api import go_provider
from tests.unit.api.crd_values import (
    CLUSTER_SPEC,
    INVALID,
    MACHINE_SPEC,
    NAMESPACE,
    UUID,
    VALID,
    Case,
    changed,
    spec_of,
    thing,
)

CRDS = Path(__file__).resolve().parents[2] / "crds"
DRY_RUN = "dryRun=All&fieldValidation=Strict"


def collection(kind: str, namespace: str = NAMESPACE) -> str:
    """Give the URL path of a kind's objects."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{kind.lower()}s"


def refusal(plane: ControlPlane, document: dict[str, Any]) -> str:
    """Create an object that must be refused; give the apiserver's words."""
    with pytest.raises(RequestError) as failure:
        plane.client.post(f"{collection(document['kind'])}?{DRY_RUN}", document)
    assert failure.value.status == 422, failure.value
    return str(failure.value)


@pytest.fixture(scope="module")
def plane(own_kinds: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane, serving the CRDs of this tree, with a namespace of this module's own."""
    path = f"/api/v1/namespaces/{NAMESPACE}"
    own_kinds.client.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield own_kinds
    own_kinds.client.request("DELETE", path)


@pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.plural)
def test_the_apiserver_finds_nothing_to_complain_about(plane: ControlPlane, resource: Any) -> None:
    """The CRD is served, its names are accepted, and its schema is structural."""
    crd = plane.client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.plural}.{GROUP}")

    states = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert states == {"Established": "True", "NamesAccepted": "True"}


@pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.plural)
def test_the_apiserver_keeps_the_schema_as_it_was_written(plane: ControlPlane, resource: Any) -> None:
    """No keyword is dropped or rewritten, so neither `kubectl diff` nor GitOps ever sees a difference."""
    crd = plane.client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.plural}.{GROUP}")

    (stored,) = crd["spec"]["versions"]
    (written,) = yaml.safe_load((CRDS / f"{resource.plural}.yaml").read_text())["spec"]["versions"]
    assert stored == written


@pytest.mark.parametrize(
    "document",
    [
        go_provider.oxide_cluster(),
        go_provider.oxide_machine(),
        go_provider.oxide_machine_before_its_instance(),
        go_provider.oxide_machine_template(),
    ],
    ids=["cluster", "machine", "machine before its instance", "machine template"],
)
def test_what_the_go_provider_leaves_is_taken_as_it_is(plane: ControlPlane, document: dict[str, Any]) -> None:
    """Users switch without editing a manifest; not one field is unknown, and nothing is added."""
    document = copy.deepcopy(document)
    document["metadata"]["namespace"] = NAMESPACE
    document["metadata"].pop("ownerReferences", None)

    answer = plane.client.post(f"{collection(document['kind'])}?{DRY_RUN}", document)

    assert answer["spec"] == document["spec"]


@pytest.mark.parametrize(("kind", "path", "value"), VALID, ids=lambda value: str(value)[:40])
def test_what_is_within_the_limits_is_taken_and_nothing_is_added(
    plane: ControlPlane, kind: str, path: str, value: Any
) -> None:
    """The ends of every range are inside it, `""` is absent, and no default appears (C-T-5)."""
    spec = changed(spec_of(kind), path, value)
    document = thing(kind, spec)

    answer = plane.client.post(f"{collection(kind)}?{DRY_RUN}", document)

    assert answer["spec"] == document["spec"]


@pytest.mark.parametrize("case", INVALID, ids=lambda case: f"{case[0]} {case[1]} {str(case[2])[:30]}")
def test_what_is_beyond_a_limit_is_refused_in_words_that_help(plane: ControlPlane, case: Case) -> None:
    """The refusal names the field, and says the value and the limit."""
    kind, path, value, field, words = case

    said = refusal(plane, thing(kind, changed(spec_of(kind), path, value)))

    assert f"{field}: " in said
    assert words in said


def test_an_unknown_field_is_told_to_who_asks_and_dropped_for_the_others(plane: ControlPlane) -> None:
    """Kubectl warns of a misspelt field; a client of a newer version is served without it."""
    document = thing("OxideMachine", {**MACHINE_SPEC, "ncpus": 4})

    with pytest.raises(RequestError, match=r'unknown field "spec\.ncpus"'):
        plane.client.post(f"{collection('OxideMachine')}?{DRY_RUN}", document)
    assert plane.client.post(f"{collection('OxideMachine')}?dryRun=All", document)["spec"] == MACHINE_SPEC


def test_the_provider_id_is_set_once(plane: ControlPlane) -> None:
    """The first one is taken at any time; it neither changes nor goes away, and other fields may change (C-IM-13)."""
    path = f"{collection('OxideMachine')}/identity"
    plane.client.post(collection("OxideMachine"), thing("OxideMachine", {**MACHINE_SPEC, "providerID": ""}, "identity"))
    try:
        first = f"oxide://{UUID}"

        def patch(patch_body: dict[str, Any]) -> dict[str, Any]:
            return plane.client.request("PATCH", path, patch_body, content_type="application/merge-patch+json")

        assert patch({"spec": {"providerID": first}})["spec"]["providerID"] == first
        assert (
            patch({"metadata": {"labels": {"a": "b"}}, "spec": {"powerPolicy": "Observe"}})["spec"]["powerPolicy"]
            == "Observe"
        )
        for other in (first.replace("f47", "a47"), "", None):
            with pytest.raises(RequestError) as failure:
                patch({"spec": {"providerID": other}})
            assert "spec.providerID: Invalid value: " in str(failure.value)
            assert f"is set once and cannot change from '{first}' to '{other or ''}'" in str(failure.value)
    finally:
        plane.client.request("DELETE", path)


@pytest.mark.parametrize(
    ("kind", "spec"), [("OxideClusterTemplate", CLUSTER_SPEC), ("OxideMachineTemplate", MACHINE_SPEC)]
)
def test_a_template_may_change_in_a_dry_run(plane: ControlPlane, kind: str, spec: dict[str, Any]) -> None:
    """ClusterClass finds out by a dry run whether a template must be rotated; a refusal would stop it (C-T-4)."""
    path = f"{collection(kind)}/rotation"
    plane.client.post(collection(kind), thing(kind, spec, "rotation"))
    try:
        changes: dict[str, Any] = {"project": "other"} if kind == "OxideClusterTemplate" else {"nCPUs": 8}
        desired = thing(kind, spec | changes, "rotation")
        desired["metadata"]["annotations"] = {"topology.cluster.x-k8s.io/dry-run": ""}

        answer = plane.client.request(
            "PATCH",
            f"{path}?fieldManager=capi-topology&force=true&dryRun=All",
            desired,
            content_type="application/apply-patch+yaml",
        )

        assert answer["spec"] == desired["spec"]
    finally:
        plane.client.request("DELETE", path)


@pytest.fixture
def stored_machine(plane: ControlPlane) -> Iterator[str]:
    """A stored OxideMachine; its URL path."""
    path = f"{collection('OxideMachine')}/stored"
    document = thing("OxideMachine", {**MACHINE_SPEC, "providerID": f"oxide://{UUID}"}, "stored")
    document["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "prod"}
    # In a group that is not served: that an owner of Cluster API's is missing, garbage collection would find out.
    document["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.org/v1", "kind": "Machine", "name": "prod-cp-1", "uid": UUID}
    ]
    plane.client.post(collection("OxideMachine"), document)
    yield path
    plane.client.request("DELETE", path)


GOOD_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "InstanceRunning",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}


def test_status_is_written_apart_from_the_spec(plane: ControlPlane, stored_machine: str) -> None:
    """A write of the status leaves the spec alone, and a write of the object leaves the status alone."""
    status = {
        "initialization": {"provisioned": True},
        "addresses": [{"type": "InternalIP", "address": "172.30.0.5"}],
        "conditions": [GOOD_CONDITION],
        "observedGeneration": 1,
    }

    answer = plane.client.patch_status(stored_machine, {"spec": {"nCPUs": 99}, "status": status})

    assert answer["status"] == status
    assert answer["spec"]["nCPUs"] == MACHINE_SPEC["nCPUs"]
    answer = plane.client.request(
        "PATCH", stored_machine, {"status": {"addresses": []}}, content_type="application/merge-patch+json"
    )
    assert answer["status"] == status


@pytest.mark.parametrize(
    ("status", "field", "words"),
    [
        ({"observedGeneration": -1}, "status.observedGeneration", "greater than or equal to 0"),
        ({"initialization": {"provisioned": "yes"}}, "status.initialization.provisioned", "must be of type boolean"),
        ({"addresses": [{"type": "IP", "address": "a"}]}, "status.addresses[0].type", "supported values"),
        ({"addresses": [{"type": "Hostname", "address": ""}]}, "status.addresses[0].address", "at least 1"),
        ({"addresses": [{"type": "Hostname", "address": "a" * 257}]}, "status.addresses[0].address", "more than 256"),
        ({"addresses": [{"type": "Hostname", "address": "a"}] * 33}, "status.addresses", "at most 32 items"),
        ({"conditions": [GOOD_CONDITION] * 2}, "status.conditions[1]", "Duplicate value"),
        ({"conditions": [GOOD_CONDITION | {"status": "Maybe"}]}, "status.conditions[0].status", "supported values"),
        ({"conditions": [GOOD_CONDITION | {"reason": "two words"}]}, "status.conditions[0].reason", "should match"),
        ({"conditions": [GOOD_CONDITION | {"reason": ""}]}, "status.conditions[0].reason", "at least 1"),
        ({"conditions": [GOOD_CONDITION | {"reason": "r" * 1025}]}, "status.conditions[0].reason", "more than 1024"),
        ({"conditions": [GOOD_CONDITION | {"message": "m" * 32769}]}, "status.conditions[0].message", "than 32768"),
        ({"conditions": [GOOD_CONDITION | {"type": "a b"}]}, "status.conditions[0].type", "should match"),
        (
            {"conditions": [GOOD_CONDITION | {"lastTransitionTime": "now"}]},
            "status.conditions[0].lastTransitionTime",
            "date-time",
        ),
        (
            {"conditions": [GOOD_CONDITION | {"type": f"Type{number}"} for number in range(33)]},
            "status.conditions",
            "at most 32 items",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_status_beyond_a_limit_is_refused(
    plane: ControlPlane, stored_machine: str, status: dict[str, Any], field: str, words: str
) -> None:
    """What Cluster API could not read is never stored (C-CO-2)."""
    with pytest.raises(RequestError) as failure:
        plane.client.patch_status(stored_machine, {"status": status})

    assert f"{field}: " in str(failure.value)
    assert words in str(failure.value)


def test_kubectl_shows_machine_and_cluster(plane: ControlPlane, stored_machine: str) -> None:
    """The columns show what their heads promise, the category finds the kind, and `explain` has words."""
    plane.client.patch_status(
        stored_machine,
        {
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "h"},
                    {"type": "InternalIP", "address": "172.30.0.5"},
                    {"type": "InternalIP", "address": "fd00::5"},
                ],
                "conditions": [GOOD_CONDITION, GOOD_CONDITION | {"type": "Paused", "status": "False"}],
            }
        },
    )

    head, row = plane.kubectl("get", "oxidemachines", "-n", NAMESPACE, "-o", "wide").splitlines()

    assert head.split() == ["NAME", "CLUSTER", "PROVIDERID", "READY", "REASON", "AGE", "MACHINE", "ADDRESS", "PAUSED"]
    cells = row.split()
    assert cells[:5] == ["stored", "prod", f"oxide://{UUID}", "True", "InstanceRunning"]
    assert cells[6:] == ["prod-cp-1", "172.30.0.5", "False"]
    assert "oxidemachine.infrastructure.cluster.x-k8s.io/stored" in plane.kubectl(
        "get", "cluster-api", "-n", NAMESPACE, "-o", "name"
    )
    assert "rounded up to a multiple of 1Gi" in plane.kubectl("explain", "oxidemachine.spec.memory").replace("\n", " ")


def test_kubectl_shows_the_cluster(plane: ControlPlane) -> None:
    """The endpoint and the attachment of the floating IP are seen at a glance."""
    path = f"{collection('OxideCluster')}/shown"
    document = thing("OxideCluster", {**CLUSTER_SPEC, "controlPlaneEndpoint": {"host": "45.154.216.131"}}, "shown")
    document["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "prod"}
    plane.client.post(collection("OxideCluster"), document)
    try:
        status = copy.deepcopy(go_provider.oxide_cluster()["status"])
        plane.client.patch_status(path, {"status": status})

        head, row = plane.kubectl("get", "oxideclusters", "-n", NAMESPACE).splitlines()

        assert head.split() == ["NAME", "CLUSTER", "ENDPOINT", "READY", "ATTACHMENT", "AGE"]
        assert row.split()[:5] == ["shown", "prod", "45.154.216.131", "True", "FloatingIPAttached"]
    finally:
        plane.client.request("DELETE", path)


def test_an_object_older_than_a_limit_can_still_be_changed_and_deleted(plane: ControlPlane) -> None:
    """What was stored before the limits came keeps its values, and its finalizer can be taken off (B22).

    The kind here has the schema of an OxideMachine and names of its own: first it has no limits, then ours.
    """
    group, plural = "example.org", "ratchets"
    (resource,) = (resource for resource in CUSTOM_RESOURCES if resource.plural == "oxidemachines")
    limited = custom_resource_definition(resource)
    limited["metadata"] = {"name": f"{plural}.{group}"}
    limited["spec"]["group"] = group
    limited["spec"]["names"] = {"kind": "Ratchet", "listKind": "RatchetList", "plural": plural, "singular": "ratchet"}
    lax = copy.deepcopy(limited)
    schema = lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}"
    objects = f"/apis/{group}/{VERSION}/namespaces/{NAMESPACE}/{plural}"
    plane.client.apply(crd, lax)
    try:
        await_established(plane)
        old = thing("Ratchet", {**MACHINE_SPEC, "nCPUs": 0, "memory": "1Mi", "imageID": "ubuntu"}, "old")
        old["apiVersion"] = f"{group}/{VERSION}"
        old["metadata"]["finalizers"] = [f"oxidemachine.{GROUP}"]
        plane.client.apply(f"{objects}/old", old)
        plane.client.apply(crd, limited)
        wait_until_refused(plane, objects, {**old, "metadata": {"name": "new", "namespace": NAMESPACE}})

        plane.client.patch_status(f"{objects}/old", {"status": {"conditions": [GOOD_CONDITION]}})
        plane.client.request("DELETE", f"{objects}/old")
        plane.client.request(
            "PATCH", f"{objects}/old", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json"
        )

        assert not plane.client.exists(f"{objects}/old")
    finally:
        plane.client.request("DELETE", crd)


def wait_until_refused(plane: ControlPlane, path: str, document: dict[str, Any]) -> None:
    """Wait, for at most 30 s, until the apiserver works by the new schema: it then refuses the document."""
    plane.processes.wait_until(
        "kube-apiserver",
        lambda: is_refused(plane, path, document),
        within_seconds=30,
        what="refusing by the new schema",
    )


def is_refused(plane: ControlPlane, path: str, document: dict[str, Any]) -> bool:
    """Tell whether the apiserver finds an object invalid."""
    try:
        plane.client.post(f"{path}?dryRun=All", document)
    except RequestError as error:
        return error.status == 422
    return False
