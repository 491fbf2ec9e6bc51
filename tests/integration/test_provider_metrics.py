"""Whom the provider tells its metrics: those whom the cluster's own rights let, as Cluster API's managers do."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.capi import ManagementCluster
from tests.integration import https
from tests.integration.provider_process import ProviderProcess, install
from tests.integration.waiting import eventually

READER = "capox-system-metrics-reader"


@pytest.fixture
def provider(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[ProviderProcess]:
    """A provider that has nothing to do."""
    install(own_kinds)
    with ProviderProcess(own_kinds, tmp_path, f"--namespace={namespace}") as process:
        yield process


def test_metrics_are_for_those_who_may(own_kinds: ManagementCluster, provider: ProviderProcess, namespace: str) -> None:
    """Without a token 401, without the right 403, bound to the shipped ClusterRole the metrics; never in plain HTTP."""
    token = own_kinds.client.post(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )["status"]["token"]
    port = provider.diagnostics_port
    assert https.ask(port, "/metrics")[0] == 401
    assert https.ask(port, "/metrics", "not-a-token")[0] == 401
    assert https.ask(port, "/metrics", token)[0] == 403
    with pytest.raises((OSError, http.client.HTTPException)):
        plain(port)

    binding = f"{namespace}-metrics"
    own_kinds.kubectl(
        *("create", "clusterrolebinding", binding, f"--clusterrole={READER}", f"--serviceaccount={namespace}:default")
    )
    try:
        eventually("it may", lambda: https.ask(port, "/metrics", token)[0] == 200)
        assert "workqueue_depth" in https.ask(port, "/metrics", token)[1]
    finally:
        own_kinds.kubectl("delete", "clusterrolebinding", binding)
    assert token not in provider.log_file.read_text()


def test_who_asks_for_plain_metrics_gets_them(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> None:
    """`--insecure-diagnostics`, as with Cluster API's managers."""
    install(own_kinds)
    with ProviderProcess(own_kinds, tmp_path, f"--namespace={namespace}", "--insecure-diagnostics") as provider:
        status, text = plain(provider.diagnostics_port)
    assert status == 200
    assert "workqueue_depth" in text


def plain(port: int) -> tuple[int, str]:
    """Ask for the metrics in plain HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
