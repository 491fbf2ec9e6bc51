"""What users install: it keeps the rules of clusterctl and Pod Security, grants what is used, and fits the code."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.api.v1alpha1 import OxideMachineSpec
from capox.kube.access_review import ACCESS_REVIEWS, TOKEN_REVIEWS
from capox.kube.events import EVENTS
from capox.kube.kind import SECRETS, Kind
from capox.kube.lease import LEASES, RELEASE_SECONDS
from capox.kube.manager import DRAIN_SECONDS
from capox.kube.objects import wire_name
from capox.provider import main as provider
from capox.provider.ccm_addon_kinds import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICE_ACCOUNTS
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINE_TEMPLATES, OXIDE_MACHINES
from capox.settings import BindAddress, provider_settings
from hack.image.__main__ import NAME
from hack.release.assemble import IMAGE_IN_CONFIG
from hack.release.rules import RULES, findings
from tests.contract.kustomization import build

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"

Objects = list[dict[str, Any]]
MANAGER_ROLE = "capox-system-manager"


@pytest.fixture(scope="module")
def installed() -> Objects:
    """The objects of config/default."""
    return build(CONFIG / "default")


def of(objects: Objects, kind: str) -> Objects:
    """The objects of a kind."""
    return [each for each in objects if each["kind"] == kind]


def the(objects: Objects, kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of a kind, or of a kind and name."""
    (found,) = [each for each in of(objects, kind) if name in (None, each["metadata"]["name"])]
    return found


def manager_of(objects: Objects) -> dict[str, Any]:
    """The manager's container."""
    (container,) = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_what_is_installed_keeps_every_rule(installed: Objects) -> None:
    """Nothing that clusterctl, Pod Security or our own promises would object to."""
    assert findings(installed) == []


def add_namespace(objects: Objects) -> None:
    """A second Namespace."""
    objects.append(copy.deepcopy(the(objects, "Namespace")))


def move_account(objects: Objects) -> None:
    """The ServiceAccount elsewhere."""
    the(objects, "ServiceAccount")["metadata"]["namespace"] = "default"


def move_subject(objects: Objects) -> None:
    """A binding to another namespace's account."""
    the(objects, "ClusterRoleBinding")["subjects"][0]["namespace"] = "default"


def drop_label(objects: Objects) -> None:
    """A CRD that clusterctl would not find."""
    del of(objects, "CustomResourceDefinition")[0]["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"]


def rename_role(objects: Objects) -> None:
    """A ClusterRole that no upgrade would remove."""
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        the(objects, kind, MANAGER_ROLE)["metadata"]["name"] = "capox-manager"
    the(objects, "ClusterRoleBinding")["roleRef"]["name"] = "capox-manager"


def rename_policy(objects: Objects) -> None:
    """An object that does not tell whose it is."""
    of(objects, "Role")[0]["metadata"]["name"] = "leader-election"


def add_variable(objects: Objects) -> None:
    """Text that clusterctl would replace."""
    manager_of(objects)["env"].append({"name": "X", "value": "a ${VARIABLE}"})


def rename_container(objects: Objects) -> None:
    """A container that clusterctl does not wait for."""
    manager_of(objects)["name"] = "controller"


def drop_tag(objects: Objects) -> None:
    """An image that changes under its name."""
    manager_of(objects)["image"] = "registry.example.com:5000/name:latest"


def name_namespace(objects: Objects) -> None:
    """A namespace in the arguments."""
    manager_of(objects)["args"].append("--leader-election-namespace=capox-system")


def add_webhook(objects: Objects) -> None:
    """A webhook."""
    labels = copy.deepcopy(the(objects, "Deployment")["metadata"]["labels"])
    metadata = {"name": "capox-webhook", "labels": labels, "namespace": "capox-system"}
    objects.append({"kind": "ValidatingWebhookConfiguration", "metadata": metadata})


def run_as_root(objects: Objects) -> None:
    """A Pod of root."""
    the(objects, "Deployment")["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] = False


def keep_capability(objects: Objects) -> None:
    """A container with capabilities."""
    manager_of(objects)["securityContext"]["capabilities"] = {"drop": ["NET_RAW"]}


def write_root(objects: Objects) -> None:
    """A container that can change its own files."""
    del manager_of(objects)["securityContext"]["readOnlyRootFilesystem"]


def use_host_network(objects: Objects) -> None:
    """A Pod in the network of its Node."""
    the(objects, "Deployment")["spec"]["template"]["spec"]["hostNetwork"] = True


def list_secrets(objects: Objects) -> None:
    """The right to see every Secret."""
    the(objects, "ClusterRole", MANAGER_ROLE)["rules"].append(
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    )


def grant_all(objects: Objects) -> None:
    """A wildcard."""
    the(objects, "ClusterRole", MANAGER_ROLE)["rules"].append(
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]}
    )


def rename_account(objects: Objects) -> None:
    """A Pod whose account is not there."""
    the(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] = "default"


def unbind_policy(objects: Objects) -> None:
    """A policy that does nothing."""
    objects.remove(the(objects, "ValidatingAdmissionPolicyBinding", "capox-secrets-data"))


def warn_only(objects: Objects) -> None:
    """A policy that only warns."""
    of(objects, "ValidatingAdmissionPolicyBinding")[0]["spec"]["validationActions"] = ["Warn"]


def fail_open(objects: Objects) -> None:
    """A policy that lets through what it cannot judge."""
    of(objects, "ValidatingAdmissionPolicy")[0]["spec"]["failurePolicy"] = "Ignore"


PLANTED: list[tuple[Callable[[Objects], None], str]] = [
    (add_namespace, "one_namespace"),
    (move_account, "one_namespace"),
    (move_subject, "one_namespace"),
    (drop_label, "labels"),
    (rename_role, "names"),
    (rename_policy, "names"),
    (add_variable, "substitution"),
    (rename_container, "manager"),
    (drop_tag, "manager"),
    (name_namespace, "manager"),
    (add_webhook, "no_webhooks"),
    (run_as_root, "pod_security"),
    (keep_capability, "pod_security"),
    (write_root, "pod_security"),
    (use_host_network, "pod_security"),
    (list_secrets, "least_rights"),
    (grant_all, "least_rights"),
    (rename_account, "references"),
    (unbind_policy, "policies"),
    (warn_only, "policies"),
    (fail_open, "policies"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_mistake_is_found(installed: Objects, plant: Callable[[Objects], None], rule: str) -> None:
    """The rule that is about it says so."""
    objects = copy.deepcopy(installed)
    plant(objects)

    found = {each.__name__: list(each(objects)) for each in RULES}
    assert found[rule]


def test_every_rule_is_tried() -> None:
    """No rule without a mistake that it finds."""
    assert {rule.__name__ for rule in RULES} == {rule for _, rule in PLANTED}


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """What rules grant, as group, resource, name (empty for every name) and verb."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def rights(kind: Kind[Any], *verbs: str, subresource: str = "", name: str = "") -> set[tuple[str, str, str, str]]:
    """The right to do something with a kind."""
    return {(kind.group, kind.plural + subresource, name, verb) for verb in verbs}


def test_the_account_may_do_what_the_code_does_and_nothing_else(installed: Objects) -> None:
    """Watched kinds are read, our own are patched, Secrets are read by name and patched, Events are written."""
    ours = (OXIDE_CLUSTERS, OXIDE_MACHINES, OXIDE_MACHINE_TEMPLATES)
    expected = rights(SECRETS, "get", "patch") | rights(EVENTS, "create", "patch") | rights(CONFIG_MAPS, "get")
    for kind in (CLUSTERS, MACHINES, *ours):
        expected |= rights(kind, "get", "list", "watch")
    for kind in ours:
        expected |= rights(kind, "patch") | rights(kind, "patch", subresource="/status")

    expected |= rights(TOKEN_REVIEWS, "create") | rights(ACCESS_REVIEWS, "create")

    assert granted(the(installed, "ClusterRole", MANAGER_ROLE)["rules"]) == expected


def test_the_right_to_scrape_is_bound_to_nobody(installed: Objects) -> None:
    """A path and no object; whoever scrapes is given it by the cluster's owner."""
    role = the(installed, "ClusterRole", "capox-system-metrics-reader")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bound = {each["roleRef"]["name"] for each in installed if each["kind"] == "ClusterRoleBinding"}
    assert bound == {MANAGER_ROLE}


def test_the_leases_are_those_that_the_provider_holds(installed: Objects) -> None:
    """Ours and that of Oxide's own provider, by their names; all that is not by name is to make them."""
    expected = rights(LEASES, "create")
    for name in provider.LEASES:
        expected |= rights(LEASES, "get", "patch", name=name)

    assert granted(the(installed, "Role", "capox-leader-election")["rules"]) == expected


def test_the_manager_may_read_its_own_pod(installed: Objects) -> None:
    """In its own namespace: which image it runs is what workload clusters get."""
    assert granted(the(installed, "Role", "capox-own-pod")["rules"]) == rights(PODS, "get")


def test_deployments_may_be_made_only_where_that_is_switched_on() -> None:
    """The rights for cloud controller managers at home are apart, and just those that are used."""
    expected = rights(DEPLOYMENTS, "get", "create", "patch", "delete")
    expected |= rights(SERVICE_ACCOUNTS, "get", "create", "patch", "delete")

    assert granted(the(build(CONFIG / "ccm-at-home"), "ClusterRole")["rules"]) == expected


def test_the_manager_is_started_with_arguments_that_it_understands(installed: Objects) -> None:
    """Its own flags, and the ports and probes of its container are where it listens."""
    container = manager_of(installed)
    command, *arguments = container["args"]
    environment = {each["name"]: "value" for each in container["env"]}
    settings = provider_settings(arguments, environment)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}

    assert command == "provider"
    assert settings.is_leader_elected
    assert settings.lease_namespace == "value"
    assert settings.health_address == BindAddress("", ports["healthz"])
    assert settings.diagnostics_address == BindAddress("", ports["metrics"])
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "healthz"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "healthz"}


def test_the_pod_is_given_the_time_that_an_orderly_end_takes(installed: Objects) -> None:
    """Passes under way, the last Events, the Leases; with some to spare before the kubelet cuts it off."""
    pod = the(installed, "Deployment")["spec"]["template"]["spec"]

    needed_seconds = DRAIN_SECONDS + provider.EVENTS_DRAIN_SECONDS + RELEASE_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed_seconds + 10


def test_one_name_for_the_image(installed: Objects) -> None:
    """What `make image` makes is what the Deployment runs and what a release replaces."""
    assert manager_of(installed)["image"] == IMAGE_IN_CONFIG == f"{NAME}:dev"


def test_every_field_of_a_machine_is_kept_from_change(installed: Objects) -> None:
    """A rule a field, that names it; only what the provider sets, and how it keeps an instance up, may change."""
    policy = the(installed, "ValidatingAdmissionPolicy", "capox-machine-spec")

    fields = {wire_name(name) for name in OxideMachineSpec.model_fields}
    kept = {
        field
        for each in policy["spec"]["validations"]
        for field in re.findall(r"^has\(object\.spec\.(\w+)\)", each["expression"])
        if each["message"].startswith(f"spec.{field} of an OxideMachine")
    }
    assert fields - kept == {"providerID", "powerPolicy"}


def test_the_versions_of_a_release_are_announced() -> None:
    """A release whose series is not listed is refused; the contract is that of the CRDs (L-3)."""
    metadata = yaml.safe_load((CONFIG / "metadata.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    major, minor = (int(part) for part in version.split(".")[:2])

    assert (metadata["apiVersion"], metadata["kind"]) == ("clusterctl.cluster.x-k8s.io/v1alpha3", "Metadata")
    assert {"major": major, "minor": minor, "contract": "v1beta2"} in metadata["releaseSeries"]
