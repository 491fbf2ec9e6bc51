"""A whole world on virtual time: a management cluster, a rack, Cluster API's part, and the provider as a process.

The provider is the real one from its reconcilers down; only the watches are the store's. It can be killed at any await:
what it had sent may still arrive, and nothing it would have done afterwards happens.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import SecretStr

from capox.kube.client import KubeAPI
from capox.kube.kind import SECRETS
from capox.kube.kubeconfig import RemoteLogin
from capox.kube.metrics import QueueMetrics, Registry
from capox.kube.workqueue import Request, Workqueue
from capox.oxide.client import OxideClient
from capox.oxide.clock import Clock, LoopClock
from capox.oxide.token_bucket import TokenBuckets
from capox.provider import ccm_addon, cluster, machine
from capox.provider.ccm_addon_credentials import CredentialsProbe
from capox.provider.ccm_addon_image import OwnImage
from capox.provider.ccm_addon_kinds import CONFIG_MAPS
from capox.provider.ccm_addon_pass import AddonDeps
from capox.provider.ccm_addon_rollout import Upgrades
from capox.provider.credentials import Credentials
from capox.provider.deps import Deps
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINES
from capox.provider.mapping import Mapper
from capox.provider.racks import Racks
from capox.rack import instance_states, records
from capox.rack.clock import PassingClock
from capox.rack.faults import FaultRule
from capox.rack.state import Timing
from tests.rack import RackUnderTest
from tests.sim.cluster_api import NAMESPACE, ClusterAPI
from tests.sim.invariants import Watchdog
from tests.sim.loop import EPOCH, simulation_loop
from tests.sim.mortal import Mortal
from tests.sim.store import Change, Store, is_set_once
from tests.sim.store_client import ProcessGoneError, SeededWeather, StoreClient

TOKEN = "oxide-token-limited_collaborator"
NETWORK_TOKEN = "oxide-token-collaborator"
"""Of somebody who may change a VPC's firewall as well."""

TIMING = Timing(
    instance_create=1.2, instance_start=4.0, instance_stop=3.0, disk_delete=0.5, address_change=0.4, auto_restart=40.0
)


@dataclasses.dataclass(frozen=True, slots=True)
class Weather:
    """How bad things are: probabilities of 1.

    Attributes:
        kube: Of a call of Kubernetes failing.
        rack: Of a call of the rack failing.
    """

    kube: float = 0.0
    rack: float = 0.0


class RackTransport(httpx.AsyncBaseTransport):
    """The way to the rack for one process; `cut` ends the process as SIGKILL does."""

    def __init__(self, application: Any) -> None:
        self._inner = httpx.ASGITransport(application)
        self._is_cut = False

    def cut(self) -> None:
        """Let nothing through any more; what has arrived is finished by the rack."""
        self._is_cut = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        self._check()
        try:
            return await self._inner.handle_async_request(request)
        finally:
            self._check()

    def _check(self) -> None:
        if self._is_cut:
            raise ProcessGoneError


def _no_workload_cluster(login: RemoteLogin) -> contextlib.AbstractAsyncContextManager[KubeAPI]:
    raise AssertionError(f"there is no workload cluster {login.server}")


class Recorded:
    """Events, kept."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def normal(self, resource: Any, reason: str, message: str) -> None:
        """Keep an event."""
        self.events.append((f"{resource.kind}/{resource.metadata.name}", reason, message))

    warning = normal


class Process(Mortal):
    """The provider, running.

    Args:
        world: Where it runs.
        seed: Of its own randomness.
    """

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        dice = random.Random(f"process {seed}")
        self.kube = StoreClient(world.store, world.kube_weather)
        self.transport = RackTransport(world.rack.app)
        self.racks = Racks(TokenBuckets(rate_per_second=50, burst=20), LoopClock(), self._connect)
        self._dice = dice
        deps = Deps(
            kube=self.kube,
            racks=self.racks,
            clock=LoopClock(),
            now=simulation_loop().now,
            randomness=dice,
            recorder=world.recorded,
            probe=world.probe,
        )
        metrics = QueueMetrics(Registry())
        self.queues: dict[str, Workqueue] = {}
        # It finds no kubeconfig here: what is tried is that it lives beside the others.
        addon = AddonDeps(
            deps=deps,
            enter=_no_workload_cluster,
            own_image=OwnImage(self.kube, None),
            may_share=True,
            probe=CredentialsProbe(self.racks, LoopClock()),
            upgrades=Upgrades(self.kube, None, LoopClock()),
        )
        for controller, reconcile in (
            (machine.CONTROLLER, machine.MachineReconciler(deps, self._waker(machine.CONTROLLER)).reconcile),
            (cluster.CONTROLLER, cluster.ClusterReconciler(deps, self._waker(cluster.CONTROLLER)).reconcile),
            (ccm_addon.CONTROLLER, ccm_addon.CcmAddonReconciler(addon).reconcile),
        ):
            self.queues[controller] = Workqueue(controller, reconcile, concurrency=4, randomness=dice, metrics=metrics)
        tasks = [asyncio.create_task(queue.run()) for queue in self.queues.values()]
        self._mapper = Mapper()
        unsubscribe = world.store.subscribe(self._on_change)
        self.live(tasks, ways=(self.kube, self.transport), unsubscribe=unsubscribe, aclose=self.racks.aclose)
        for kind in (CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINES):
            for document in world.store.list(kind, None):
                self._on_change(Change("ADDED", kind, document))

    def _connect(self, credentials: Credentials, buckets: TokenBuckets, clock: Clock) -> OxideClient:
        return OxideClient(
            host="http://rack",
            token=SecretStr(credentials.token.get_secret_value()),
            bucket=buckets.of("http://rack"),
            transport=self.transport,
            clock=clock,
            randomness=self._dice,
            deadline_seconds=20.0,
            write_deadline_seconds=20.0,
        )

    def _waker(self, controller: str) -> Callable[[Request], None]:
        # Bound late: the reconcilers are made before their queues.
        def wake(request: Request) -> None:
            self.queues[controller].add(request)

        return wake

    def _on_change(self, change: Change) -> None:
        if change.kind == SECRETS:
            # Nobody watches Secrets (K-32).
            return
        for controller, request in self._mapper.requests_for(change.kind.name, change.document, change.type):
            self.queues[controller].add(request)


class World:
    """Everything.

    Args:
        seed: Decides all chance in it.
        weather: How bad things are until `clear_up`.
        token: What the provider is given.
    """

    def __init__(self, seed: int, weather: Weather | None = None, token: str = TOKEN) -> None:
        loop = simulation_loop()
        self.seed = seed
        self.token = token
        self.dice = random.Random(f"world {seed}")
        self.recorded = Recorded()
        self.rack = RackUnderTest(TIMING, PassingClock(loop.time, EPOCH))
        kinds = (CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINES, SECRETS, CONFIG_MAPS)
        self.store = Store(kinds, now=loop.now, randomness=random.Random(f"store {seed}"), namespaces=(NAMESPACE,))
        self.store.add_rule(OXIDE_MACHINES, is_set_once("spec", "providerID"))
        self.store.add_rule(OXIDE_CLUSTERS, is_set_once("spec", "clusterID"))
        self.cluster_api = ClusterAPI(self.store, random.Random(f"core {seed}"))
        self.cluster_api.add_credentials("http://rack", token)
        self.alive: set[str] = set()
        self.was_alive: set[str] = set()
        bad = weather or Weather()
        self.kube_weather = SeededWeather(
            random.Random(f"kube {seed}"),
            refused_rate=bad.kube / 3,
            lost_request_rate=bad.kube / 3,
            lost_answer_rate=bad.kube / 3,
        )
        self._bad = bad
        self._clouds = 0
        self.cloud_over()
        self._starts = 0
        self.add_strangers(["capi-team-web-taken"])
        self.watchdog = Watchdog(self)
        self._core = asyncio.create_task(self.cluster_api.run())
        self.process = self._start()

    async def probe(self, host: str, port: int) -> bool:
        """Whether an apiserver answers at an address: that of the instance which has it, if declared alive."""
        del port
        await asyncio.sleep(0.05)
        for floating_ip in self.rack.state.floating_ips:
            if str(floating_ip.ip) == host and floating_ip.instance is not None:
                instance = self.rack.state.instances.by_id(floating_ip.instance)
                return instance is not None and instance.name in self.alive and instance.state == "running"
        return False

    @property
    def seconds(self) -> float:
        """The virtual time."""
        return simulation_loop().time()

    def declare_alive(self, instance: str) -> None:
        """Say that an apiserver has come up on an instance."""
        self.alive.add(instance)
        self.was_alive.add(instance)

    def fail(self, name: str) -> None:
        """Let an instance fail, as when its sled restarts."""
        instance = self.rack.state.instances.by_name(self.rack.project.id, name)
        assert instance is not None
        instance_states.fail(self.rack.state, instance)

    async def crash(self) -> None:
        """Kill the provider and start it anew."""
        await self.process.kill()
        self.process = self._start()

    def cloud_over(self) -> None:
        """Faults on."""
        self.kube_weather.is_fair = False
        self._clouds += 1
        for number, kind in enumerate(("unavailable", "lost_reply", "lost_request", "internal_error_after")):
            seed = (self.seed * 100 + self._clouds) * 10 + number
            rule = {"kind": kind, "probability": self._bad.rack / 4, "seed": seed}
            self.rack.app.faults.add(FaultRule.model_validate(rule))

    def delay_creation(self, name: str) -> None:
        """Have the rack make an instance later than its client waits: what was given up is done all the same."""
        late = {"kind": "slow", "seconds": 30, "operation": "instance_create", "object": name, "times": 1}
        self.rack.app.faults.add(FaultRule.model_validate(late))

    def clear_up(self) -> None:
        """Faults off: from now on everything has to converge."""
        self.kube_weather.is_fair = True
        self.rack.app.faults.clear()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        self.rack.state.settle()
        self.watchdog.look()
        self.process.check()
        if self._core.done():
            self._core.result()

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Let time pass until something holds.

        Raises:
            AssertionError: It did not within that many seconds.
        """
        for _ in range(int(seconds * 2)):
            if condition():
                return
            await self.pass_time(0.5)
        raise AssertionError(f"seed {self.seed}: after {seconds:g} s still not: {what}\n{self.describe()}")

    async def end(self) -> None:
        """End everything."""
        self._core.cancel()
        await self.process.kill()
        await self.rack.app.finish()
        await self.rack.http.aclose()

    def secrets(self) -> list[str]:
        """What must not be told anywhere, in each form that it may take."""
        found = [self.token]
        for data in self.cluster_api.bootstrap_data.values():
            secret = data.decode().rsplit(" ", 1)[-1].strip()
            found += [secret, base64.b64encode(data).decode()]
        return found

    def add_strangers(self, names: list[str]) -> None:
        """Put instances of these names on the rack that somebody made by hand, each with a disk of a machine's name."""
        state = self.rack.state
        for name in names:
            instance = records.Instance(
                **state.identity(name, "made by hand"),
                project=self.rack.project.id,
                hostname=name,
                ncpus=1,
                memory_bytes=2**30,
                user_data=b"",
                ssh_keys=(),
                state="stopped",
                time_run_state_updated=state.now(),
            )
            state.instances.insert(instance)

    def running(self) -> list[str]:
        """The names of the instances that run."""
        return sorted(each.name for each in self.rack.state.instances if each.state == "running")

    def describe(self) -> str:
        """The world in a few lines, for a failing seed."""
        lines = [f"instance {each.name} {each.state} {each.description}" for each in self.rack.state.instances]
        lines += [f"disk {each.name} {each.state} {each.instance}" for each in self.rack.state.disks]
        lines += [f"floating IP {each.name} {each.ip} {each.instance}" for each in self.rack.state.floating_ips]
        for kind in (OXIDE_CLUSTERS, OXIDE_MACHINES):
            for document in self.store.list(kind, None):
                metadata, status = document["metadata"], document.get("status") or {}
                conditions = [
                    f"{each['type']}={each['status']}/{each['reason']}: {each['message']}"
                    for each in status.get("conditions", ())
                ]
                lines.append(f"{kind.name} {metadata['name']} {metadata.get('deletionTimestamp', '')} {conditions}")
        lines += [f"event {event}" for event in self.recorded.events[-10:]]
        return "\n".join(lines)

    def _start(self) -> Process:
        self._starts += 1
        return Process(self, f"{self.seed} {self._starts}")
