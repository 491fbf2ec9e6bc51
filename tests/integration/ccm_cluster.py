"""A cluster with many Nodes and Services on a rack, for its cloud controller manager: no machine boots.

Instances are made on the rack and run; the kubelets that they would have are a thread that renews Leases. Nodes come
with the taint of a cloud provider, so a cluster that has settled has been through everything once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from capox.ownership import parse_mark
from hack.controlplane.plane import ControlPlane
from tests.integration.audit import CCM_USER, AuditLog
from tests.integration.ccm_process import UNINITIALIZED, Kubelets
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

__all__ = ["PORTS", "CCMCluster", "Holding", "begun"]

PORTS: Final = (80, 443, 5432, 8080, 8443)
"""The ports of the Services, in turn: on one port as many compete as there are Services to each."""

_SERVICES: Final = "/api/v1/namespaces/default/services"
_PROJECT: Final = {"project": "demo", "limit": "1000"}
_AT_ONCE: Final = 8
_BEAT_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 240.0
_QUIET_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Holding:
    """A Service's floating IP and where it is.

    Attributes:
        service: The Service's name.
        port: Its port.
        ip: The address.
        instance_id: The instance that it is attached to; None when it is to none.
    """

    service: str
    port: int
    ip: str
    instance_id: str | None


class CCMCluster:
    """The cluster. Its cloud controller manager is somebody else's to run.

    Args:
        plane: Its API; nobody else has Nodes or Services in it.
        rack: Its rack.
        audit: What the apiserver has been asked by the cloud controller manager.

    Attributes:
        instances: The instances' ids by the names of their Nodes.
        kubelets: The kubelets, which live while `living` is entered.
    """

    def __init__(self, plane: ControlPlane, rack: RackProcess, audit: AuditLog) -> None:
        self.instances: dict[str, str] = {}
        self.kubelets = Kubelets(plane, _BEAT_SECONDS)
        self._plane = plane
        self._rack = rack
        self._audit = audit
        self._ports: dict[str, int] = {}

    # -- what is put there --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def living(self) -> Iterator[None]:
        """Have the kubelets renew their Leases, also while somebody waits."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(1.0):
                self.kubelets.beat()

        with ThreadPoolExecutor(1, thread_name_prefix="kubelets") as executor:
            beating = executor.submit(beat)
            try:
                yield
            finally:
                ended.set()
            beating.result()

    def add_nodes(self, *, control_planes: int, workers: int) -> None:
        """Make instances, register a Node for each, and wait until no Node has the taint any more."""
        names = [f"control-plane-{n}" for n in range(control_planes)] + [f"worker-{n:03}" for n in range(workers)]
        _in_parallel(self._make_instance, names)
        eventually("all instances run", lambda: set(self.states().values()) == {"running"}, every_seconds=1.0)
        for number, name in enumerate(names):
            self.kubelets.register(name, is_control_plane=number < control_planes)
        eventually("every Node is initialised", self._are_initialised, within_seconds=_SETTLE_SECONDS, every_seconds=1)

    def add_services(self, count: int) -> None:
        """Make Services of type LoadBalancer on the `PORTS` in turn, and wait until all are served."""
        made = dict(zip((f"web-{n:03}" for n in range(count)), itertools.cycle(PORTS)))
        self._ports |= made
        self._let_in()
        _in_parallel(self._make_service, made)
        self.await_served()

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """The run states of the instances by the names of their Nodes."""
        return {each["name"]: each["run_state"] for each in self._list("instances")}

    def holdings(self) -> list[Holding]:
        """The floating IPs of the Services as the rack has them."""
        found = []
        for each in self._list("floating-ips"):
            mark = parse_mark(each["description"])
            if mark is not None:
                found.append(Holding(mark.name, self._ports[mark.name], each["ip"], each["instance_id"]))
        return found

    def collisions(self) -> list[tuple[str, int]]:
        """Where two floating IPs with one port are on one instance: instance and port. Never any."""
        seats = Counter((each.instance_id, each.port) for each in self.holdings() if each.instance_id is not None)
        return [seat for seat, count in seats.items() if count > 1]

    def await_served(self, *, without: Iterable[str] = ()) -> None:
        """Wait until every Service shows its floating IP and the Node that has it, which is none of some."""
        barred = {self.instances[name] for name in without}

        def are_served() -> bool:
            addresses = self._addresses()
            holdings = {each.service: each for each in self.holdings()}
            if holdings.keys() != self._ports.keys():
                return False
            for service, shown in self._published().items():
                at = holdings[service].instance_id
                if at is None or at in barred or shown != [(holdings[service].ip, "Proxy"), (addresses[at], "VIP")]:
                    return False
            return True

        eventually("every Service is served", are_served, within_seconds=_SETTLE_SECONDS, every_seconds=1.0)

    def await_quiet(self) -> None:
        """Wait until the cloud controller manager has written nothing but its Lease for a while."""

        def is_quiet() -> bool:
            mark = self._audit.mark()
            return not ended.wait(_QUIET_SECONDS) and not self.writes_since(mark)

        ended = threading.Event()
        eventually("nothing is written", is_quiet, within_seconds=_SETTLE_SECONDS)

    def writes_since(self, mark: int) -> dict[str, int]:
        """What the cloud controller manager has written to since a mark of the audit log; renewals of its Lease not."""
        return {what: count for what, count in self._audit.writes(CCM_USER, mark).items() if what != "leases"}

    def _published(self) -> dict[str, list[tuple[str, str]]]:
        """What the Services show, by their names."""
        found = {}
        for each in self._plane.client.get(_SERVICES)["items"]:
            if each["metadata"]["name"] in self._ports:
                ingress = each["status"]["loadBalancer"].get("ingress") or []
                found[each["metadata"]["name"]] = [(entry["ip"], entry["ipMode"]) for entry in ingress]
        return found

    def _addresses(self) -> dict[str, str]:
        """The Nodes' addresses by their instances' ids."""
        found = {}
        for node in self._plane.client.get("/api/v1/nodes")["items"]:
            internal = [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]
            if internal:
                found[self.instances[node["metadata"]["name"]]] = internal[0]
        return found

    def _are_initialised(self) -> bool:
        nodes = self._plane.client.get("/api/v1/nodes")["items"]
        return not any(taint["key"] == UNINITIALIZED for node in nodes for taint in node["spec"].get("taints") or [])

    def _list(self, plural: str) -> list[Any]:
        with self._rack.client() as client:
            items: list[Any] = client.get(f"/v1/{plural}", params=_PROJECT).raise_for_status().json()["items"]
        return items

    def _make_instance(self, name: str) -> None:
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 1,
            "memory": 2**30,
            "network_interfaces": {"type": "default_ipv4"},
        }
        with self._rack.client() as client:
            made = client.post("/v1/instances", params={"project": "demo"}, json=body).raise_for_status()
        self.instances[name] = made.json()["id"]

    def _let_in(self) -> None:
        """Have the VPC's firewall let the Services' ports in; without that each Service would warn again and again."""
        where = {"project": "demo", "vpc": "default"}
        rule = {
            "name": "services",
            "description": "",
            "status": "enabled",
            "direction": "inbound",
            "action": "allow",
            "priority": 1000,
            "targets": [{"type": "vpc", "value": "default"}],
            "filters": {"protocols": [{"type": "tcp"}], "ports": [str(port) for port in PORTS]},
        }
        with self._rack.client() as client:
            answer = client.put("/v1/vpc-firewall-rules", params=where, json={"rules": [rule]})
            assert answer.is_success, answer.text

    def _make_service(self, name: str) -> None:
        ports = [{"port": self._ports[name]}]
        document = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": ports},
        }
        self._plane.client.post(_SERVICES, document)


def begun(calls: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count rack calls by operation. A list counts once, however many pages it has: the last one is always empty."""
    return Counter(call["operation"] for call in calls if call["operation"] and "page_token=" not in call["query"])


def _in_parallel(work: Callable[[str], object], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cluster") as executor:
        for _ in executor.map(work, names):
            pass
