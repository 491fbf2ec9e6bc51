"""`capox ccm`: builds the clients, registers the controllers, runs until it is asked to end.

Only the replica that holds the Lease works, and one that loses it ends at once (R1). The Lease has the name that every
cloud controller manager uses, so that Oxide's own and this one never work at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from capox import logs
from capox.ccm import node, node_lifecycle, permissions
from capox.ccm.cache import Cache
from capox.ccm.credentials import CredentialsError, CredentialsSource
from capox.ccm.deps import Deps
from capox.ccm.kinds import NODES, PODS, SERVICES
from capox.ccm.leading import LeadingKube, NotLeadingError
from capox.ccm.rack import Rack
from capox.ccm.settings import CCMSettings, ccm_settings
from capox.kube import metrics, serving
from capox.kube.access_review import Reviewer, missing_permissions
from capox.kube.certificates import self_signed, tls_from_files
from capox.kube.client import KubeClient
from capox.kube.core_objects import Pod
from capox.kube.errors import KubeError
from capox.kube.events import EventRecorder
from capox.kube.kopf_source import KopfSource
from capox.kube.lease import LeaderElection, LeaseLostError, LeaseTimes
from capox.kube.manager import Manager, WatchesLostError, stop_on_signals
from capox.kube.watch import Dispatcher, Watch, WatchEvent
from capox.kube.workqueue import Request, Workqueue
from capox.oxide.clock import LoopClock
from capox.oxide.errors import OxideError
from capox.oxide.token_bucket import TokenBucket

__all__ = ["main", "run"]

EVENTS_DRAIN_SECONDS: Final = 3.0
"""How long the last Events may take to be sent."""

SYNC_RETRY_SECONDS: Final = 2.0
"""The pause between two attempts to read the first lists; it doubles, up to thirty times this."""

LIFECYCLE_SILENCE_SECONDS: Final = 900.0
"""How long one look at the Nodes may take. Every call that it makes has a deadline."""

_WEATHER: Final = (KubeError, OxideError, CredentialsError, NotLeadingError)


def main(arguments: Sequence[str]) -> int:
    """Run the cloud controller manager; the exit code is 0 when it was asked to end, 1 when it could not go on."""
    settings = ccm_settings(arguments)
    logs.configure(level=settings.log_level, is_json=settings.is_log_json)
    try:
        asyncio.run(run(settings))
    except (KubeError, LeaseLostError, WatchesLostError, OSError) as error:
        structlog.get_logger().error("Ending", error=str(error), errorType=type(error).__name__)
        return 1
    return 0


async def run(settings: CCMSettings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        KubeError: There is no way to log in to Kubernetes.
        LeaseLostError: Another replica may be at work.
        WatchesLostError: Nothing is seen any more.
        OSError: The port cannot be listened at, or the certificate cannot be read.
    """
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await KubeClient.login(settings.kubeconfig))
        replica = _Replica(settings, kube, random.SystemRandom())
        await replica.begin(stack)
        with stop_on_signals(stop):
            await replica.run(stop)


class _Replica:
    """One process of the cloud controller manager.

    Args:
        settings: How it runs.
        kube: The cluster.
        randomness: Where ids and jitter come from.
    """

    def __init__(self, settings: CCMSettings, kube: KubeClient, randomness: random.Random) -> None:
        self._settings = settings
        self._kube = kube
        self._randomness = randomness
        self._registry = metrics.Registry()
        self._log = structlog.get_logger()
        self._queues: dict[str, Workqueue] = {}
        self._lifecycle: node_lifecycle.NodeLifecycle | None = None
        self._is_working = False
        self._election = LeaderElection(
            kube,
            [Request(settings.lease_namespace, settings.lease_name)],
            identity=f"{settings.identity}_{randomness.getrandbits(64):016x}",
            on_lost=lambda: None,
            now=_now,
            randomness=randomness,
            metrics=metrics.LeaseMetrics(self._registry),
            times=LeaseTimes(settings.lease_seconds, settings.renew_deadline_seconds, settings.retry_seconds),
        )
        self._nodes = Cache(NODES)
        self._services = Cache(SERVICES)
        self._pods = Cache(PODS, _takes_ports)
        self._caches: tuple[Cache[Any], ...] = (self._nodes,)

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Make everything, and tell of itself over HTTP, until the stack is left."""
        settings = self._settings
        source = CredentialsSource(settings.rack_variables, settings.credentials_directory)
        self._rack = Rack(
            source.read,
            LoopClock(),
            is_leading=self._is_leading,
            bucket=TokenBucket(rate_per_second=settings.rack_requests_per_second, burst=settings.rack_burst),
            counter=metrics.CallMetrics(self._registry),
        )
        stack.push_async_callback(self._rack.aclose)
        await self._add_controllers(stack)
        self._manager = self._make_manager()
        await self._serve(stack)
        await stack.enter_async_context(_background(self._tell_missing_permissions()))

    async def run(self, stop: asyncio.Event) -> None:
        """Work, once the Lease is held where that is asked for; end while waiting for it when asked to."""

        async def work() -> None:
            await self._work(stop)

        if not self._settings.is_leader_elected:
            await work()
            return
        leading = asyncio.create_task(self._election.run(work), name="leading")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not self._is_working:
                # A standby has nothing to finish.
                leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading
        finally:
            stopping.cancel()
            leading.cancel()

    async def _work(self, stop: asyncio.Event) -> None:
        """Read the first lists, then watch; nothing is decided before (R9)."""
        await self._look_at_rack()
        for cache in self._caches:
            await self._sync(cache)
        self._is_working = True
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_background(self._relist_for_ever()))
            if self._lifecycle is not None:
                await stack.enter_async_context(_background(self._lifecycle.run()))
            await self._manager.run(stop)

    # -- what it is made of -------------------------------------------------------------------------------------------

    async def _add_controllers(self, stack: contextlib.AsyncExitStack) -> None:
        """Make the controllers that were chosen, each with its own voice in Events."""
        settings, node_metrics = self._settings, metrics.NodeMetrics(self._registry)
        event_metrics, queue_metrics = metrics.EventMetrics(self._registry), metrics.QueueMetrics(self._registry)

        async def deps_of(component: str) -> Deps:
            recorder = EventRecorder(
                self._kube,
                component=component,
                instance=settings.identity,
                now=_now,
                randomness=self._randomness,
                metrics=event_metrics,
            )
            await stack.enter_async_context(_background(recorder.run()))
            stack.push_async_callback(recorder.drain, EVENTS_DRAIN_SECONDS)
            return Deps(
                kube=LeadingKube(self._kube, self._is_leading),
                rack=self._rack,
                nodes=self._nodes,
                services=self._services,
                pods=self._pods,
                clock=LoopClock(),
                now=_now,
                randomness=self._randomness,
                recorder=recorder,
                is_leading=self._is_leading,
            )

        def add_queue(name: str, reconcile: Callable[[Request], Coroutine[Any, Any, Any]], concurrency: int) -> None:
            self._queues[name] = Workqueue(
                name,
                reconcile,
                concurrency=concurrency,
                randomness=self._randomness,
                metrics=queue_metrics,
                weather=_WEATHER,
            )

        if node.CONTROLLER in settings.controllers:
            options = node.NodeOptions(
                region=settings.region,
                zone=settings.zone,
                families=("v6", "v4") if settings.is_ipv6_first else ("v4", "v6"),
                period_seconds=settings.node_status_seconds,
            )
            reconciler = node.NodeReconciler(await deps_of(node.COMPONENT), options, node_metrics)
            add_queue(node.CONTROLLER, reconciler.reconcile, settings.node_concurrency)
        if node_lifecycle.CONTROLLER in settings.controllers:
            self._lifecycle = node_lifecycle.NodeLifecycle(
                await deps_of(node_lifecycle.COMPONENT),
                period_seconds=settings.node_monitor_seconds,
                counter=node_metrics,
            )

    def _make_manager(self) -> Manager:
        watch_metrics = metrics.WatchMetrics(self._registry)
        watches = [Watch(NODES, self._on_node, node.CONTROLLER if node.CONTROLLER in self._queues else None)]
        return Manager(
            source=KopfSource(self._kube, [watch.kind for watch in watches], None),
            lister=self._kube,
            dispatcher=Dispatcher(watches, self._queues, watch_metrics),
            queues=self._queues,
            namespace=None,
            sync_period_seconds=self._settings.node_status_seconds,
            randomness=self._randomness,
            metrics=watch_metrics,
        )

    def _on_node(self, event: WatchEvent) -> list[tuple[str, Request]]:
        """Take note of a Node, and have it looked at."""
        self._nodes.see(event)
        request = Request("", event.document["metadata"]["name"])
        return [(node.CONTROLLER, request)] if node.CONTROLLER in self._queues else []

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Answer /healthz, /readyz and /metrics. Health is ours alone, and never the rack's (5.1)."""
        loop = serving.LoopWatch(metrics.LoopMetrics(self._registry))
        await stack.enter_async_context(_background(loop.run()))
        address = self._settings.serving_address
        if address is None:
            return
        health: dict[str, serving.Check] = {
            "loop": loop.check,
            "watches": self._when_working(serving.manager_health(self._manager)),
            "lease": self._when_working(self._lease_check),
            "nodes": self._when_working(self._lifecycle_check),
            **{name: self._when_working(serving.queue_health(queue)) for name, queue in self._queues.items()},
        }
        readiness: dict[str, serving.Check] = {
            "watches-complete": self._when_working(serving.manager_readiness(self._manager)),
            "rack": lambda: self._rack.trouble,
        }
        routes = (
            *serving.health_routes(health, readiness),
            serving.metrics_route(self._registry, Reviewer(self._kube).refusal),
        )
        settings = self._settings
        tls = (
            tls_from_files(settings.tls_certificate, settings.tls_key)
            if settings.tls_certificate is not None
            else self_signed(settings.identity)
        )
        await stack.enter_async_context(serving.serve(serving.Address(address.host, address.port), routes, tls))

    # -- what it does beside its controllers --------------------------------------------------------------------------

    async def _look_at_rack(self) -> None:
        """Look at the project once, so that wrong credentials are told at the start; work goes on without it (R3)."""
        try:
            await self._rack.project()
        except (OxideError, CredentialsError) as error:
            self._log.error("The rack cannot be worked with yet", error=str(error), errorType=type(error).__name__)

    async def _sync(self, cache: Cache[Any]) -> None:
        """Read the first list of a kind, however long it takes."""
        pause_seconds = SYNC_RETRY_SECONDS
        while True:
            try:
                await cache.relist(self._kube)
            except KubeError as error:
                self._log.warning("Reading the first list failed", kind=str(cache.kind), error=str(error))
            else:
                return
            await asyncio.sleep(pause_seconds * (0.5 + self._randomness.random() / 2))
            pause_seconds = min(30 * SYNC_RETRY_SECONDS, 2 * pause_seconds)

    async def _relist_for_ever(self) -> None:
        """Make up for what the watches lose."""
        while True:
            await asyncio.sleep(self._settings.node_status_seconds * (0.8 + 0.4 * self._randomness.random()))
            for cache in self._caches:
                await self._sync(cache)

    async def _tell_missing_permissions(self) -> None:
        """Say at the start what we may not do, rather than let it be found out one failure at a time (R7)."""
        wanted = permissions.wanted(
            self._settings.controllers, self._settings.lease_namespace, self._settings.lease_name
        )
        try:
            missing = await missing_permissions(self._kube, wanted)
        except KubeError as error:
            self._log.warning("Asking for our own permissions failed", error=str(error))
            return
        for each in missing:
            self._log.error("A permission is missing", permission=str(each))

    def _is_leading(self) -> bool:
        return not self._settings.is_leader_elected or self._election.is_leading()

    def _when_working(self, check: serving.Check) -> serving.Check:
        """A check that a standby passes: it has nothing to watch yet."""
        return lambda: check() if self._is_working else None

    def _lease_check(self) -> str | None:
        return None if self._is_leading() else "the Lease is not surely ours"

    def _lifecycle_check(self) -> str | None:
        seconds = 0.0 if self._lifecycle is None else self._lifecycle.silence_seconds
        return None if seconds < LIFECYCLE_SILENCE_SECONDS else f"the Nodes were not looked at for {seconds:.0f} s"


def _takes_ports(pod: Pod) -> bool:
    """Whether a Pod takes ports of its node, so that Services must know of it (V6)."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    has_ports = any(port.host_port for container in containers for port in container.ports)
    return bool(pod.spec.node_name) and (bool(pod.spec.host_network) or has_ports)


@contextlib.asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something beside, until the block is left."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
