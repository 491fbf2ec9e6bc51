"""Which Services have to be looked at when something was seen of a Service or a Node (3.2, S14).

A Node concerns every Service, but a kubelet writes its Node all the time: only what could move an address counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from capox.ccm.cache import Cache
from capox.ccm.kinds import NODES, SERVICES
from capox.ccm.service_plan import Task, is_wanted, task_of
from capox.kube.core_objects import Node, Service
from capox.kube.errors import Unreadable
from capox.kube.watch import WatchEvent
from capox.kube.workqueue import Request

__all__ = ["ServiceMapper"]


class ServiceMapper:
    """The map function of the service controller.

    Args:
        services: The Services as the watch has told of them.
    """

    def __init__(self, services: Cache[Service]) -> None:
        self._services = services
        self._nodes: dict[str, tuple[Any, ...]] = {}

    def requests_for(self, event: WatchEvent) -> Iterable[Request]:
        """The Services that an event concerns."""
        metadata = event.document["metadata"]
        try:
            if event.kind == SERVICES:
                return self._of_service(event, Request(metadata.get("namespace") or "", metadata["name"]))
            if event.kind == NODES:
                return self._of_node(event, metadata["name"])
        except Unreadable:
            # The cache has said so, and has left it out.
            return ()
        return ()

    def _of_service(self, event: WatchEvent, request: Request) -> Iterable[Request]:
        if event.type == "DELETED":
            return (request,)
        return () if task_of(SERVICES.parse(event.document)) is Task.NOTHING else (request,)

    def _of_node(self, event: WatchEvent, name: str) -> Iterable[Request]:
        if event.type == "DELETED":
            self._nodes.pop(name, None)
            return self._everybody()
        sight = _sight(NODES.parse(event.document))
        if sight == self._nodes.get(name):
            return ()
        self._nodes[name] = sight
        return self._everybody()

    def _everybody(self) -> list[Request]:
        return [Request(each.metadata.namespace, each.metadata.name) for each in self._services if is_wanted(each)]


def _sight(node: Node) -> tuple[Any, ...]:
    """What of a Node can move an address."""
    return (
        node.metadata.uid,
        node.metadata.is_being_deleted,
        tuple(sorted(node.metadata.labels.items())),
        node.spec.provider_id,
        tuple(sorted(taint.key for taint in node.spec.taints)),
        node.is_ready,
        node.addresses_of("InternalIP"),
    )
