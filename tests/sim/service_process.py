"""The service controller as a process on virtual time: the real one from its reconciler down, watches from the store.

It can be killed at any await, or right after any write, before it hears that the write was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import SecretStr

from capox.ccm import service
from capox.ccm.cache import Cache
from capox.ccm.credentials import Credentials
from capox.ccm.deps import Deps
from capox.ccm.floating_ip import FloatingIps
from capox.ccm.instance_watch import InstanceWatch
from capox.ccm.kinds import NODES, PODS, SERVICES
from capox.ccm.leading import LeadingKube
from capox.ccm.load_balancer import LoadBalancer
from capox.ccm.proxy_mode import ProxyMode
from capox.ccm.rack import Rack
from capox.ccm.service_mapping import ServiceMapper
from capox.kube.errors import KubeError
from capox.kube.metrics import QueueMetrics, Registry
from capox.kube.watch import WatchEvent
from capox.kube.workqueue import Request, Workqueue
from capox.oxide.client import OxideClient
from capox.oxide.clock import LoopClock
from capox.oxide.errors import OxideError
from tests.sim.loop import simulation_loop
from tests.sim.mortal import Mortal
from tests.sim.store import Change
from tests.sim.store_client import Call, FairWeather, StoreClient
from tests.sim.world import RackTransport

if TYPE_CHECKING:
    from tests.sim.service_world import ServiceWorld

TOKEN = "oxide-token-limited_collaborator"
CLUSTER_ID = "5f0c6a52-7f0e-4f0e-8a3e-2f6f3f0b9d77"

Backend = Callable[[Rack], LoadBalancer]


class WritesCounted(FairWeather):
    """Fair weather that counts what is written, and may end the process right after one of the writes was done.

    Attributes:
        count: How many writes there were, on Kubernetes and on the rack.
        deadly: The number of the write whose answer its process does not live to see; 0 for none.
        on_deadly: Called then.
    """

    def __init__(self) -> None:
        self.count = 0
        self.deadly = 0
        self.on_deadly: Callable[[], None] = lambda: None

    def written(self) -> None:
        """Count a write."""
        self.count += 1
        if self.count == self.deadly:
            self.on_deadly()

    async def after(self, call: Call) -> None:
        """Count it when it is a write."""
        if call.is_write:
            self.written()


class CountingTransport(RackTransport):
    """The way to the rack, with its writes counted.

    Args:
        application: The rack.
        written: Called after each write, before its answer is passed on.
    """

    def __init__(self, application: Any, written: Callable[[], None]) -> None:
        super().__init__(application)
        self._written = written

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        answer = await super().handle_async_request(request)
        if request.method != "GET":
            self._written()
            self._check()
        return answer


def floating_ips(rack: Rack) -> LoadBalancer:
    """The implementation that is shipped."""
    return FloatingIps(rack, LoopClock(), CLUSTER_ID, go_cluster_name="kubernetes")


class Told:
    """Events, kept."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def normal(self, resource: Any, reason: str, message: str) -> None:
        """Keep an event."""
        self.events.append((resource.metadata.name, reason, message))

    warning = normal

    def reasons(self, name: str) -> list[str]:
        """The reasons of what was said about a Service, each once, in order."""
        return list(dict.fromkeys(reason for about, reason, _ in self.events if about == name))

    def messages(self, name: str, reason: str) -> list[str]:
        """What was said about a Service for a reason, each text once."""
        return list(dict.fromkeys(text for about, why, text in self.events if (about, why) == (name, reason)))


class ServiceProcess(Mortal):
    """The service controller, running.

    Args:
        world: Where it runs.
        seed: Of its own randomness.
        unlisted: A kind whose first list never comes; empty for none.

    Attributes:
        deps: What the controller works with.
    """

    def __init__(self, world: ServiceWorld, seed: str, unlisted: str = "") -> None:
        self._world = world
        self._unlisted = unlisted
        dice = random.Random(f"process {seed}")
        self._dice = dice
        self.is_leading = True
        self.kube = StoreClient(world.store, world.weather)
        self.transport = CountingTransport(world.rack.app, world.writes.written)
        credentials = Credentials(host="http://rack", token=SecretStr(TOKEN), project="demo")

        def leading() -> bool:
            return self.is_leading

        self.rack = Rack(lambda: credentials, LoopClock(), is_leading=leading, connect=self._connect)
        self.caches: dict[str, Cache[Any]] = {str(kind): Cache(kind) for kind in (NODES, SERVICES, PODS)}
        self.deps = deps = Deps(
            kube=LeadingKube(self.kube, leading),
            rack=self.rack,
            nodes=self.caches[str(NODES)],
            services=self.caches[str(SERVICES)],
            pods=self.caches[str(PODS)],
            clock=LoopClock(),
            now=simulation_loop().now,
            randomness=dice,
            recorder=world.told,
            is_leading=leading,
        )
        reconciler = service.ServiceReconciler(
            deps,
            world.backend(self.rack),
            self._wake,
            proxy_mode=ProxyMode(self.kube, LoopClock()).read,
        )
        self.queue = Workqueue(
            service.CONTROLLER,
            reconciler.reconcile,
            concurrency=4,
            randomness=dice,
            metrics=QueueMetrics(Registry()),
            weather=(KubeError, OxideError),
        )
        self._mapper = ServiceMapper(self.caches[str(SERVICES)])
        watch = InstanceWatch(
            self.rack,
            LoopClock(),
            self.caches[str(NODES)],
            is_needed=lambda: len(self.caches[str(SERVICES)]) > 0,
            wake=self._wake_all,
        )
        work = (self.queue.run(), self._begin(), watch.run())
        tasks = [asyncio.create_task(each) for each in work]
        unsubscribe = world.store.subscribe(self._on_change)
        self.live(tasks, ways=(self.kube, self.transport), unsubscribe=unsubscribe, aclose=self.rack.aclose)

    async def _begin(self) -> None:
        for kind, cache in self.caches.items():
            while not cache.is_synced and kind != self._unlisted:
                with contextlib.suppress(KubeError):
                    await cache.relist(self.kube)
        self._wake_all()

    def _connect(self, credentials: Credentials) -> OxideClient:
        return OxideClient(
            host="http://rack",
            token=credentials.token,
            transport=self.transport,
            clock=LoopClock(),
            randomness=self._dice,
            deadline_seconds=20.0,
            write_deadline_seconds=20.0,
        )

    def _wake(self, request: Request) -> None:
        self.queue.add(request)

    def _wake_all(self) -> None:
        for each in self.caches[str(SERVICES)]:
            self._wake(Request(each.metadata.namespace, each.metadata.name))

    def _on_change(self, change: Change) -> None:
        cache = self.caches.get(str(change.kind))
        if cache is None:
            return
        event = WatchEvent(change.type, change.kind, change.document)
        cache.see(event)
        for request in self._mapper.requests_for(event):
            self._wake(request)
