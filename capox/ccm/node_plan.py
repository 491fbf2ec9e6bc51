"""Which instance a Node is, and what is written on it. Pure: Node and lists in, decisions and patches out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from uuid import UUID

from capox.ccm.address_plan import INTERNAL_IP, NodeIPError, parse_node_ips
from capox.ccm.node_marks import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, instance_id_of
from capox.kube.core_objects import Node, NodeAddress, Taint
from capox.oxide.models.instances import InstanceState
from capox.oxide.models.wire import IpAddress
from capox.oxide.snapshots import InstanceSnapshot, ObservedInstance
from capox.provider_id import format_provider_id

__all__ = [
    "Absent",
    "Ambiguous",
    "Foreign",
    "Found",
    "Lookup",
    "Unmatched",
    "addresses_patch",
    "initialising_patch",
    "instance_labels",
    "instance_type",
    "is_label_value",
    "known_addresses",
    "labels_patch",
    "look_up",
    "misfit",
    "taints_patch",
    "twin_labels",
]

_GIB: Final = 1024**3
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"

TWINS: Final[Mapping[str, str]] = {
    INSTANCE_TYPE: "beta.kubernetes.io/instance-type",
    ZONE: "failure-domain.beta.kubernetes.io/zone",
    REGION: "failure-domain.beta.kubernetes.io/region",
}
"""Labels with the older names that they also have. Where the two differ, the older one is right (1.3)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The Node's instance."""

    instance: ObservedInstance


@dataclasses.dataclass(frozen=True, slots=True)
class Foreign:
    """The Node is another cloud's, or its providerID cannot be read: not ours to touch (N10)."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Absent:
    """The instance that the providerID names is not in the list.

    Attributes:
        message: What is wrong.
        is_replaced: Whether another instance has the Node's name, and the Node is Ready: it was made again (N12).
    """

    message: str
    is_replaced: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Unmatched:
    """There is no providerID, and no instance fits the Node."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ambiguous:
    """There is no providerID, and several instances fit, or one that another Node has: no guess is made."""

    message: str


Lookup: TypeAlias = Found | Foreign | Absent | Unmatched | Ambiguous


def look_up(
    node: Node,
    instances: InstanceSnapshot,
    *,
    claimed: Collection[UUID],
    owners: Mapping[IpAddress, Collection[UUID]] | None = None,
) -> Lookup:
    """Find a Node's instance: by providerID, else by name, else by a hostname or address that only one instance has.

    Args:
        node: The Node.
        instances: The project's instances.
        claimed: The instances that other Nodes name in their providerIDs.
        owners: Which instances have an address, where that was read.
    """
    if node.spec.provider_id:
        return _by_provider_id(node, instances)
    name = node.metadata.name.lower()
    named = instances.by_name(name)
    hosts = [each for each in instances if each.hostname.lower() == name and each != named]
    candidates = [*([named] if named is not None else []), *hosts]
    free = [each for each in candidates if each.id not in claimed]
    if candidates and not free:
        taken = ", ".join(str(each.id) for each in candidates)
        return Ambiguous(f"the instances that fit this Node ({taken}) are those of other Nodes by their providerIDs")
    if named is not None and named in free and named.hostname.lower() == name:
        return Found(named)
    if len(free) == 1:
        return Found(free[0])
    addressed = _by_address(node, instances, claimed, owners or {})
    fitting = [each for each in addressed if each in free] if free else addressed
    if len(fitting) == 1:
        return Found(fitting[0])
    if free or len(fitting) > 1:
        several = ", ".join(f"{each.name} ({each.id})" for each in free or fitting)
        return Ambiguous(f"several instances fit this Node: {several}; give its kubelet --provider-id")
    return Unmatched(
        "no instance of the project has this Node's name, hostname or address; give the instance that name, or its "
        "kubelet --provider-id"
    )


def misfit(node: Node, instance: ObservedInstance, addresses: Collection[NodeAddress]) -> str | None:
    """What speaks against a providerID that the kubelet may have chosen itself, in words for people (N2, 1.6).

    Args:
        node: The Node.
        instance: The instance that the providerID names.
        addresses: What the instance has.
    """
    canonical = format_provider_id(str(instance.id))
    if node.spec.provider_id not in ("", canonical):
        return f"providerID {node.spec.provider_id!r} is not spelled {canonical!r}; Cluster API does not find this Node"
    name = node.metadata.name.lower()
    has = {each.address for each in addresses}
    if name in (instance.name, instance.hostname.lower()) or any(str(each) in has for each in known_addresses(node)):
        return None
    return (
        f"instance {instance.id} has the name {instance.name} and the hostname {instance.hostname}, and this Node "
        "neither one of these nor one of its addresses; check the kubelet's --provider-id"
    )


def known_addresses(node: Node) -> tuple[IpAddress, ...]:
    """The addresses by which a Node may be recognised: what its kubelet was given or has published."""
    try:
        given = parse_node_ips(node.metadata.annotations.get(PROVIDED_NODE_IP))
    except NodeIPError:
        given = ()
    published = []
    for text in node.addresses_of(INTERNAL_IP):
        try:
            published.append(ip_address(text))
        except ValueError:
            continue
    return (*given, *(each for each in published if each not in given))


def instance_type(instance: ObservedInstance) -> str:
    """The type of an instance, as Oxide's own cloud controller manager writes it: vCPUs and GiB of memory."""
    return f"{instance.ncpus}-{instance.memory_bytes // _GIB}"


def is_label_value(text: str) -> bool:
    """Whether a text can be a label's value; one that cannot would have the whole write refused (1.3)."""
    return _LABEL_VALUE.fullmatch(text) is not None


def instance_labels(instance: ObservedInstance, *, region: str = "", zone: str = "") -> dict[str, str]:
    """The labels of a Node by its instance, each under both of its names; what is empty gives none."""
    values = {INSTANCE_TYPE: instance_type(instance), REGION: region, ZONE: zone}
    return {key: value for name, value in values.items() if is_label_value(value) for key in (name, TWINS[name])}


def twin_labels(node: Node) -> dict[str, str]:
    """The labels that have to follow their older names; none when all is well."""
    labels = node.metadata.labels
    return {name: labels[old] for name, old in TWINS.items() if old in labels and labels.get(name) != labels[old]}


def labels_patch(node: Node, labels: Mapping[str, str]) -> dict[str, Any] | None:
    """The patch that sets labels; None when the Node has them."""
    if all(node.metadata.labels.get(key) == value for key, value in labels.items()):
        return None
    return {"metadata": {"resourceVersion": node.metadata.resource_version, "labels": dict(labels)}}


def initialising_patch(node: Node, instance: ObservedInstance, labels: Mapping[str, str]) -> dict[str, Any]:
    """The one write that ends a Node's beginning: providerID, labels, and the taint off, or nothing of it (N1).

    A providerID that is there stays (N2).
    """
    patch = taints_patch(node, [taint for taint in node.spec.taints if taint.key != UNINITIALIZED_TAINT])
    patch["metadata"]["labels"] = dict(labels)
    if not node.spec.provider_id:
        patch["spec"]["providerID"] = format_provider_id(str(instance.id))
    return patch


def taints_patch(node: Node, taints: Collection[Taint]) -> dict[str, Any]:
    """The patch that gives a Node these taints, as long as it is what it was when it was read (N1, L8)."""
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": [taint.dump() for taint in taints] or None},
    }


def addresses_patch(node: Node, addresses: Collection[NodeAddress]) -> dict[str, Any] | None:
    """The patch of the status that gives a Node just these addresses, in this order; None when it has them (N6, N7)."""
    if tuple(addresses) == node.status.addresses:
        return None
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": {"addresses": [each.dump() for each in addresses]},
    }


def _by_provider_id(node: Node, instances: InstanceSnapshot) -> Lookup:
    instance_id = instance_id_of(node)
    provider_id = node.spec.provider_id
    if instance_id is None:
        return Foreign(f"providerID {provider_id!r} names no Oxide instance; this Node is left alone")
    instance = instances.by_id(instance_id)
    if instance is not None and instance.run_state != InstanceState.DESTROYED:
        return Found(instance)
    successor = instances.by_name(node.metadata.name.lower())
    if node.is_ready and successor is not None:
        return Absent(
            f"instance {instance_id} of this Node is not in the project, but another one has its name: "
            f"{successor.name} ({successor.id}); a providerID never changes, so delete the Node, restart its kubelet",
            is_replaced=True,
        )
    return Absent(f"instance {instance_id} of this Node is not in the project", is_replaced=False)


def _by_address(
    node: Node,
    instances: InstanceSnapshot,
    claimed: Collection[UUID],
    owners: Mapping[IpAddress, Collection[UUID]],
) -> list[ObservedInstance]:
    found = {instance_id for address in known_addresses(node) for instance_id in owners.get(address, ())}
    present = [instances.by_id(instance_id) for instance_id in sorted(found) if instance_id not in claimed]
    return [each for each in present if each is not None]
