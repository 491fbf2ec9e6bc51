"""`capox ccm`: builds the clients, registers the controllers, runs until it is asked to end.

Only the replica that holds the Lease works, and one that loses it ends at once (R1). The Lease has the name that every
cloud controller manager uses, so that Oxide's own and this one never work at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from capox import logs
from capox.ccm import node, node_lifecycle, permissions, service
from capox.ccm.controllers import Caches, Controllers
from capox.ccm.credentials import CredentialsError, CredentialsSource
from capox.ccm.deps import Deps
from capox.ccm.kinds import NAMESPACES
from capox.ccm.leading import LeadingKube
from capox.ccm.rack import Rack
from capox.ccm.settings import CCMSettings, ccm_settings
from capox.kube import metrics, serving
from capox.kube.access_review import Reviewer, missing_permissions
from capox.kube.certificates import self_signed, tls_from_files
from capox.kube.client import FIELD_MANAGER, KubeClient
from capox.kube.errors import KubeError, LoginError
from capox.kube.events import EventRecorder
from capox.kube.kopf_source import KopfSource
from capox.kube.kubeconfig import KubeconfigRefusedError, parse_kubeconfig
from capox.kube.lease import LeaderElection, LeaseLostError, LeaseTimes
from capox.kube.manager import Manager, WatchesLostError, background, stop_on_signals
from capox.kube.remote import WHOLE, RemoteClient
from capox.kube.watch import Dispatcher
from capox.kube.workqueue import Request
from capox.oxide.clock import LoopClock, utc_now
from capox.oxide.errors import OxideError
from capox.oxide.token_bucket import TokenBucket

__all__ = ["main", "run"]

T = TypeVar("T")

EVENTS_DRAIN_SECONDS: Final = 3.0
"""How long the last Events may take to be sent."""

INSIST_SECONDS: Final = 2.0
"""The longest pause after a first attempt to read what is needed to begin; it doubles, up to thirty times this."""

LIFECYCLE_SILENCE_SECONDS: Final = 900.0
"""How long one look at the Nodes may take. Every call that it makes has a deadline."""


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
        kube = await stack.enter_async_context(await _login(settings))
        replica = _Replica(settings, kube, random.SystemRandom())
        await replica.begin(stack)
        with stop_on_signals(stop):
            await replica.run(stop)


async def _login(settings: CCMSettings) -> KubeClient:
    """Log in to the cluster; one that is somebody else's is asked for no more than what its kubeconfig has inline."""
    if not settings.is_kubeconfig_untrusted or settings.kubeconfig is None:
        return await KubeClient.login(settings.kubeconfig)
    try:
        login = parse_kubeconfig(settings.kubeconfig.read_text(encoding="utf-8"))
    except (KubeconfigRefusedError, ValueError) as error:
        raise LoginError(f"kubeconfig {settings.kubeconfig}: {error}") from error
    return RemoteClient.enter(login, field_manager=FIELD_MANAGER, limits=WHOLE)


class _Replica:
    """One process of the cloud controller manager: what it tells of itself, and its part in the election.

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
        self._election = LeaderElection(
            kube,
            [Request(settings.lease_namespace, settings.lease_name)],
            identity=f"{settings.identity}_{randomness.getrandbits(64):016x}",
            on_lost=lambda: None,
            now=utc_now,
            randomness=randomness,
            metrics=metrics.LeaseMetrics(self._registry),
            times=LeaseTimes(settings.lease_seconds, settings.renew_deadline_seconds, settings.retry_seconds),
        )
        source = CredentialsSource(settings.rack_variables, settings.credentials_directory)
        self._rack = Rack(
            source.read,
            LoopClock(),
            is_leading=self._is_leading,
            bucket=TokenBucket(rate_per_second=settings.rack_requests_per_second, burst=settings.rack_burst),
            counter=metrics.CallMetrics(self._registry),
        )
        self._caches = Caches(settings.controllers)
        self._controllers = Controllers(settings, self._caches, randomness, self._registry)
        self._event_metrics = metrics.EventMetrics(self._registry)
        self._watch_metrics = metrics.WatchMetrics(self._registry)
        # From when the Lease is ours and the first lists are read.
        self._manager: Manager | None = None

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Tell of itself over HTTP until the stack is left, and say what it lacks."""
        stack.push_async_callback(self._rack.aclose)
        self._stack = stack
        await self._serve(stack)
        await stack.enter_async_context(background(self._tell_missing_permissions()))

    async def run(self, stop: asyncio.Event) -> None:
        """Work, once the Lease is held where that is asked for; end while waiting for it when asked to."""

        async def work() -> None:
            await self._work(stop)

        election = self._election.run(work) if self._settings.is_leader_elected else work()
        leading = asyncio.create_task(election, name="leading")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._manager is None:
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
        for cache in self._caches.used:
            await self._insist(functools.partial(cache.relist, self._kube), f"the first list of {cache.kind}")
        await self._add_controllers()
        manager = self._manager = self._make_manager()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(background(self._relist_for_ever()))
            if self._controllers.lifecycle is not None:
                await stack.enter_async_context(background(self._controllers.lifecycle.run()))
            if self._controllers.orphans is not None:
                await stack.enter_async_context(background(self._controllers.orphans.run()))
            if self._controllers.instance_watch is not None:
                await stack.enter_async_context(background(self._controllers.instance_watch.run()))
            await manager.run(stop)

    # -- what it is made of -------------------------------------------------------------------------------------------

    async def _add_controllers(self) -> None:
        """Make the controllers that were chosen, each with its own voice in Events."""
        chosen = self._settings.controllers
        if node.CONTROLLER in chosen:
            self._controllers.add_nodes(await self._deps(node.COMPONENT))
        if node_lifecycle.CONTROLLER in chosen:
            self._controllers.add_lifecycle(await self._deps(node_lifecycle.COMPONENT))
        if service.CONTROLLER in chosen:
            cluster_id = self._settings.cluster_id or await self._insist(self._cluster_uid, "the cluster's UID")
            self._controllers.add_services(await self._deps(service.COMPONENT), cluster_id)

    async def _deps(self, component: str) -> Deps:
        recorder = EventRecorder(
            self._kube,
            component=component,
            instance=self._settings.identity,
            now=utc_now,
            randomness=self._randomness,
            metrics=self._event_metrics,
        )
        await self._stack.enter_async_context(background(recorder.run()))
        self._stack.push_async_callback(recorder.drain, EVENTS_DRAIN_SECONDS)
        return Deps(
            kube=LeadingKube(self._kube, self._is_leading),
            rack=self._rack,
            nodes=self._caches.nodes,
            services=self._caches.services,
            pods=self._caches.pods,
            clock=LoopClock(),
            now=utc_now,
            randomness=self._randomness,
            recorder=recorder,
            is_leading=self._is_leading,
        )

    def _make_manager(self) -> Manager:
        watches, queues = self._controllers.watches(), self._controllers.queues
        return Manager(
            source=KopfSource(self._kube, [watch.kind for watch in watches], None),
            lister=self._kube,
            dispatcher=Dispatcher(watches, queues, self._watch_metrics),
            queues=queues,
            namespace=None,
            sync_period_seconds=self._settings.node_status_seconds,
            randomness=self._randomness,
            metrics=self._watch_metrics,
        )

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Answer /healthz, /readyz and /metrics. Health is ours alone, and never the rack's (5.1)."""
        loop = serving.LoopWatch(metrics.LoopMetrics(self._registry))
        await stack.enter_async_context(background(loop.run()))
        settings, address = self._settings, self._settings.serving_address
        if address is None:
            return
        health: dict[str, serving.Check] = {"loop": loop.check, "work": self._work_check}
        readiness: dict[str, serving.Check] = {
            "watches-complete": self._watches_check,
            "rack": lambda: self._rack.trouble,
        }
        routes = (
            *serving.health_routes(health, readiness),
            serving.metrics_route(self._registry, Reviewer(self._kube).refusal),
        )
        tls = (
            await self_signed(settings.identity)
            if settings.tls_certificate is None
            else tls_from_files(settings.tls_certificate, settings.tls_key)
        )
        await stack.enter_async_context(serving.serve(serving.Address(address.host, address.port), routes, tls))

    # -- what it does beside its controllers --------------------------------------------------------------------------

    async def _look_at_rack(self) -> None:
        """Look at the project once, so that wrong credentials are told at the start; work goes on without it (R3)."""
        try:
            await self._rack.project()
        except (OxideError, CredentialsError) as error:
            self._log.error("The rack cannot be worked with yet", error=str(error), errorType=type(error).__name__)

    async def _insist(self, read: Callable[[], Awaitable[T]], what: str) -> T:
        """Read something without which nothing can begin, however long it takes."""
        pause_seconds = INSIST_SECONDS
        while True:
            try:
                return await read()
            except KubeError as error:
                self._log.warning("Reading failed", what=what, error=str(error))
            await asyncio.sleep(pause_seconds * (0.5 + self._randomness.random() / 2))
            pause_seconds = min(30 * INSIST_SECONDS, 2 * pause_seconds)

    async def _cluster_uid(self) -> str:
        """What stands for a cluster that nobody has given an id (V9)."""
        return (await self._kube.get(NAMESPACES, "", "kube-system")).metadata.uid

    async def _relist_for_ever(self) -> None:
        """Make up for what the watches lose."""
        while True:
            await asyncio.sleep(self._settings.node_status_seconds * (0.8 + 0.4 * self._randomness.random()))
            for cache in self._caches.used:
                try:
                    await cache.relist(self._kube)
                except KubeError as error:
                    self._log.warning("Listing failed", kind=str(cache.kind), error=str(error))

    async def _tell_missing_permissions(self) -> None:
        """Say at the start what we may not do, rather than let it be found out one failure at a time (R7)."""
        settings = self._settings
        wanted = permissions.wanted(settings.controllers, settings.lease_namespace, settings.lease_name)
        try:
            missing = await missing_permissions(self._kube, wanted)
        except KubeError as error:
            self._log.warning("Asking for our own permissions failed", error=str(error))
            return
        for each in missing:
            self._log.error("A permission is missing", permission=str(each))

    def _is_leading(self) -> bool:
        return not self._settings.is_leader_elected or self._election.is_leading()

    # -- health; a standby has nothing that could be wrong ------------------------------------------------------------

    def _work_check(self) -> str | None:
        """What a restart would mend."""
        manager, lifecycle = self._manager, self._controllers.lifecycle
        if manager is None:
            return None
        if not self._is_leading():
            return "the Lease is not surely ours"
        if lifecycle is not None and lifecycle.silence_seconds > LIFECYCLE_SILENCE_SECONDS:
            return f"the Nodes were not looked at for {lifecycle.silence_seconds:.0f} s"
        checks = [serving.manager_health(manager), *map(serving.queue_health, self._controllers.queues.values())]
        return next((said for check in checks if (said := check()) is not None), None)

    def _watches_check(self) -> str | None:
        return None if self._manager is None else serving.manager_readiness(self._manager)()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
