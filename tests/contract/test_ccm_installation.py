"""What config/ccm, the package data and the chart say: one thing, with least rights, in the process's own words."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.ccm.settings import ccm_settings
from capox.kube.events import EVENTS
from capox.kube.lease import LEASES
from capox.provider import ccm_addon_manifests as manifests
from capox.provider.ccm_addon_kinds import CONFIG_MAPS, INSTALLED, NODES
from capox.settings import BindAddress
from hack.ccm.__main__ import generated_files, main, stale_files
from hack.controlplane.paths import REPOSITORY
from tests.contract.kustomization import build
from tests.contract.test_config import granted, of, rights, the

CONFIG = REPOSITORY / "config" / "ccm"
CHART = REPOSITORY / "charts" / "capox-cloud-controller-manager"

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def installed() -> Objects:
    """The objects of config/ccm."""
    return build(CONFIG)


def pod_of(objects: Objects) -> dict[str, Any]:
    """The Pods' spec."""
    spec = the(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_nothing_is_stale() -> None:
    """Package data and chart are what config/ccm says; nobody has edited them."""
    assert stale_files(REPOSITORY) == []


def test_a_stale_file_is_found_and_made_anew(tmp_path: Path) -> None:
    """A changed one, a missing one and a surplus one."""
    root = str(tmp_path)
    assert main(["--root", root, "--check"]) == 1
    assert main(["--root", root]) == 0
    assert main(["--root", root, "--check"]) == 0
    (tmp_path / "charts/capox-cloud-controller-manager/templates/extra.yaml").write_text("")
    assert main(["--root", root, "--check"]) == 1
    assert main(["--root", root]) == 0
    assert stale_files(tmp_path) == []
    assert generated_files().keys() == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}


def test_the_package_holds_what_is_installed(installed: Objects) -> None:
    """The same objects, and the template of the Secret before the workload that mounts it."""
    packaged = manifests.packaged()

    assert [each for each in packaged if each["kind"] != "Secret"] == installed
    assert [each["kind"] for each in packaged][-2:] == ["Secret", "DaemonSet"]


def test_the_template_of_the_secret_has_no_credentials() -> None:
    """Nobody installs a token by accident, and the add-on puts nothing of the template into a cluster."""
    template = yaml.safe_load((CONFIG / "secret.yaml").read_text())
    made = manifests.secret_document("id", {"oxide-token": "t"})

    assert template["stringData"]["oxide-token"] == ""
    assert set(template["stringData"]) == {"oxide-host", "oxide-token", "oxide-project", "oxide-ca"}
    assert "stringData" not in made
    assert made["data"] == {"oxide-token": "dA=="}


def test_least_rights(installed: Objects) -> None:
    """Rules 5.3: what the controllers do, and nothing else; no Secret is read through the API."""
    named = {each["metadata"].get("namespace", ""): each for each in of(installed, "Role")}
    cluster = granted(the(installed, "ClusterRole")["rules"])
    expected = rights(NODES, "get", "list", "watch", "patch", "delete") | rights(NODES, "patch", subresource="/status")
    for plural, verbs, name in (
        ("services", ("get", "list", "watch"), ""),
        ("services/status", ("patch",), ""),
        ("pods", ("list", "watch"), ""),
        ("namespaces", ("get",), "kube-system"),
    ):
        expected |= {("", plural, name, verb) for verb in verbs}
    assert cluster == expected | rights(EVENTS, "create", "patch")

    lease = rights(LEASES, "get", "patch", name="cloud-controller-manager") | rights(LEASES, "create")
    assert granted(named["kube-system"]["rules"]) == lease | rights(CONFIG_MAPS, "get", name="kube-proxy")
    assert granted(named["kube-node-lease"]["rules"]) == rights(LEASES, "get", "list", "watch")
    bound = {each["roleRef"]["name"] for each in of(installed, "ClusterRoleBinding")}
    assert bound == {manifests.NAME, "system:auth-delegator"}


def test_the_process_understands_how_it_is_started(installed: Objects) -> None:
    """Its own flags; the port of its probes is where it listens; the mounted directory is where it looks."""
    pod = pod_of(installed)
    (container,) = pod["containers"]
    command, *arguments = container["args"]
    environment = {each["name"]: "value" for each in container["env"]}
    settings = ccm_settings([each.replace("$(CAPOX_CLUSTER_ID)", "an-id") for each in arguments], environment)
    (port,) = container["ports"]
    (mount,) = container["volumeMounts"]

    assert command == "ccm"
    assert settings.is_leader_elected
    assert (settings.lease_namespace, settings.lease_name) == ("kube-system", "cloud-controller-manager")
    assert settings.identity == "value"
    assert settings.cluster_id == "an-id"
    assert settings.serving_address == BindAddress("", port["containerPort"])
    assert str(settings.credentials_directory) == mount["mountPath"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] | {"path": ""} == {"scheme": "HTTPS", "path": "", "port": port["name"]}
    assert the(installed, "ConfigMap")["data"] == {"CAPOX_CLUSTER_ID": ""}


def test_it_runs_before_there_is_a_network(installed: Objects) -> None:
    """R4 and R5: the Node's network and resolver, every taint, control plane Nodes whatever their label's value."""
    pod = pod_of(installed)
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "Default"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-cluster-critical"
    expression = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    assert affinity == {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    assert the(installed, "DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_it_has_no_more_power_over_its_node_than_the_network(installed: Objects) -> None:
    """Everything that Pod Security's restricted level asks for but hostNetwork."""
    pod = pod_of(installed)
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    # Without it the Secret's files would be root's alone.
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_kind_that_is_installed_is_known() -> None:
    """A kind that is added to config/ccm has to be one that the add-on can read and remove."""
    assert {each["kind"] for each in manifests.packaged()} - {"Secret"} <= INSTALLED.keys()


def test_a_deployment_is_the_same_but_where_it_runs() -> None:
    """Two replicas on different Nodes; everything else is the DaemonSet's."""
    daemon_set = the(manifests.packaged(), "DaemonSet")
    deployment = manifests.as_deployment(daemon_set)
    pods = [copy.deepcopy(each["spec"]["template"]) for each in (daemon_set, deployment)]
    for each in pods:
        del each["spec"]["affinity"]

    assert pods[0] == pods[1]
    assert deployment["spec"]["strategy"] == daemon_set["spec"]["updateStrategy"]
    assert deployment["spec"]["replicas"] == 2


def test_the_chart_has_every_object_of_config_ccm(installed: Objects) -> None:
    """One file an object, with nothing of it lost: names, rules, subjects and the Pods' fields."""
    texts = [path.read_text() for path in (CHART / "templates").glob("*.yaml")]
    assert len(texts) == len(installed) + 2  # the Secret, and the Deployment
    for each in installed:
        lines = [line for line in yaml.safe_dump(each, sort_keys=False).splitlines() if not _is_filled_in(line)]
        stripped = {line.strip().removeprefix("- ") for line in lines}
        assert any(stripped <= {line.strip().removeprefix("- ") for line in text.splitlines()} for text in texts), each


def _is_filled_in(line: str) -> bool:
    """Whether a line stands where the chart has a value."""
    filled = r"\s*(image|imagePullPolicy|secretName|CAPOX_CLUSTER_ID|cpu|memory|requests|limits|resources):.*"
    return re.fullmatch(filled, line) is not None


def test_the_chart_is_what_helm_takes() -> None:
    """Its metadata, and values that are what config/ccm has."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    (container,) = pod_of(build(CONFIG))["containers"]

    assert chart["apiVersion"] == "v2"
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", chart["version"])
    assert values["image"] == container["image"]
    assert values["resources"] == container["resources"]
    assert values["credentials"]["secretName"] == manifests.NAME
    assert json.loads(json.dumps(values)) == values
