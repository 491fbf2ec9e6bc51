"""From a change of an object to the keys that have to be looked at (K-18), and which changes matter at all.

Nothing is read here and nothing decided: a key too many costs a pass that finds nothing to do, and the periodic relist,
which asks for every key, makes up for one too few. What is remembered is only which machine belongs to which cluster,
and of each object the few facts that its reconcilers look at, so that Cluster API's many status updates wake nobody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from capox.api import capi
from capox.kube.workqueue import Request
from capox.provider import ccm_addon, cluster, machine, template

__all__ = ["Mapper", "Wakeup"]

Document: TypeAlias = Mapping[str, Any]
Wakeup: TypeAlias = tuple[str, Request]
_Key: TypeAlias = tuple[str, str]

_HEALTHY = "APIServerPodHealthy"


class Mapper:
    """The map functions of the provider, with what they remember."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str, str], Hashable] = {}
        self._machines_of: dict[_Key, set[str]] = {}
        self._cluster_of_machine: dict[_Key, str] = {}
        # An OxideCluster need not be called like its Cluster: ClusterClass gives it a name of its own (C-IC-11).
        self._infrastructure_of: dict[_Key, str] = {}

    def requests_for(
        self, kind: str, document: Document, change: Literal["ADDED", "MODIFIED", "DELETED"]
    ) -> Iterator[Wakeup]:
        """The controllers and keys that a change concerns; none when nothing that matters has changed.

        Args:
            kind: The object's kind.
            document: The object: metadata, and the parts of spec and status that `_FACTS` names.
            change: What has happened to it.
        """
        metadata = document["metadata"]
        key = (kind, metadata.get("namespace") or "", metadata["name"])
        facts = _FACTS[kind](document)
        self._remember(kind, document, is_gone=change == "DELETED")
        if change == "DELETED":
            self._facts.pop(key, None)
        elif self._facts.get(key) == facts:
            return
        else:
            self._facts[key] = facts
        yield from self._wakeups(kind, document)

    def _remember(self, kind: str, document: Document, *, is_gone: bool) -> None:
        metadata = document["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        if kind == "OxideMachine":
            belongs_to = None if is_gone else (metadata.get("labels") or {}).get(capi.CLUSTER_NAME_LABEL)
            before = self._cluster_of_machine.get((namespace, name))
            if before is not None and before != belongs_to:
                self._machines_of[namespace, before].discard(name)
                del self._cluster_of_machine[namespace, name]
            if belongs_to:
                self._cluster_of_machine[namespace, name] = belongs_to
                self._machines_of.setdefault((namespace, belongs_to), set()).add(name)
        elif kind == "Cluster":
            infrastructure = _reference(document, "infrastructureRef")
            if is_gone:
                self._infrastructure_of.pop((namespace, name), None)
            elif infrastructure.get("kind") == "OxideCluster":
                self._infrastructure_of[namespace, name] = infrastructure["name"]

    def _wakeups(self, kind: str, document: Document) -> Iterator[Wakeup]:
        metadata = document["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        match kind:
            case "OxideCluster":
                yield cluster.CONTROLLER, Request(namespace, name)
                yield ccm_addon.CONTROLLER, Request(namespace, name)
            case "OxideMachine":
                yield machine.CONTROLLER, Request(namespace, name)
                yield from self._cluster_of(namespace, metadata)
            case "OxideMachineTemplate":
                yield template.CONTROLLER, Request(namespace, name)
            case "Machine":
                infrastructure = _reference(document, "infrastructureRef")
                if infrastructure.get("kind") == "OxideMachine":
                    yield machine.CONTROLLER, Request(namespace, infrastructure["name"])
                    yield from self._cluster_of(namespace, metadata)
            case "Cluster" if (namespace, name) in self._infrastructure_of:
                for controller in (cluster.CONTROLLER, ccm_addon.CONTROLLER):
                    yield controller, Request(namespace, self._infrastructure_of[namespace, name])
                for machine_name in sorted(self._machines_of.get((namespace, name), ())):
                    yield machine.CONTROLLER, Request(namespace, machine_name)

    def _cluster_of(self, namespace: str, metadata: Document) -> Iterator[Wakeup]:
        """The OxideCluster behind a machine that can matter to it: one of the control plane, or one that goes."""
        labels = metadata.get("labels") or {}
        cluster_name = labels.get(capi.CLUSTER_NAME_LABEL)
        if cluster_name and (capi.CONTROL_PLANE_LABEL in labels or metadata.get("deletionTimestamp")):
            yield (
                cluster.CONTROLLER,
                Request(namespace, self._infrastructure_of.get((namespace, cluster_name), cluster_name)),
            )


def _reference(document: Document, field: str) -> Document:
    return (document.get("spec") or {}).get(field) or {}


def _metadata_facts(document: Document) -> Hashable:
    """What of an object's metadata any reconciler looks at."""
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    owners = tuple(owner.get("uid") for owner in metadata.get("ownerReferences") or ())
    return (
        metadata.get("uid"),
        bool(metadata.get("deletionTimestamp")),
        tuple(metadata.get("finalizers") or ()),
        tuple(sorted(key for key in annotations if "cluster.x-k8s.io/" in key)),
        tuple(sorted((metadata.get("labels") or {}).items())),
        owners,
    )


def _own_facts(document: Document) -> Hashable:
    """Of our own kinds the spec as well, by its generation; our own writes of the status wake nobody."""
    return (_metadata_facts(document), document["metadata"].get("generation"))


def _cluster_facts(document: Document) -> Hashable:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    initialization = status.get("initialization") or {}
    return (
        _metadata_facts(document),
        bool(spec.get("paused")),
        _reference(document, "infrastructureRef").get("name"),
        bool(initialization.get("infrastructureProvisioned")),
        bool(initialization.get("controlPlaneInitialized")),
    )


def _machine_facts(document: Document) -> Hashable:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    healthy = [each.get("status") for each in status.get("conditions") or () if each.get("type") == _HEALTHY]
    return (
        _metadata_facts(document),
        (spec.get("bootstrap") or {}).get("dataSecretName"),
        (status.get("nodeRef") or {}).get("name"),
        tuple(healthy),
    )


_FACTS = {
    "OxideCluster": _own_facts,
    "OxideMachine": _own_facts,
    "OxideMachineTemplate": _own_facts,
    "Cluster": _cluster_facts,
    "Machine": _machine_facts,
}
