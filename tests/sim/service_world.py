"""A workload cluster on virtual time: Nodes on a rack, Services, and the service controller as a process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from capox.ccm.kinds import NAMESPACES, NODES, PODS, SERVICES
from capox.ccm.proxy_mode import CONFIG_MAPS
from capox.kube.errors import KubeError
from capox.kube.objects import format_timestamp
from capox.ownership import parse_mark
from capox.rack import records
from capox.rack.app import HungUp
from capox.rack.clock import PassingClock
from capox.rack.faults import FaultRule
from capox.rack.state import Timing
from tests.rack import GIB, RackUnderTest
from tests.sim.loop import EPOCH, simulation_loop
from tests.sim.service_process import CLUSTER_ID, Backend, ServiceProcess, Told, WritesCounted, floating_ips
from tests.sim.store import Change, Store
from tests.sim.store_client import Weather

__all__ = ["CLUSTER_ID", "EXCLUDE", "FINALIZER", "NAMESPACE", "ServiceWorld"]

NAMESPACE = "default"
TIMING = Timing(
    instance_create=1.0, instance_start=4.0, instance_stop=3.0, disk_delete=0.5, address_change=0.4, auto_restart=4000.0
)
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


class ServiceWorld:
    """A cluster and its rack.

    Args:
        seed: Decides all chance in it.
        backend: What balances the load.
        weather: What is between the process and Kubernetes.
    """

    def __init__(self, seed: int = 0, *, backend: Backend = floating_ips, weather: Weather | None = None) -> None:
        loop = simulation_loop()
        self.seed = seed
        self.backend = backend
        self.writes = WritesCounted()
        self.weather = weather or self.writes
        self.told = Told()
        self.rack = RackUnderTest(TIMING, PassingClock(loop.time, EPOCH))
        self.store = Store(
            (NODES, SERVICES, PODS, CONFIG_MAPS, NAMESPACES),
            now=loop.now,
            randomness=random.Random(f"store {seed}"),
            namespaces=(NAMESPACE, "kube-system"),
        )
        self.published: dict[str, list[list[dict[str, str]]]] = {}
        self.store.subscribe(self._keep_published)
        self._starts = 0
        self._is_dead = False
        self.deaths = 0
        self.process: ServiceProcess | None = None
        self.on_tick: Callable[[], None] = lambda: None

    @property
    def seconds(self) -> float:
        """The virtual time."""
        return simulation_loop().time()

    # -- the process --------------------------------------------------------------------------------------------------

    def start(self, *, unlisted: str = "") -> ServiceProcess:
        """Start the controller."""
        assert self.process is None, "it runs"
        self._starts += 1
        self.process = ServiceProcess(self, f"{self.seed} {self._starts}", unlisted)
        return self.process

    async def kill(self) -> None:
        """Kill the controller."""
        if self.process is not None:
            process, self.process = self.process, None
            await process.kill()

    async def crash(self) -> None:
        """Kill it and start it anew."""
        await self.kill()
        self.start()

    def die_after_write(self, number: int) -> None:
        """Have the process die when that many more writes are done, before it hears of the last one; then restart."""

        def die() -> None:
            assert self.process is not None
            self.process.kube.cut()
            self.process.transport.cut()
            self.deaths += 1
            self._is_dead = True

        self.writes.deadly, self.writes.on_deadly = self.writes.count + number, die

    async def end(self) -> None:
        """End everything."""
        await self.kill()
        await self.rack.app.finish()
        await self.rack.http.aclose()

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def add_node(
        self,
        name: str,
        *,
        is_control_plane: bool = False,
        labels: Mapping[str, str] | None = None,
        network: str = "default_dual_stack",
    ) -> str:
        """A Ready Node with a running instance; gives the instance's id."""
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 2,
            "memory": 4 * GIB,
            "network_interfaces": {"type": network},
            "start": True,
        }
        made = await self.ask(201, "POST", "/v1/instances?project=demo", body)
        await asyncio.sleep(TIMING.instance_start + 0.5)
        self.rack.state.settle()
        addresses = [{"type": "InternalIP", "address": address} for address in self.private_addresses(name)]
        marks = {"node-role.kubernetes.io/control-plane": ""} if is_control_plane else {}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**marks, **(labels or {})}},
            "spec": {"providerID": f"oxide://{made['id']}"},
            "status": {"addresses": addresses},
        }
        self.store.create(NODES, "", document)
        self.set_ready(name)
        return str(made["id"])

    async def add_nodes(self, count: int) -> None:
        """Workers `node-1`, `node-2` ..."""
        for number in range(1, count + 1):
            await self.add_node(f"node-{number}")

    def set_ready(self, name: str, status: str = "True") -> None:
        """Have a Node's condition Ready change now."""
        now = format_timestamp(simulation_loop().now())
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now}
        self.store.patch(NODES, "", name, {"status": {"conditions": [condition]}}, subresource="status")

    def label_node(self, name: str, key: str, value: str | None) -> None:
        """Set or remove a label of a Node."""
        self.store.patch(NODES, "", name, {"metadata": {"labels": {key: value}}})

    def taint_node(self, name: str, *keys: str) -> None:
        """Give a Node these taints and no others."""
        taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
        self.store.patch(NODES, "", name, {"spec": {"taints": taints}})

    def add_service(
        self,
        name: str,
        *ports: str,
        annotations: Mapping[str, str] | None = None,
        finalizers: Sequence[str] = (),
        **spec: Any,
    ) -> None:
        """A Service of type LoadBalancer; ports such as `tcp:443`."""
        document = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "annotations": dict(annotations or {}),
                "finalizers": list(finalizers),
            },
            "spec": {
                "type": "LoadBalancer",
                "ports": ports_of(ports or ("tcp:80",)),
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                **spec,
            },
        }
        self.store.create(SERVICES, NAMESPACE, document)

    def change_service(self, name: str, **patch: Any) -> None:
        """Merge a patch into a Service."""
        self.store.patch(SERVICES, NAMESPACE, name, patch)

    def annotate(self, name: str, key: str, value: str | None) -> None:
        """Set or remove an annotation of a Service."""
        self.change_service(name, metadata={"annotations": {f"oxide.computer/{key}": value}})

    def delete_service(self, name: str) -> None:
        """Ask for a Service's deletion."""
        self.store.delete(SERVICES, NAMESPACE, name)

    def service(self, name: str) -> Mapping[str, Any] | None:
        """A Service; None when it is gone."""
        with contextlib.suppress(KubeError):
            return self.store.get(SERVICES, NAMESPACE, name)
        return None

    def ingress(self, name: str) -> list[dict[str, str]]:
        """What a Service's status says."""
        found = self.service(name)
        return list((((found or {}).get("status") or {}).get("loadBalancer") or {}).get("ingress") or [])

    def has_finalizer(self, name: str) -> bool:
        """Whether a Service has our finalizer."""
        return FINALIZER in ((self.service(name) or {"metadata": {}})["metadata"].get("finalizers") or ())

    # -- the rack -----------------------------------------------------------------------------------------------------

    async def ask(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the admin, which has to be answered by this status."""
        headers = {"authorization": "Bearer oxide-token-admin"}
        answer = await self.rack.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def ask_surely(self, method: str, path: str) -> None:
        """Send a request as the admin, again and again until it is done, whatever the weather."""
        headers = {"authorization": "Bearer oxide-token-admin"}
        for _ in range(100):
            with contextlib.suppress(httpx.TransportError, HungUp):
                answer = await self.rack.http.request(method, path, headers=headers)
                if answer.is_success:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{method} {path} is never done")

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

    def floating_ips_of(self, name: str) -> list[records.FloatingIp]:
        """The floating IPs that bear a Service's mark, by their names."""
        marked = [
            each
            for each in self.rack.state.floating_ips
            if (mark := parse_mark(each.description)) is not None and (mark.kind, mark.name) == ("Service", name)
        ]
        return sorted(marked, key=lambda each: each.name)

    def floating_ip(self, name: str) -> records.FloatingIp:
        """The one floating IP of a Service."""
        (found,) = self.floating_ips_of(name)
        return found

    def holder(self, name: str) -> str | None:
        """The instance that has a Service's one floating IP; None when none has, or there is no such address (yet)."""
        found = self.floating_ips_of(name)
        return self.holder_of(found[0]) if len(found) == 1 else None

    def holder_of(self, floating_ip: records.FloatingIp) -> str | None:
        """The name of the instance that has a floating IP."""
        instance = self.rack.state.instances.by_id(floating_ip.instance) if floating_ip.instance else None
        return instance.name if instance is not None else None

    def expected_ingress(self, name: str) -> list[dict[str, str]]:
        """What the status of a Service with one IPv4 address has to say."""
        holder = self.holder(name)
        assert holder is not None, "nobody has it"
        return [
            {"ip": str(self.floating_ip(name).ip), "ipMode": "Proxy"},
            {"ip": self.private_addresses(holder)[0], "ipMode": "VIP"},
        ]

    def is_served(self, name: str) -> bool:
        """Whether a Service has one floating IP, on a node, and its status says just that."""
        found = self.floating_ips_of(name)
        return len(found) == 1 and self.holder(name) is not None and self.ingress(name) == self.expected_ingress(name)

    def fault(self, kind: str, **rule: Any) -> None:
        """Have the rack play a fault."""
        self.rack.app.faults.add(FaultRule.model_validate({"kind": kind, **rule}))

    def calls(self, *operations: str) -> list[Any]:
        """The rack's log of these operations."""
        return [call for call in self.rack.app.log.entries(0) if call.operation in operations]

    # -- time ---------------------------------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        self.rack.state.settle()
        if self._is_dead:
            self._is_dead = False
            await self.crash()
        if self.process is not None:
            self.process.check()
        self.on_tick()

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Let time pass until something holds.

        Raises:
            AssertionError: It did not within that many seconds.
        """
        for _ in range(int(seconds * 4)):
            if condition():
                return
            await self.pass_time(0.25)
        raise AssertionError(f"seed {self.seed}: after {seconds:g} s still not: {what}\n{self.describe()}")

    async def serve(self, *names: str, seconds: float = 60.0) -> None:
        """Let time pass until Services are served."""
        await self.until(lambda: all(self.is_served(name) for name in names), seconds, f"{names} are served")

    def describe(self) -> str:
        """The world in a few lines."""
        lines = [f"instance {each.name} {each.state}" for each in self.rack.state.instances]
        lines += [
            f"floating IP {each.name} {each.ip} on {self.holder_of(each)}: {each.description}"
            for each in self.rack.state.floating_ips
        ]
        for document in self.store.list(SERVICES, NAMESPACE):
            metadata = document["metadata"]
            ingress = self.ingress(metadata["name"])
            lines.append(f"Service {metadata['name']} {metadata.get('deletionTimestamp', '')} {ingress}")
        lines += [f"event {event}" for event in self.told.events[-12:]]
        return "\n".join(lines)

    def _keep_published(self, change: Change) -> None:
        if change.kind != SERVICES:
            return
        name = change.document["metadata"]["name"]
        now = ((change.document.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        history = self.published.setdefault(name, [])
        if not history or history[-1] != now:
            history.append(now)


def ports_of(ports: Sequence[str]) -> list[dict[str, Any]]:
    """The ports of a Service from texts such as `tcp:443`."""
    pairs = [port.split(":") for port in ports]
    return [
        {"name": f"{protocol}-{number}", "protocol": protocol.upper(), "port": int(number)}
        for protocol, number in pairs
    ]
