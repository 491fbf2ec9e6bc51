"""Which Nodes may have a Service's traffic, as far as Kubernetes knows: pure (CCM rules S12, S13, S17, 3.5, V6)."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final, cast

from capox.ccm.node_marks import (
    AUTOSCALER_TAINT,
    EXCLUDE_LABEL,
    OUT_OF_SERVICE_TAINT,
    SHUTDOWN_TAINT,
    UNINITIALIZED_TAINT,
    instance_id_of,
    is_control_plane,
)
from capox.ccm.placement import Family, Port, Protocol
from capox.ccm.wanted import Target
from capox.kube.core_objects import Container, Node, Pod

__all__ = ["NOT_READY_SECONDS", "grace_left_seconds", "host_ports", "is_excluded", "target_of", "targets_of"]

NOT_READY_SECONDS: Final = 30.0
"""How long a holder may be not Ready before its addresses go (S13); the node monitor has waited 40 to 50 s already."""

LEAVING_TAINTS: Final[Mapping[str, str]] = {
    AUTOSCALER_TAINT: "the cluster autoscaler is removing it",
    SHUTDOWN_TAINT: "its instance is shut down",
    OUT_OF_SERVICE_TAINT: "it is out of service",
}
"""The taints of a Node that is about to go, or has gone."""

_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def is_excluded(labels: Mapping[str, str]) -> bool:
    """Whether a Node is kept out by label: by every value but those that Go reads as false (3.5)."""
    return EXCLUDE_LABEL in labels and labels[EXCLUDE_LABEL] not in _FALSE


def targets_of(nodes: Iterable[Node], pods: Iterable[Pod], now: datetime.datetime) -> tuple[Target, ...]:
    """The Nodes that are instances of ours; one that cannot be read is left out, and harms nobody (S17)."""
    taken = host_ports(pods)
    found = (target_of(node, taken.get(node.metadata.name, frozenset()), now) for node in nodes)
    return tuple(target for target in found if target is not None)


def target_of(node: Node, taken: frozenset[Port], now: datetime.datetime) -> Target | None:
    """A Node as a target; None when it does not say which instance it is."""
    instance_id = instance_id_of(node)
    if instance_id is None:
        return None
    metadata = node.metadata
    failing = _failing(node, now)
    return Target(
        name=metadata.name,
        uid=metadata.uid,
        instance_id=instance_id,
        families=frozenset(_families(node)),
        may_take=node.is_ready and not failing and not node.has_taint(UNINITIALIZED_TAINT),
        failing=failing,
        closed="it is excluded by label" if is_excluded(metadata.labels) else "",
        taken=taken,
        is_control_plane=is_control_plane(node),
    )


def grace_left_seconds(nodes: Iterable[Node], now: datetime.datetime) -> float | None:
    """How long until the next Node that is not Ready has been so for too long; None when there is none to come."""
    ages = [age for node in nodes if (age := _not_ready_seconds(node, now)) is not None]
    left = [NOT_READY_SECONDS - age for age in ages if age <= NOT_READY_SECONDS]
    return max(min(left), 0.0) if left else None


def host_ports(pods: Iterable[Pod]) -> dict[str, frozenset[Port]]:
    """What pods occupy of their nodes' ports, by the nodes' names (V6)."""
    found: dict[str, set[Port]] = {}
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in {"Succeeded", "Failed"}:
            found.setdefault(pod.spec.node_name, set()).update(_ports_of(pod))
    return {name: frozenset(ports) for name, ports in found.items()}


def _ports_of(pod: Pod) -> Iterable[Port]:
    staying: list[Container] = [*pod.spec.containers]
    staying += [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    for container in staying:
        for port in container.ports:
            number = port.container_port if pod.spec.host_network else port.host_port
            if number and not _is_loopback(port.host_ip):
                yield Port(cast("Protocol", port.protocol), number)


def _is_loopback(host_ip: str) -> bool:
    try:
        return ipaddress.ip_address(host_ip).is_loopback
    except ValueError:
        return False


def _failing(node: Node, now: datetime.datetime) -> str:
    if node.metadata.is_being_deleted:
        return "it is being deleted"
    for key, reason in LEAVING_TAINTS.items():
        if node.has_taint(key):
            return reason
    age = _not_ready_seconds(node, now)
    return "it is not Ready" if age is not None and age > NOT_READY_SECONDS else ""


def _not_ready_seconds(node: Node, now: datetime.datetime) -> float | None:
    """For how long a Node has not been Ready; None when it is. One that never said so counts from its making."""
    if node.is_ready:
        return None
    ready = node.ready
    since = (ready.last_transition_time if ready is not None else None) or node.metadata.creation_timestamp
    return max((now - since).total_seconds(), 0.0) if since is not None else 0.0


def _families(node: Node) -> Iterable[Family]:
    for text in node.addresses_of("InternalIP"):
        try:
            yield "IPv4" if ipaddress.ip_address(text).version == 4 else "IPv6"
        except ValueError:
            continue
