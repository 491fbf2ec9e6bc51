"""`capox provider`: builds the clients, registers the controllers, runs until it is asked to end.

Only the replica that holds the Leases works; one that loses them ends at once, because nothing fences what it does on
the rack (K-41). Asked to end, it takes nothing new, lets the passes under way finish, and gives the Leases back (K-35).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from capox import logs
from capox.kube import metrics, serving
from capox.kube.access_review import Reviewer
from capox.kube.certificates import self_signed
from capox.kube.client import KubeClient
from capox.kube.errors import KubeError
from capox.kube.events import EventRecorder
from capox.kube.kind import Kind
from capox.kube.kopf_source import KopfSource
from capox.kube.lease import LeaderElection, LeaseLostError
from capox.kube.manager import Manager, WatchesLostError, background, stop_on_signals
from capox.kube.probe import probe
from capox.kube.remote import RemoteClient
from capox.kube.watch import Dispatcher, Watch, WatchEvent
from capox.kube.workqueue import Request, Result, Workqueue
from capox.oxide.clock import LoopClock, utc_now
from capox.oxide.errors import OxideError
from capox.oxide.token_bucket import TokenBuckets
from capox.provider import ccm_addon, cluster, machine, template
from capox.provider.ccm_addon_credentials import CredentialsProbe
from capox.provider.ccm_addon_image import OwnImage
from capox.provider.ccm_addon_manifests import MANAGED_BY
from capox.provider.ccm_addon_pass import AddonDeps
from capox.provider.ccm_addon_rollout import Upgrades
from capox.provider.deps import Deps
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINE_TEMPLATES, OXIDE_MACHINES
from capox.provider.mapping import Mapper
from capox.provider.racks import Racks
from capox.settings import ProviderSettings, provider_settings

__all__ = ["main", "run"]

LEASES: Final = ("capox.infrastructure.cluster.x-k8s.io", "4c4262a8.cluster.x-k8s.io")
"""Ours, and that of Oxide's own provider, so that the two never work at once."""

EVENTS_DRAIN_SECONDS: Final = 3.0
"""How long the last Events may take to be sent."""

_CONTROLLER_OF: Final[dict[Kind[Any], str | None]] = {
    OXIDE_CLUSTERS: cluster.CONTROLLER,
    OXIDE_MACHINES: machine.CONTROLLER,
    OXIDE_MACHINE_TEMPLATES: template.CONTROLLER,
    CLUSTERS: None,
    MACHINES: None,
}


class _Reconciler(Protocol):
    async def reconcile(self, request: Request) -> Result: ...


def main(arguments: Sequence[str]) -> int:
    """Run the provider; the exit code is 0 when it was asked to end, 1 when it could not go on."""
    settings = provider_settings(arguments)
    logs.configure(level=settings.log_level, is_json=settings.is_log_json)
    try:
        asyncio.run(run(settings))
    except (KubeError, LeaseLostError, WatchesLostError) as error:
        structlog.get_logger().error("Ending", error=str(error), errorType=type(error).__name__)
        return 1
    return 0


async def run(settings: ProviderSettings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        KubeError: There is no way to log in to Kubernetes.
        LeaseLostError: Another replica may be at work.
        WatchesLostError: Nothing is seen any more.
    """
    registry = metrics.Registry()
    randomness = random.SystemRandom()
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await KubeClient.login(settings.kubeconfig))
        recorder = EventRecorder(
            kube,
            component="capox-provider",
            instance=settings.identity,
            now=utc_now,
            randomness=randomness,
            metrics=metrics.EventMetrics(registry),
        )
        buckets = TokenBuckets(rate_per_second=settings.rack_requests_per_second, burst=settings.rack_burst)
        racks = Racks(buckets, LoopClock())
        stack.push_async_callback(racks.aclose)
        await stack.enter_async_context(background(recorder.run()))
        stack.push_async_callback(recorder.drain, EVENTS_DRAIN_SECONDS)
        replica = _Replica(settings, kube, randomness, registry)
        replica.add_controllers(racks, recorder)
        await replica.serve(stack)
        with stop_on_signals(stop):
            await replica.run(stop)


class _Replica:
    """One process of the provider: its controllers, what it tells of itself, and its part in the election.

    Args:
        settings: How it runs.
        kube: The management cluster.
        randomness: Where ids and jitter come from.
        registry: Where its metrics are.
    """

    def __init__(
        self, settings: ProviderSettings, kube: KubeClient, randomness: random.Random, registry: metrics.Registry
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._randomness = randomness
        self._registry = registry
        self._queues: dict[str, Workqueue] = {}
        self._is_working = False
        self._is_serving = False

    def add_controllers(self, racks: Racks, recorder: EventRecorder) -> None:
        """Make the controllers with their queues, and the manager that feeds them."""
        settings = self._settings
        deps = Deps(
            kube=self._kube,
            racks=racks,
            clock=LoopClock(),
            now=utc_now,
            randomness=self._randomness,
            recorder=recorder,
            probe=probe,
            watch_filter=settings.watch_filter,
            sync_period_seconds=settings.sync_period_seconds,
        )
        reconcilers: dict[str, tuple[_Reconciler, int]] = {
            cluster.CONTROLLER: (
                cluster.ClusterReconciler(deps, self._waker(cluster.CONTROLLER)),
                settings.cluster_concurrency,
            ),
            machine.CONTROLLER: (
                machine.MachineReconciler(deps, self._waker(machine.CONTROLLER)),
                settings.machine_concurrency,
            ),
            template.CONTROLLER: (template.TemplateReconciler(deps), settings.template_concurrency),
            ccm_addon.CONTROLLER: (self._ccm_addon(deps), settings.ccm_concurrency),
        }
        queue_metrics = metrics.QueueMetrics(self._registry)
        for controller, (reconciler, concurrency) in reconcilers.items():
            self._queues[controller] = Workqueue(
                controller,
                reconciler.reconcile,
                concurrency=concurrency,
                randomness=self._randomness,
                metrics=queue_metrics,
                weather=(KubeError, OxideError),
            )
        self._manager = self._make_manager()

    def _ccm_addon(self, deps: Deps) -> ccm_addon.CcmAddonReconciler:
        settings = self._settings
        addon = AddonDeps(
            deps=deps,
            enter=lambda login: RemoteClient.enter(login, field_manager=MANAGED_BY),
            own_image=OwnImage(self._kube, settings.pod, settings.ccm_image),
            may_share=settings.may_share_credentials,
            probe=CredentialsProbe(deps.racks, deps.clock),
            upgrades=Upgrades(self._kube, settings.namespace or None, deps.clock),
        )
        return ccm_addon.CcmAddonReconciler(addon)

    async def serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Tell of itself over HTTP, until the stack is left."""
        loop = serving.LoopWatch(metrics.LoopMetrics(self._registry))
        await stack.enter_async_context(background(loop.run()))
        health: dict[str, serving.Check] = {
            "loop": loop.check,
            "watches": self._when_working(serving.manager_health(self._manager)),
            **{name: self._when_working(serving.queue_health(queue)) for name, queue in self._queues.items()},
        }
        readiness: dict[str, serving.Check] = {
            "watches-complete": self._when_working(serving.manager_readiness(self._manager))
        }
        settings = self._settings
        if settings.health_address is not None:
            # First: making a certificate may take long on a busy node, and the kubelet asks meanwhile.
            where = serving.Address(settings.health_address.host, settings.health_address.port)
            readiness["metrics"] = lambda: None if self._is_serving else "the metrics are not served yet"
            await stack.enter_async_context(serving.serve(where, serving.health_routes(health, readiness)))
        if settings.diagnostics_address is not None:
            where = serving.Address(settings.diagnostics_address.host, settings.diagnostics_address.port)
            guard, tls = (None, None) if settings.is_diagnostics_insecure else await self._protection()
            await stack.enter_async_context(serving.serve(where, (serving.metrics_route(self._registry, guard),), tls))
        self._is_serving = True

    async def _protection(self) -> tuple[serving.Guard, ssl.SSLContext]:
        """What Cluster API's managers put before their diagnostics: HTTPS, and the cluster's own rights."""
        return Reviewer(self._kube).refusal, await self_signed(self._settings.identity)

    async def run(self, stop: asyncio.Event) -> None:
        """Work, once the Leases are held where that is asked for; end while waiting for them when asked to."""

        async def work() -> None:
            self._is_working = True
            await self._manager.run(stop)

        settings = self._settings
        if not settings.is_leader_elected:
            await work()
            return
        election = LeaderElection(
            self._kube,
            [Request(settings.lease_namespace, name) for name in LEASES],
            identity=f"{settings.identity}_{self._randomness.getrandbits(64):016x}",
            on_lost=lambda: None,
            now=utc_now,
            randomness=self._randomness,
            metrics=metrics.LeaseMetrics(self._registry),
        )
        leading = asyncio.create_task(election.run(work), name="leading")
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

    def _waker(self, controller: str) -> Callable[[Request], None]:
        # Bound late: a reconciler is made before its queue.
        def wake(request: Request) -> None:
            self._queues[controller].add(request)

        return wake

    def _when_working(self, check: serving.Check) -> serving.Check:
        """A check that a standby passes: it has nothing to watch yet."""
        return lambda: check() if self._is_working else None

    def _make_manager(self) -> Manager:
        mapper = Mapper()

        def map_event(event: WatchEvent) -> list[tuple[str, Request]]:
            return list(mapper.requests_for(event.kind.name, event.document, event.type))

        watches = [Watch(kind, map_event, controller) for kind, controller in _CONTROLLER_OF.items()]
        watch_metrics = metrics.WatchMetrics(self._registry)
        namespace = self._settings.namespace or None
        return Manager(
            source=KopfSource(self._kube, list(_CONTROLLER_OF), namespace),
            lister=self._kube,
            dispatcher=Dispatcher(watches, self._queues, watch_metrics),
            queues=self._queues,
            namespace=namespace,
            sync_period_seconds=self._settings.sync_period_seconds,
            randomness=self._randomness,
            metrics=watch_metrics,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
