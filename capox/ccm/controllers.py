"""The controllers of one process: which ones, with what, and what is watched for them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from capox.ccm import node, node_lifecycle, service
from capox.ccm.cache import Cache
from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.floating_ip import FloatingIps
from capox.ccm.instance_watch import InstanceWatch
from capox.ccm.kinds import NODES, PODS, SERVICES
from capox.ccm.leading import NotLeadingError
from capox.ccm.node_syncs import NodeSyncs
from capox.ccm.orphans import Orphans
from capox.ccm.proxy_mode import ProxyMode
from capox.ccm.service_mapping import ServiceMapper
from capox.ccm.service_plan import is_wanted
from capox.ccm.settings import CCMSettings
from capox.kube import metrics
from capox.kube.core_objects import Node, Pod, Service
from capox.kube.errors import KubeError
from capox.kube.watch import Watch, WatchEvent
from capox.kube.workqueue import Request, Result, Workqueue
from capox.oxide.errors import OxideError

__all__ = ["Caches", "Controllers"]

_WEATHER: Final = (KubeError, OxideError, CredentialsError, NotLeadingError)


class Caches:
    """What the watches have told.

    Args:
        controllers: Which controllers run; nothing is kept that none of them needs.
    """

    def __init__(self, controllers: frozenset[str]) -> None:
        self.nodes: Cache[Node] = Cache(NODES)
        self.services: Cache[Service] = Cache(SERVICES)
        self.pods: Cache[Pod] = Cache(PODS, takes_ports)
        has_services = service.CONTROLLER in controllers
        self.used: tuple[Cache[Any], ...] = (self.nodes, self.services, self.pods) if has_services else (self.nodes,)


class Controllers:
    """The controllers that were chosen.

    Args:
        settings: Which, and how.
        caches: What the watches have told.
        randomness: Where jitter comes from.
        registry: Where metrics are.

    Attributes:
        queues: The work queues by controller.
        lifecycle: The controller that has none; None when it was not chosen.
        orphans: What looks for floating IPs that are left over; None without the controller of Services.
        instance_watch: What wakes Services by the rack's instances; None when their controller was not chosen.
    """

    def __init__(
        self, settings: CCMSettings, caches: Caches, randomness: random.Random, registry: metrics.Registry
    ) -> None:
        self._settings = settings
        self._caches = caches
        self._randomness = randomness
        self._node_metrics = metrics.NodeMetrics(registry)
        self._queue_metrics = metrics.QueueMetrics(registry)
        self._service_metrics = metrics.ServiceMetrics(registry)
        self._mapper = ServiceMapper(caches.services)
        self._node_syncs: NodeSyncs | None = None
        self.queues: dict[str, Workqueue] = {}
        self.lifecycle: node_lifecycle.NodeLifecycle | None = None
        self.orphans: Orphans | None = None
        self.instance_watch: InstanceWatch | None = None

    def add_nodes(self, deps: Deps) -> None:
        """Add the controller that tells Nodes about their instances."""
        settings = self._settings
        options = node.NodeOptions(
            region=settings.region,
            zone=settings.zone,
            families=("v6", "v4") if settings.is_ipv6_first else ("v4", "v6"),
            period_seconds=settings.node_status_seconds,
        )
        reconciler = node.NodeReconciler(deps, options, self._node_metrics)
        self._add_queue(node.CONTROLLER, reconciler.reconcile, settings.node_concurrency)

    def add_lifecycle(self, deps: Deps) -> None:
        """Add the controller that taints and deletes Nodes."""
        self.lifecycle = node_lifecycle.NodeLifecycle(
            deps,
            period_seconds=self._settings.node_monitor_seconds,
            on_node_going=self._on_node_going,
            counter=self._node_metrics,
        )

    def add_services(self, deps: Deps, cluster_id: str) -> None:
        """Add the controller of Services."""
        load_balancer = FloatingIps(deps.rack, deps.clock, cluster_id, go_cluster_name=self._settings.cluster_name)
        self._node_syncs = NodeSyncs(deps.clock, self._service_metrics)
        reconciler = service.ServiceReconciler(
            deps,
            load_balancer,
            self._wake_service,
            proxy_mode=ProxyMode(deps.kube, deps.clock).read,
            node_syncs=self._node_syncs,
        )
        self._add_queue(service.CONTROLLER, reconciler.reconcile, self._settings.service_concurrency)
        self.orphans = Orphans(deps, cluster_id, self._service_metrics.on_orphans)
        self.instance_watch = InstanceWatch(
            deps.rack,
            deps.clock,
            self._caches.nodes,
            is_needed=lambda: any(map(is_wanted, self._caches.services)),
            wake=self._wake_services,
        )

    def watches(self) -> list[Watch]:
        """What has to be watched."""
        # A Node concerns every Service, also when only its name is left of it: remembered, it would be all of them for
        # each Node.
        watcher = node.CONTROLLER if node.CONTROLLER in self.queues else None
        found = [Watch(NODES, self._on_node, watcher, is_remembered=False)]
        if service.CONTROLLER in self.queues:
            found.append(Watch(SERVICES, self._on_service, service.CONTROLLER))
            found.append(Watch(PODS, self._on_pod))
        return found

    def _add_queue(self, name: str, reconcile: Callable[[Request], Awaitable[Result]], concurrency: int) -> None:
        self.queues[name] = Workqueue(
            name,
            reconcile,
            concurrency=concurrency,
            randomness=self._randomness,
            metrics=self._queue_metrics,
            weather=_WEATHER,
        )

    def _on_node(self, event: WatchEvent) -> list[tuple[str, Request]]:
        self._caches.nodes.see(event)
        wakeups = []
        if node.CONTROLLER in self.queues:
            wakeups.append((node.CONTROLLER, Request("", event.document["metadata"]["name"])))
        of_services = self._of_services(event)
        if self._node_syncs is not None:
            self._node_syncs.began(request for _, request in of_services)
        return wakeups + of_services

    def _on_service(self, event: WatchEvent) -> list[tuple[str, Request]]:
        self._caches.services.see(event)
        return self._of_services(event)

    def _on_pod(self, event: WatchEvent) -> list[tuple[str, Request]]:
        self._caches.pods.see(event)
        return self._of_services(event)

    def _of_services(self, event: WatchEvent) -> list[tuple[str, Request]]:
        if service.CONTROLLER not in self.queues:
            return []
        return [(service.CONTROLLER, request) for request in self._mapper.requests_for(event)]

    def _wake_service(self, request: Request) -> None:
        self.queues[service.CONTROLLER].add(request)

    async def _on_node_going(self, going: Node) -> None:
        """Have every Service looked at: the floating IPs of an instance that is gone have to go elsewhere (L9)."""
        del going
        if service.CONTROLLER in self.queues:
            self._wake_services()

    def _wake_services(self) -> None:
        for each in self._caches.services:
            self._wake_service(Request(each.metadata.namespace, each.metadata.name))


def takes_ports(pod: Pod) -> bool:
    """Whether a Pod takes ports of its node, so that Services must know of it (V6)."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    has_ports = any(port.host_port for container in containers for port in container.ports)
    return bool(pod.spec.node_name) and (bool(pod.spec.host_network) or has_ports)
