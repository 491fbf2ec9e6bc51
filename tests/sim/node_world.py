"""A workload cluster on virtual time: kubelets, a rack, and the two node controllers as a process.

The controllers are the real ones from their passes down; only the watches are the store's. Kubelets are what they are
to a cloud controller manager: they register Nodes, renew Leases, and fall silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from capox.ccm import node, node_lifecycle
from capox.ccm.cache import Cache
from capox.ccm.credentials import Credentials, CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.kinds import LEASES, NODES, PODS, SERVICES
from capox.ccm.leading import LeadingKube, NotLeadingError
from capox.ccm.node_marks import UNINITIALIZED_TAINT
from capox.ccm.rack import Rack
from capox.kube.core_objects import Node
from capox.kube.errors import KubeError, NotFound
from capox.kube.metrics import NodeMetrics, QueueMetrics, Registry
from capox.kube.objects import format_timestamp
from capox.kube.watch import WatchEvent
from capox.kube.workqueue import Request, Workqueue
from capox.oxide.client import OxideClient
from capox.oxide.clock import LoopClock
from capox.oxide.errors import OxideError
from capox.rack import records
from capox.rack.clock import PassingClock
from capox.rack.faults import FaultRule
from capox.rack.state import Timing
from tests.rack import GIB, RackUnderTest
from tests.sim.loop import EPOCH, simulation_loop
from tests.sim.mortal import Mortal
from tests.sim.store import Change, Document, Store, is_set_once
from tests.sim.store_client import FairWeather, StoreClient, Weather
from tests.sim.world import RackTransport

TOKEN = "oxide-token-limited_collaborator"
LEASE_SECONDS = 10.0
TIMING = Timing(instance_create=0.0, instance_start=1.0, instance_stop=1.0, address_change=0.1, auto_restart=4000.0)
UNINITIALIZED = {"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}


class Told:
    """Events, kept."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def normal(self, resource: Any, reason: str, message: str) -> None:
        """Keep an event."""
        self.events.append((resource.metadata.name, reason, message))

    warning = normal

    def reasons(self, name: str) -> list[str]:
        """The reasons of what was said about a Node, each once, in order."""
        return list(dict.fromkeys(reason for about, reason, _ in self.events if about == name))


class NodeProcess(Mortal):
    """The node controllers, running.

    Args:
        world: Where they run.
        options: Of the node controller.
    """

    def __init__(self, world: NodeWorld, options: node.NodeOptions) -> None:
        self._world = world
        self._dice = random.Random(f"process {world.seed}")
        self.is_leading = True
        self.kube = StoreClient(world.store, world.weather)
        self.transport = RackTransport(world.rack.app)
        self.registry = Registry()
        self.nodes: Cache[Node] = Cache(NODES)
        self.gone: list[str] = []
        self.rack = Rack(
            lambda: world.credentials, LoopClock(), is_leading=lambda: self.is_leading, connect=self._connect
        )
        deps = Deps(
            kube=LeadingKube(self.kube, lambda: self.is_leading),
            rack=self.rack,
            nodes=self.nodes,
            services=Cache(SERVICES),
            pods=Cache(PODS),
            clock=LoopClock(),
            now=simulation_loop().now,
            randomness=self._dice,
            recorder=world.told,
            is_leading=lambda: self.is_leading,
        )
        node_metrics = NodeMetrics(self.registry)
        reconciler = node.NodeReconciler(deps, options, node_metrics)
        self.lifecycle = node_lifecycle.NodeLifecycle(deps, on_node_going=self._on_going, counter=node_metrics)
        self.queue = Workqueue(
            node.CONTROLLER,
            reconciler.reconcile,
            concurrency=4,
            randomness=self._dice,
            metrics=QueueMetrics(self.registry),
            weather=(KubeError, OxideError, CredentialsError, NotLeadingError),
        )
        unsubscribe = world.store.subscribe(self._on_change)
        tasks = [asyncio.create_task(work) for work in (self.queue.run(), self.lifecycle.run(), self._relist())]
        self.live(tasks, ways=(self.kube, self.transport), unsubscribe=unsubscribe, aclose=self.rack.aclose)

    async def _relist(self) -> None:
        while True:
            with contextlib.suppress(KubeError):
                await self.nodes.relist(self.kube)
                for each in self.nodes:
                    self.queue.add(Request("", each.metadata.name))
            await asyncio.sleep(300.0 if self.nodes.is_synced else 1.0)

    async def _on_going(self, going: Node) -> None:
        assert self._world.node(going.metadata.name) is not None, "it is told before, not after (L9)"
        self.gone.append(going.metadata.name)

    def _connect(self, credentials: Credentials) -> OxideClient:
        return OxideClient(
            host=credentials.host,
            token=credentials.token,
            transport=self.transport,
            clock=LoopClock(),
            randomness=self._dice,
            deadline_seconds=20.0,
            write_deadline_seconds=20.0,
        )

    def _on_change(self, change: Change) -> None:
        if change.kind == NODES:
            self.nodes.see(WatchEvent(change.type, change.kind, change.document))
            self.queue.add(Request("", change.document["metadata"]["name"]))


class NodeWorld:
    """A cluster and its rack.

    Args:
        seed: Decides all chance in it.
        weather: What is between the process and Kubernetes.
        options: Of the node controller.
        is_started: Whether the process runs from the beginning.

    Attributes:
        credentials: What the process reads them as.
        changes: What was stored of each Node, in order.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        weather: Weather | None = None,
        options: node.NodeOptions | None = None,
        is_started: bool = True,
    ) -> None:
        loop = simulation_loop()
        self.seed = seed
        self.weather = weather or FairWeather()
        self.told = Told()
        self.credentials = Credentials(host="http://rack", token=SecretStr(TOKEN), project="demo")
        self.rack = RackUnderTest(TIMING, PassingClock(loop.time, EPOCH))
        self.store = Store(
            (NODES, LEASES), now=loop.now, randomness=random.Random(f"store {seed}"), namespaces=("kube-node-lease",)
        )
        self.store.add_rule(NODES, is_set_once("spec", "providerID"))
        self.store.add_rule(NODES, _has_no_address_twice)
        self.changes: dict[str, list[Change]] = {}
        self.store.subscribe(self._keep)
        self._kubelets: dict[str, asyncio.Task[None]] = {}
        self.options = options or node.NodeOptions()
        self.process: NodeProcess | None = None
        if is_started:
            self.start()

    # -- the process --------------------------------------------------------------------------------------------------

    def start(self) -> NodeProcess:
        """Start the controllers."""
        self.process = NodeProcess(self, self.options)
        return self.process

    async def end(self) -> None:
        """End everything."""
        for kubelet in self._kubelets.values():
            kubelet.cancel()
        await asyncio.gather(*self._kubelets.values(), return_exceptions=True)
        if self.process is not None:
            await self.process.kill()
        await self.rack.app.finish()
        await self.rack.http.aclose()

    # -- kubelets -----------------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        *,
        provider_id: str | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: tuple[Mapping[str, str], ...] = (UNINITIALIZED,),
        is_ready: bool = True,
    ) -> None:
        """A kubelet registers its Node, and renews its Lease from now on."""
        spec: dict[str, Any] = {"taints": [dict(taint) for taint in taints]}
        if provider_id is not None:
            spec["providerID"] = provider_id
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
            "spec": spec,
            "status": {"addresses": [{"type": "Hostname", "address": name}], "conditions": [_ready(is_ready)]},
        }
        self.store.create(NODES, "", document)
        self.revive(name)

    async def join(self, name: str, **options: Any) -> str:
        """An instance whose kubelet registers; returns when its Node is initialised, and gives the instance's id."""
        instance_id = await self.add_instance(name)
        self.register(name, **options)
        await self.until(lambda: not self.is_tainted(name), 30, f"{name} is initialised")
        return instance_id

    def revive(self, name: str) -> None:
        """Have a kubelet renew its Lease."""
        self._kubelets[name] = asyncio.create_task(self._renew(name))

    def silence(self, name: str) -> None:
        """Have a kubelet fall silent, and its Node be noticed as such, as the controller manager does after a while."""
        self._kubelets[name].cancel()
        self.set_ready(name, "Unknown")

    def set_ready(self, name: str, status: str = "True") -> None:
        """Have a Node's condition Ready change."""
        conditions = [{**_ready(True), "status": status}]
        self.store.patch(NODES, "", name, {"status": {"conditions": conditions}}, subresource="status")

    async def _renew(self, name: str) -> None:
        while True:
            spec = {"holderIdentity": name, "renewTime": format_timestamp(simulation_loop().now())}
            document = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            try:
                self.store.patch(LEASES, "kube-node-lease", name, {"spec": spec})
            except NotFound:
                self.store.create(LEASES, "kube-node-lease", document)
            await asyncio.sleep(LEASE_SECONDS)

    # -- the cluster as it is -----------------------------------------------------------------------------------------

    def node(self, name: str) -> Document | None:
        """A Node; None when it is gone."""
        with contextlib.suppress(KubeError):
            return self.store.get(NODES, "", name)
        return None

    def is_tainted(self, name: str, key: str = UNINITIALIZED_TAINT) -> bool:
        """Whether a Node has a taint."""
        return key in self.taints(name)

    def taints(self, name: str) -> list[str]:
        """The keys of a Node's taints."""
        document = self.node(name)
        assert document is not None, f"there is no Node {name}"
        return [taint["key"] for taint in document["spec"].get("taints") or ()]

    def addresses(self, name: str) -> list[tuple[str, str]]:
        """A Node's addresses."""
        document = self.node(name)
        assert document is not None, f"there is no Node {name}"
        return [(each["type"], each["address"]) for each in document["status"].get("addresses") or ()]

    def writes(self, verb: str = "") -> list[tuple[str, str, str]]:
        """What the process has written: verb, subresource, name."""
        assert self.process is not None
        return [
            (call.verb, call.subresource, call.name)
            for call in self.process.kube.calls
            if call.is_write and verb in ("", call.verb)
        ]

    # -- the rack -----------------------------------------------------------------------------------------------------

    async def add_instance(self, name: str, *, hostname: str | None = None, network: str = "default_dual_stack") -> str:
        """A running instance; gives its id."""
        body = {
            "name": name,
            "description": "",
            "hostname": hostname or name,
            "ncpus": 2,
            "memory": 4 * GIB,
            "network_interfaces": {"type": network},
            "start": True,
        }
        made = await self.ask(201, "POST", "/v1/instances?project=demo", body)
        await asyncio.sleep(TIMING.instance_start + 0.1)
        self.rack.state.settle()
        return str(made["id"])

    async def stop_instance(self, name: str) -> None:
        """Stop an instance."""
        await self.ask(202, "POST", f"/v1/instances/{name}/stop?project=demo")
        await asyncio.sleep(TIMING.instance_stop + 0.1)
        self.rack.state.settle()

    async def start_instance(self, name: str) -> None:
        """Start an instance."""
        await self.ask(202, "POST", f"/v1/instances/{name}/start?project=demo")
        await asyncio.sleep(TIMING.instance_start + 0.1)
        self.rack.state.settle()

    async def delete_instance(self, name: str) -> None:
        """Stop and delete an instance, and silence its kubelet."""
        if name in self._kubelets:
            self._kubelets[name].cancel()
        await self.stop_instance(name)
        await self.ask(204, "DELETE", f"/v1/instances/{name}?project=demo")

    async def ask(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the admin, which has to be answered by this status."""
        headers = {"authorization": "Bearer oxide-token-admin"}
        answer = await self.rack.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def instance(self, name: str) -> records.Instance:
        """An instance by name."""
        found = self.rack.state.instances.by_name(self.rack.project.id, name)
        assert found is not None, f"there is no instance {name}"
        return found

    def private_addresses(self, name: str) -> list[str]:
        """The addresses of an instance's primary interface, IPv4 first."""
        interfaces = [each for each in self.rack.state.network_interfaces if each.instance == self.instance(name).id]
        primary = next(each for each in interfaces if each.is_primary)
        return [str(address) for address in (primary.ipv4, primary.ipv6) if address is not None]

    def fault(self, kind: str, **rule: Any) -> None:
        """Have the rack play a fault."""
        self.rack.app.faults.add(FaultRule.model_validate({"kind": kind, **rule}))

    def calls(self, *operations: str) -> list[Any]:
        """The rack's log of the process's calls, of these operations or of all."""
        admin = {"instance_create", "instance_stop", "instance_start", "instance_delete"}
        entries = [call for call in self.rack.app.log.entries(0) if call.operation not in admin]
        return [call for call in entries if not operations or call.operation in operations]

    # -- time ---------------------------------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        self.rack.state.settle()
        if self.process is not None:
            self.process.check()

    async def until(self, condition: Any, seconds: float, what: str) -> None:
        """Let time pass until something holds.

        Raises:
            AssertionError: It did not within that many seconds.
        """
        for _ in range(int(seconds * 4)):
            if condition():
                return
            await self.pass_time(0.25)
        raise AssertionError(f"after {seconds:g} s still not: {what}\n{self.describe()}")

    def describe(self) -> str:
        """The world in a few lines."""
        lines = [f"instance {each.name} {each.id} {each.state}" for each in self.rack.state.instances]
        lines += [
            f"Node {document['metadata']['name']} {document['spec']}" for document in self.store.list(NODES, None)
        ]
        lines += [f"event {event}" for event in self.told.events[-12:]]
        return "\n".join(lines)

    def _keep(self, change: Change) -> None:
        if change.kind == NODES:
            self.changes.setdefault(change.document["metadata"]["name"], []).append(change)


def _ready(is_ready: bool) -> dict[str, str]:
    now = format_timestamp(simulation_loop().now())
    return {"type": "Ready", "status": "True" if is_ready else "False", "lastTransitionTime": now}


def _has_no_address_twice(before: Document | None, after: Document) -> str | None:
    """The API's own rule: it refuses an address that is listed twice under one type."""
    del before
    pairs = [(each["type"], each["address"]) for each in (after.get("status") or {}).get("addresses") or ()]
    return "status.addresses: Duplicate value" if len(set(pairs)) < len(pairs) else None
