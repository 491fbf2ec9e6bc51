"""The committed CRDs are what the models say, and keep the rules of Kubernetes, Cluster API and clusterctl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.api.crdgen import COMMAND, generated_files, stale_files

ROOT = Path(__file__).resolve().parents[2]
GROUP = "infrastructure.cluster.x-k8s.io"
KINDS = ["OxideCluster", "OxideClusterTemplate", "OxideMachine", "OxideMachineTemplate"]

# Every keyword of OpenAPI 3.0 and Kubernetes that may stand in our schemas. Not among them, on purpose: default
# (C-T-5), nullable, title, $ref, const, uniqueItems, oneOf, allOf, not.
KEYWORDS = {
    "additionalProperties",
    "anyOf",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
}


def load(kind: str) -> dict[str, Any]:
    """Read the committed CRD of a kind."""
    document: dict[str, Any] = yaml.safe_load((ROOT / f"crds/{kind.lower()}s.yaml").read_text())
    return document


def schema_of(kind: str) -> dict[str, Any]:
    """Give the schema of a kind's one version."""
    (version,) = load(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Give a schema and every schema below it, with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def rules(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Give every CEL rule of a schema, with the path of the field it stands on."""
    for path, node in nodes(schema):
        for rule in node.get("x-kubernetes-validations", []):
            yield path, rule


def without_rules(schema: Any) -> Any:
    """Give a schema without its CEL rules and descriptions: its shape."""
    if isinstance(schema, dict):
        hidden = {"x-kubernetes-validations", "description"}
        return {key: without_rules(value) for key, value in schema.items() if key not in hidden}
    return schema


def test_the_committed_files_are_what_the_models_say() -> None:
    """A change of the models comes with its CRDs and its reference page."""
    stale = stale_files(ROOT, generated_files())

    assert not stale, f"{', '.join(stale)} not what capox/api says; run `{COMMAND}` and commit the result"


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_those_that_cluster_api_computes(kind: str) -> None:
    """A reference names a kind; core computes the CRD's name from it, and a wrong one resolves nothing (C-ALL-2)."""
    crd = load(kind)

    assert crd["metadata"]["name"] == f"{kind.lower()}s.{GROUP}"
    assert crd["spec"]["group"] == GROUP
    assert crd["spec"]["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": f"{kind.lower()}s",
        "singular": kind.lower(),
        "categories": ["cluster-api"],
    }
    assert crd["spec"]["scope"] == "Namespaced"


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_the_contract(kind: str) -> None:
    """Core finds our version by its contract label, clusterctl finds the CRD by the others (C-ALL-3, C-ALL-4, L-40)."""
    crd = load(kind)

    assert crd["metadata"]["labels"] == {
        "cluster.x-k8s.io/provider": "infrastructure-oxide",
        "cluster.x-k8s.io/v1beta2": "v1alpha1",
        "clusterctl.cluster.x-k8s.io": "",
    }
    assert [(v["name"], v["served"], v["storage"]) for v in crd["spec"]["versions"]] == [("v1alpha1", True, True)]
    assert "conversion" not in crd["spec"], "no webhook while there is one version (C-ALL-8)"


@pytest.mark.parametrize(
    ("kind", "subresources"),
    [
        ("OxideCluster", {"status": {}}),
        ("OxideMachine", {"status": {}}),
        ("OxideMachineTemplate", {"status": {}}),
        ("OxideClusterTemplate", None),
    ],
)
def test_status_is_a_subresource_where_there_is_one(kind: str, subresources: dict[str, Any] | None) -> None:
    """Status has its own rights and its own writes; a cluster template has none (C-ALL-5)."""
    (version,) = load(kind)["spec"]["versions"]

    assert version.get("subresources") == subresources


@pytest.mark.parametrize(
    ("kind", "columns", "wide"),
    [
        ("OxideCluster", ["Cluster", "Endpoint", "Ready", "Attachment", "Age"], []),
        ("OxideMachine", ["Cluster", "ProviderID", "Ready", "Reason", "Age"], ["Machine", "Address", "Paused"]),
        ("OxideMachineTemplate", [], []),
        ("OxideClusterTemplate", [], []),
    ],
)
def test_kubectl_get_shows_the_columns_that_users_know(kind: str, columns: list[str], wide: list[str]) -> None:
    """The Go provider's columns come first and in its order; ours show with `-o wide` (C-ALL-7)."""
    (version,) = load(kind)["spec"]["versions"]
    shown = version.get("additionalPrinterColumns", [])

    assert [column["name"] for column in shown if not column.get("priority")] == columns
    assert [column["name"] for column in shown if column.get("priority")] == wide


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: str) -> None:
    """Every field has a type and only keywords that the apiserver keeps; unions are int-or-string alone."""
    for path, node in nodes(schema_of(kind)):
        assert node.keys() <= KEYWORDS, path
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            assert "type" not in node, path
        else:
            assert isinstance(node["type"], str), path
            assert "anyOf" not in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert set(node.get("required", [])) <= node.get("properties", {}).keys(), path


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_says_nothing_of_the_metadata(kind: str) -> None:
    """The apiserver refuses a CRD that restricts or even describes the metadata of its objects."""
    assert schema_of(kind)["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_filled_in_by_the_apiserver(kind: str) -> None:
    """A default that a release adds would change every template and roll out every ClusterClass cluster (C-T-5)."""
    for path, node in nodes(schema_of(kind)):
        assert "default" not in node, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_says_how_it_is_merged(kind: str) -> None:
    """Server-side apply by core, GitOps and people merges lists by these marks (C-ALL-9)."""
    for path, node in nodes(schema_of(kind)):
        if node.get("type") != "array":
            assert "x-kubernetes-list-type" not in node, path
            continue
        match node["x-kubernetes-list-type"]:
            case "map":
                (key,) = node["x-kubernetes-list-map-keys"]
                assert key in node["items"]["required"], path
            case "set":
                assert node["items"]["type"] == "string", path
            case other:
                assert other == "atomic", path


def test_list_types_are_the_chosen_ones() -> None:
    """Data disks are named by their place, so the list has one owner; conditions have an owner each."""
    found = {
        path: node["x-kubernetes-list-type"]
        for path, node in nodes(schema_of("OxideMachine"))
        if node.get("type") == "array"
    }

    assert found == {
        ".spec.antiAffinityGroups": "set",
        ".spec.sshPublicKeys": "set",
        ".spec.dataDisks": "atomic",
        ".spec.networkInterfaces": "atomic",
        ".spec.networkInterfaces[].transitIPs": "set",
        ".spec.primaryNetworkInterface.transitIPs": "set",
        ".status.addresses": "atomic",
        ".status.disks": "atomic",
        ".status.conditions": "map",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_rules_have_messages_and_run_on_bounded_values(kind: str) -> None:
    """A refusal says what is expected, and no rule can become expensive."""
    found = dict(rules(schema_of(kind)))

    assert found
    for path, rule in rules(schema_of(kind)):
        assert rule.keys() <= {"rule", "messageExpression", "fieldPath"}, path
        assert len(rule["messageExpression"]) < 2048, path
        assert "\n" not in rule["rule"] + rule["messageExpression"], path


@pytest.mark.parametrize("kind", ["OxideClusterTemplate", "OxideMachineTemplate"])
def test_no_rule_of_a_template_looks_at_its_former_self(kind: str) -> None:
    """A transition rule in a template's CRD breaks the dry runs of ClusterClass (C-T-4)."""
    for path, rule in rules(schema_of(kind)):
        assert "oldSelf" not in rule["rule"], path


def test_the_only_transition_rules_keep_identities() -> None:
    """A spec may change but for the identity of its machine or cluster, once set (C-IM-13)."""
    transitions = [
        (kind, path, rule.get("fieldPath"))
        for kind in KINDS
        for path, rule in rules(schema_of(kind))
        if "oldSelf" in rule["rule"]
    ]

    assert sorted(transitions) == [("OxideCluster", ".spec", ".clusterID"), ("OxideMachine", ".spec", ".providerID")]


@pytest.mark.parametrize("kind", ["OxideCluster", "OxideMachine"])
def test_a_template_has_the_shape_of_its_kind(kind: str) -> None:
    """Core clones `spec.template.spec` into the kind's spec, so both take the same (C-T-1)."""
    template = schema_of(f"{kind}Template")["properties"]["spec"]["properties"]["template"]

    assert set(template["properties"]) == {"metadata", "spec"}
    assert without_rules(template["properties"]["spec"]) == without_rules(schema_of(kind)["properties"]["spec"])


def test_contract_fields_have_the_contracts_types() -> None:
    """Core reads these paths and wants these types (the tables of C-IC and C-IM)."""
    cluster, machine = (dict(nodes(schema_of(kind))) for kind in ("OxideCluster", "OxideMachine"))

    assert cluster[".spec.controlPlaneEndpoint.host"]["maxLength"] == 512
    port = cluster[".spec.controlPlaneEndpoint.port"]
    assert (port["format"], port["minimum"], port["maximum"]) == ("int32", 1, 65535)
    assert machine[".spec.providerID"]["maxLength"] <= 512
    assert machine[".status.addresses[].address"]["maxLength"] == 256
    for schema in (cluster, machine):
        assert schema[".status.initialization.provisioned"]["type"] == "boolean"
        assert schema[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
        assert set(schema[".status.conditions[]"]["required"]) == {
            "type",
            "status",
            "reason",
            "message",
            "lastTransitionTime",
        }
        # C-IM: core would copy these over the Machine; C-IC-8: v1beta2 has no terminal failures.
        assert not schema.keys() & {".spec.failureDomain", ".status.ready", ".status.failureReason"}


def test_clusterctl_finds_no_variables() -> None:
    """Clusterctl substitutes over the whole components file, CRDs included (L-5)."""
    for path in (ROOT / "crds").iterdir():
        text = path.read_text()
        assert "${" not in text, path
        assert "$$" not in text, path


def test_the_kustomization_names_every_crd() -> None:
    """config/ builds on the folder, and nothing in it is forgotten."""
    kustomization = yaml.safe_load((ROOT / "crds/kustomization.yaml").read_text())

    assert kustomization["resources"] == sorted(f"{kind.lower()}s.yaml" for kind in KINDS)
    assert {path.name for path in (ROOT / "crds").iterdir()} == {*kustomization["resources"], "kustomization.yaml"}
