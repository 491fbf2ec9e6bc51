"""One run with a cluster: made, served, at rest, and then trial after trial of a node that dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx

from hack.controlplane.plane import ControlPlane
from tests.bench.ccm import shipped
from tests.bench.ccm.results import Failovers, Rest, Results
from tests.bench.fleet import processes
from tests.bench.fleet.racks import TOKEN
from tests.integration.audit import CCM_USER, AuditLog
from tests.integration.ccm_cluster import CCMCluster, begun
from tests.integration.ccm_process import CCMProcess
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

__all__ = ["measure"]

CONTROL_PLANES: Final = 3

FLOOR_TRIALS: Final = 5

LOOK_SECONDS: Final = 0.02
"""How often it is looked where an address is."""

_FAILOVER_SECONDS: Final = 180.0
_PROJECT: Final = {"project": "demo"}

Say = Callable[[str], None]


def measure(
    plane: ControlPlane,
    audit: AuditLog,
    directory: Path,
    rack: RackProcess,
    profile: str,
    *,
    nodes: int,
    services: int,
    rest_seconds: float,
    trials: int,
    say: Say,
) -> Results:
    """Run the cloud controller manager, as it is shipped, with a cluster.

    Args:
        plane: Its API, with its RBAC.
        audit: What the apiserver has been asked by it.
        directory: For logs.
        rack: The rack.
        profile: The rack's timing.
        nodes: How many Nodes, three of them control planes.
        services: How many Services.
        rest_seconds: How long nothing is to happen.
        trials: How many nodes die of each cause.
        say: Where it is told what is going on.
    """
    cluster = CCMCluster(plane, rack, audit)
    ccm = CCMProcess(
        plane, directory, rack.url, TOKEN, program=shipped.program(), variables=shipped.variables(directory)
    )
    with ccm, cluster.living():
        run = _Run(cluster, ccm, audit, rack, say)
        began = time.monotonic()
        cluster.add_nodes(control_planes=CONTROL_PLANES, workers=nodes - CONTROL_PLANES)
        initialised = time.monotonic()
        say(f"all Nodes are initialised after {initialised - began:.1f} s")
        cluster.add_services(services)
        served = time.monotonic()
        say(f"all Services are served after {served - initialised:.1f} s")
        collisions = len(cluster.collisions())
        rest = run.rest(rest_seconds)
        resident = processes.resident_bytes(ccm.pid)
        failovers = run.failovers(trials)
        collisions += len(cluster.collisions())
        results = Results(
            profile=profile,
            nodes=nodes,
            services=services,
            initialised_seconds=initialised - began,
            served_seconds=served - initialised,
            collisions=collisions,
            rest=rest,
            resident_bytes=resident,
            peak_bytes=processes.peak_bytes(ccm.pid),
            failovers=failovers,
        )
    assert rack.control.violations() == []
    return results


class _Run:
    def __init__(self, cluster: CCMCluster, ccm: CCMProcess, audit: AuditLog, rack: RackProcess, say: Say) -> None:
        self._cluster = cluster
        self._ccm = ccm
        self._audit = audit
        self._rack = rack
        self._say = say

    def rest(self, seconds: float) -> Rest:
        """Wait for quiet, then do nothing and count."""
        self._cluster.await_quiet()
        self._say(f"at rest for {seconds:.0f} s")
        self._rack.control.clear_calls()
        mark, cpu = self._audit.mark(), processes.cpu_seconds(self._ccm.pid)
        time.sleep(seconds)
        calls = begun(self._rack.control.calls())
        return Rest(
            seconds=seconds,
            writes=self._cluster.writes_since(mark),
            lease_renewals=self._audit.writes(CCM_USER, mark)["leases"],
            rack_calls=dict(calls),
            cpu_seconds=processes.cpu_seconds(self._ccm.pid) - cpu,
        )

    def failovers(self, trials: int) -> Failovers:
        """Have nodes die, each cause in turn, on a cluster that has come to rest before each."""
        with self._rack.client() as client:
            floor = _measure_floor(client, [*self._cluster.instances.values()][:2])
            self._say(f"detach and attach: {_shown(floor)}")
            dead: list[str] = []
            stopped = [self._trial(client, dead, self._stop) for _ in range(trials)]
            self._say(f"failover from stopped: {_shown(stopped)}")
            silent = [self._trial(client, dead, self._silence) for _ in range(trials)]
            self._say(f"failover from silent: {_shown(silent)}")
        return Failovers(floor=tuple(floor), stopped=tuple(stopped), silent=tuple(silent))

    def _trial(self, client: httpx.Client, dead: list[str], end: Callable[[httpx.Client, str], float]) -> float:
        """Have one node die that has an address, and tell how long the address took to get elsewhere."""
        cluster = self._cluster
        cluster.await_quiet()
        names = {instance: name for name, instance in cluster.instances.items()}
        lost = next(each for each in cluster.holdings() if each.instance_id is not None)
        assert lost.instance_id is not None
        dead.append(names[lost.instance_id])
        began = end(client, dead[-1])
        _await_elsewhere(client, lost.ip, lost.instance_id)
        seconds = time.monotonic() - began
        cluster.await_served(without=dead)
        return seconds

    def _stop(self, client: httpx.Client, node: str) -> float:
        path = f"/v1/instances/{self._cluster.instances[node]}"
        client.post(f"{path}/stop").raise_for_status()

        def is_stopped() -> bool:
            return bool(client.get(path).json()["run_state"] == "stopped")

        eventually(f"{node} is stopped", is_stopped, every_seconds=LOOK_SECONDS)
        return time.monotonic()

    def _silence(self, client: httpx.Client, node: str) -> float:
        del client
        self._cluster.kubelets.silence(node)
        return time.monotonic()


def _measure_floor(client: httpx.Client, instances: list[str]) -> list[float]:
    """Have an address of nobody's go to and fro between two instances."""
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = {"name": "floor", "description": "", "address_allocator": allocator}
    made: dict[str, Any] = client.post("/v1/floating-ips", params=_PROJECT, json=body).raise_for_status().json()
    path = f"/v1/floating-ips/{made['id']}"

    def attach(instance: str) -> None:
        client.post(f"{path}/attach", json={"kind": "instance", "parent": instance}).raise_for_status()
        _await_place(client, path, instance)

    def detach() -> None:
        client.post(f"{path}/detach").raise_for_status()
        _await_place(client, path, None)

    attach(instances[0])
    found = []
    for number in range(1, FLOOR_TRIALS + 1):
        began = time.monotonic()
        detach()
        attach(instances[number % len(instances)])
        found.append(time.monotonic() - began)
    detach()
    client.delete(path).raise_for_status()
    return found


def _await_place(client: httpx.Client, path: str, instance: str | None) -> None:
    def is_there() -> bool:
        return bool(client.get(path).json()["instance_id"] == instance)

    eventually(f"{path} is at {instance}", is_there, every_seconds=LOOK_SECONDS)


def _await_elsewhere(client: httpx.Client, ip: str, instance: str) -> None:
    def is_elsewhere() -> bool:
        items = client.get("/v1/floating-ips", params={**_PROJECT, "limit": "1000"}).json()["items"]
        return any(each["ip"] == ip and each["instance_id"] not in {None, instance} for each in items)

    eventually(f"{ip} is elsewhere", is_elsewhere, within_seconds=_FAILOVER_SECONDS, every_seconds=LOOK_SECONDS)


def _shown(trials: list[float]) -> str:
    return ", ".join(f"{seconds:.1f} s" for seconds in trials)
