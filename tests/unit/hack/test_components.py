"""Manifests made for a cluster become manifests for managers outside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hack.controlplane.components import PROVIDERS, ProviderComponents, collection_path, rendered, with_webhook_urls
from hack.controlplane.errors import BuildError
from hack.controlplane.programs import CAPI_CORE

CORE = PROVIDERS[0]


def document(kind: str, **content: Any) -> dict[str, Any]:
    """An object as clusterctl prints it."""
    return {"kind": kind, "metadata": {"name": "thing", "namespace": "capi-system"}, **content}


def deployment() -> dict[str, Any]:
    """A manager's Deployment."""
    arguments = ["--leader-elect", "--diagnostics-address=:8443", "--feature-gates=A=true,B=false", "--v=2"]
    pod = {"serviceAccountName": "capi-manager", "containers": [{"name": "manager", "args": arguments}]}
    return document("Deployment", spec={"template": {"spec": pod}})


def webhook() -> dict[str, Any]:
    """A webhook configuration."""
    service = {"name": "webhook-service", "namespace": "capi-system", "path": "/validate"}
    return document("ValidatingWebhookConfiguration", webhooks=[{"name": "a", "clientConfig": {"service": service}}])


def test_what_only_a_cluster_can_run_is_dropped() -> None:
    """The Deployment goes; its ServiceAccount and arguments are kept for the process, less those set here."""
    made = rendered([deployment(), document("Service"), document("Issuer"), document("ServiceAccount")], CORE)

    assert [entry["kind"] for entry in made["objects"]] == ["ServiceAccount"]
    assert (made["namespace"], made["service_account"]) == ("capi-system", "capi-manager")
    assert made["arguments"] == ["--feature-gates=A=true,B=false", "--v=2"]


def test_webhooks_point_to_the_process() -> None:
    """A Service becomes a URL with its path, and the authority is ours."""
    made = rendered([deployment(), webhook()], CORE)
    components = ProviderComponents(
        CORE, "capi-system", "capi-manager", (), made["inventory"], json.dumps(made["objects"])
    )

    (configuration,) = components.objects("https://127.0.0.1:1234", "QUJD")

    assert configuration["webhooks"] == [
        {"name": "a", "clientConfig": {"url": "https://127.0.0.1:1234/validate", "caBundle": "QUJD"}},
    ]


def test_conversion_points_to_the_process_too() -> None:
    """The webhook of a CRD's conversion is found at its depth; everything else stays as it is."""
    client = {"service": {"name": "s", "namespace": "n", "path": "/convert"}, "caBundle": "Cg=="}
    before = document(
        "CustomResourceDefinition", spec={"conversion": {"webhook": {"clientConfig": client}}, "versions": [1]}
    )

    after = with_webhook_urls(before)

    assert after["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": "@WEBHOOK_URL@/convert",
        "caBundle": "@WEBHOOK_CA@",
    }
    assert after["spec"]["versions"] == [1]
    assert before["spec"]["conversion"]["webhook"]["clientConfig"] == client


def test_the_inventory_is_what_init_would_write() -> None:
    """The labels and fields by which clusterctl finds a provider are there."""
    inventory = rendered([deployment()], CORE)["inventory"]

    assert inventory["metadata"]["labels"]["cluster.x-k8s.io/provider"] == "cluster-api"
    assert (inventory["type"], inventory["providerName"], inventory["version"]) == (
        "CoreProvider",
        "cluster-api",
        CAPI_CORE.version,
    )


def test_something_new_is_noticed() -> None:
    """A kind that nobody has thought of stops the rendering instead of being lost."""
    with pytest.raises(BuildError, match="kinds that are not known here: NetworkPolicy"):
        rendered([deployment(), document("NetworkPolicy")], CORE)


def test_every_kind_has_a_place() -> None:
    """Namespaced kinds carry their namespace in the path, others do not."""
    assert collection_path("Role", "capi-system") == "/apis/rbac.authorization.k8s.io/v1/namespaces/capi-system/roles"
    assert collection_path("ClusterRole", None) == "/apis/rbac.authorization.k8s.io/v1/clusterroles"
