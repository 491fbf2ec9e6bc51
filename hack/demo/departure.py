"""How the demo leaves a management cluster that was there before: without its cluster, its kinds and its namespaces."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.plane import CommandError
from hack.demo import provider
from hack.demo.cluster import CLUSTER_NAME, NAMESPACE
from hack.demo.management import Commands

__all__ = ["DepartureError", "leave", "require_room"]

CONFIG: Final = Path(__file__).resolve().parents[2] / "config"
ABANDON: Final = ".venv/bin/python -m hack.demo down --abandon"
"""Stops everything here, whatever is left there."""
DELETE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 2.0
_GUARDED: Final = "oxidemachines,oxideclusters,secrets"
"""What the provider protects by finalizers, and has to let go of."""


class DepartureError(ControlPlaneError):
    """Something of the demo is, or may be, left in a management cluster that was there before.

    Args:
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Something of the demo may be left in the management cluster: {reason}. What is needed to take it away is "
            f"kept: run it again, `make demo-down`. If that cluster is gone for good: {ABANDON}"
        )


def require_room(cluster: Commands, server: str) -> None:
    """See that nothing of what the demo takes away in the end is anybody else's.

    Raises:
        ControlPlaneError: something is; the message says what to do.
    """
    taken = [name for name in _names(cluster, "namespace") if name in {NAMESPACE, provider.NAMESPACE}]
    kinds = [name for name in _names(cluster, "crd") if name.startswith("oxide")]
    if kinds or taken:
        there = "the provider's kinds" if kinds else f"a namespace {taken[0]}"
        raise ControlPlaneError(
            f"{server} has {there} already, and `make demo-down` would take that away. Use another cluster; if it is "
            f"left over: kubectl delete -k config/default; kubectl delete namespace {NAMESPACE}"
        )


def leave(cluster: Commands, *, has_provider: bool) -> None:
    """Delete the demo's cluster, and then what the demo has installed. After a failure it can be called again.

    Args:
        cluster: the management cluster.
        has_provider: whether the demo's provider and rack still run. Without them nobody else takes the finalizers
            off, and there is nothing left that they would protect.

    Raises:
        DepartureError: something is left there, or may be.
    """
    try:
        cluster.kubectl("version", "--request-timeout=10s")
    except CommandError as error:
        raise DepartureError(f"the management cluster does not answer ({error})") from None
    try:
        # Without the kinds there is no cluster, and deleting one would fail.
        if any(name.startswith("oxide") for name in _names(cluster, "crd")):
            _delete_cluster(cluster, has_provider=has_provider)
        words = ("delete", "namespace", NAMESPACE, "--ignore-not-found", f"--timeout={DELETE_SECONDS:.0f}s")
        cluster.kubectl(*words, timeout_seconds=DELETE_SECONDS)
        provider.remove(cluster, CONFIG)
    except CommandError as error:
        raise DepartureError(str(error)) from None


def _delete_cluster(cluster: Commands, *, has_provider: bool) -> None:
    """Delete it and wait for its end.

    Raises:
        CommandError: it did not come.
    """
    kind = "clusters.cluster.x-k8s.io"
    cluster.kubectl("delete", kind, CLUSTER_NAME, "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
    deadline = time.monotonic() + DELETE_SECONDS
    while cluster.kubectl("get", kind, CLUSTER_NAME, "-n", NAMESPACE, "--ignore-not-found", "-o", "name").strip():
        if time.monotonic() > deadline:
            raise CommandError(f"cluster {CLUSTER_NAME} was not gone within {DELETE_SECONDS:.0f} s")
        if not has_provider:
            _take_finalizers_off(cluster)
        time.sleep(_LOOK_SECONDS)
    if not has_provider:
        _take_finalizers_off(cluster)


def _take_finalizers_off(cluster: Commands) -> None:
    found = json.loads(cluster.kubectl("get", _GUARDED, "-n", NAMESPACE, "-o", "json"))["items"]
    for item in found:
        name, finalizers = f"{item['kind'].lower()}/{item['metadata']['name']}", item["metadata"].get("finalizers", [])
        if any("oxide" in each for each in finalizers):
            patch = '{"metadata": {"finalizers": null}}'
            cluster.kubectl("patch", name, "-n", NAMESPACE, "--type", "merge", "-p", patch)


def _names(cluster: Commands, kind: str) -> list[str]:
    """The names of all objects of a kind that has no namespace."""
    listed = cluster.kubectl("get", kind, "-o", "name").split()
    return [name.partition("/")[2] for name in listed]
