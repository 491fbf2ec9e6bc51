"""A fleet's life: applied, provisioned, at rest, deleted; measured from outside."""

from __future__ import annotations

import base64
import functools
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hack.controlplane import processes as control_plane_processes
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import RequestError
from tests.bench.fleet import manifests, processes
from tests.bench.fleet.manifests import CREDENTIALS, Fleet, path_of
from tests.bench.fleet.racks import TOKEN, calls_of, count_readings
from tests.bench.fleet.results import Costs, FleetResult, InMemoryResult, Times
from tests.bench.fleet.sightings import GONE, Sightings
from tests.integration.audit import USER, AuditLog, is_write
from tests.integration.provider_process import ProviderProcess
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

__all__ = ["Clock", "measure_fleet", "measure_in_memory"]

APPLIERS: Final = 8
"""Requests to the apiserver at once while a fleet is applied or deleted."""

_APPLY_ATTEMPTS: Final = 10
"""Applying is the same each time."""

_SECONDS_A_MACHINE: Final = 3.0
_SECONDS_AT_LEAST: Final = 900.0
"""Bounds of a phase: far more than it takes."""

_QUIET_SECONDS: Final = 20.0
_QUIET_WITHIN_SECONDS: Final = 300.0
"""How long nothing may have been written before the rest begins, and how long that may take to come."""

Say = Callable[[str], None]
Clock = Callable[[], dict[str, float]]
"""CPU seconds by process, up to now."""


def measure_fleet(
    plane: ManagementCluster,
    audit: AuditLog,
    directory: Path,
    rack: RackProcess,
    profile: str,
    *,
    is_leader_elected: bool,
    **options: Any,
) -> FleetResult:
    """Run this provider, as it is shipped, with a fleet on a rack.

    Args:
        plane: The control plane, with this provider's kinds and RBAC.
        audit: Its audit log.
        directory: For logs.
        rack: The rack.
        profile: Its timing.
        is_leader_elected: Whether it holds a Lease, as its Deployment has it.
        **options: `machines`, `rest_seconds` and `say` of `_FleetRun`.
    """
    with ProviderProcess(plane, directory, *(["--leader-elect"] if is_leader_elected else [])) as provider:
        return _FleetRun(plane, audit, rack, provider, **options).measure(profile)


class _FleetRun:
    def __init__(
        self,
        plane: ManagementCluster,
        audit: AuditLog,
        rack: RackProcess,
        provider: ProviderProcess,
        *,
        machines: int,
        rest_seconds: float,
        say: Say,
    ) -> None:
        self._plane = plane
        self._audit = audit
        self._rack = rack
        self._pid = provider.pid
        self._rest_seconds = rest_seconds
        self._say = say
        with rack.client() as client:
            image_id = client.get("/v1/images").json()["items"][0]["id"]
        self._fleet = Fleet(manifests.oxide(image_id), _new_namespace(plane), machines)

    def measure(self, profile: str) -> FleetResult:
        fleet, rack, clock = self._fleet, self._rack, self._clock
        self._add_credentials()
        empty = rack.control.inventory()
        life = _Life(self._plane, fleet, clock)
        rack.control.clear_calls()
        mark = self._audit.mark()
        with life.watched():
            life.create()
            create, requests = calls_of(rack), self._audit.requests(USER, mark)
            self._say(f"provisioned after {life.seconds('provisioned'):.1f} s; waiting for quiet")
            self._await_quiet()
            self._say(f"at rest for {self._rest_seconds:.0f} s")
            rack.control.clear_calls()
            mark = self._audit.mark()
            with life.phase("rest"):
                time.sleep(self._rest_seconds)
            rest, readings = calls_of(rack), count_readings(rack.control.calls())
            writes = self._audit.writes(USER, mark)
            resident = processes.resident_bytes(self._pid)
            self._say("deleting")
            rack.control.clear_calls()
            life.delete()
            delete = calls_of(rack)
            self._say(f"deleted after {life.seconds('deleted'):.1f} s")
        assert rack.control.inventory() == empty, "something was left on the rack"
        assert rack.control.violations() == []
        return FleetResult(
            profile=profile,
            machines=fleet.machines,
            clusters=fleet.clusters,
            times=life.times(),
            create=create,
            rest=rest,
            rest_readings=readings,
            rest_seconds=self._rest_seconds,
            delete=delete,
            rest_writes=dict(writes),
            requests={f"{verb} {resource}": count for (verb, resource), count in requests.items()},
            resident_bytes=resident,
            peak_bytes=processes.peak_bytes(self._pid),
            cpu=life.costs(),
        )

    def _add_credentials(self) -> None:
        values = {"oxide-host": self._rack.url, "oxide-token": TOKEN}
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIALS, "namespace": self._fleet.namespace},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
        }
        self._plane.client.apply(path_of("Secret", self._fleet.namespace, CREDENTIALS), document)

    def _clock(self) -> dict[str, float]:
        pids = {"provider": self._pid, "rack": self._rack.pid} | _pids_of(self._plane)
        return {name: processes.cpu_seconds(pid) for name, pid in pids.items()}

    def _await_quiet(self) -> None:
        def is_quiet() -> bool:
            mark = self._audit.mark()
            time.sleep(_QUIET_SECONDS)
            asked = self._audit.requests(USER, mark)
            return not any(is_write(request) and request[1] != "leases" for request in asked)

        eventually("the provider writes nothing", is_quiet, within_seconds=_QUIET_WITHIN_SECONDS)


def measure_in_memory(plane: ManagementCluster, pid: int, *, machines: int) -> InMemoryResult:
    """Run the in-memory provider, which is installed and whose manager is `pid`, with a fleet."""
    fleet = Fleet(manifests.IN_MEMORY, _new_namespace(plane), machines)
    life = _Life(plane, fleet, lambda: {"capd": processes.cpu_seconds(pid)})
    with life.watched():
        life.create()
        life.delete()
    return InMemoryResult(
        machines=machines, times=life.times(), peak_bytes=processes.peak_bytes(pid), cpu=life.costs()["capd"]
    )


class _Life:
    """The phases of a fleet's life, and when each of them was over."""

    def __init__(self, plane: ManagementCluster, fleet: Fleet, clock: Clock) -> None:
        self._plane = plane
        self._fleet = fleet
        self._clock = clock
        self._limit_seconds = max(_SECONDS_AT_LEAST, _SECONDS_A_MACHINE * fleet.machines)
        self._seconds: dict[str, float] = {}
        self._costs: dict[str, dict[str, float]] = {}
        kind = fleet.infrastructure.machine_kind
        self._infrastructure = self._sightings(
            kind, {"identified": _has_provider_id, "infrastructure": _is_infrastructure_provisioned}
        )
        self._machines = self._sightings("Machine", {"provisioned": _is_machine_provisioned})
        self._clusters = self._sightings("Cluster", {})

    def _sightings(self, kind: str, states: Mapping[str, Callable[[Mapping[str, Any]], bool]]) -> Sightings:
        return Sightings(self._plane, path_of(kind, self._fleet.namespace), states)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See everything that happens."""
        with self._infrastructure, self._machines, self._clusters:
            yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the CPU time of a phase."""
        before = self._clock()
        yield
        after = self._clock()
        self._costs[name] = {process: seconds - before.get(process, 0.0) for process, seconds in after.items()}

    def create(self) -> None:
        """Apply the fleet and wait until Cluster API has seen every machine provisioned."""
        count = self._fleet.machines
        with self.phase("create"):
            began = time.monotonic()
            _in_parallel(functools.partial(_apply, self._plane), self._fleet.batches())
            self._seconds["applied"] = time.monotonic() - began
            provisioned = self._machines.await_all("provisioned", count, within_seconds=self._limit_seconds)
            self._seconds["provisioned"] = provisioned - began
        for state in ("identified", "infrastructure"):
            reached = self._infrastructure.await_all(state, count, within_seconds=60)
            self._seconds[state] = reached - began

    def delete(self) -> None:
        """Delete the Clusters and wait until they, and everything before them, are gone."""
        paths = [path_of("Cluster", self._fleet.namespace, f"fleet-{n:02}") for n in range(self._fleet.clusters)]
        with self.phase("delete"):
            asked = time.monotonic()
            _in_parallel(functools.partial(self._plane.client.request, "DELETE"), paths)
            gone = self._clusters.await_all(GONE, self._fleet.clusters, within_seconds=self._limit_seconds)
            self._seconds["deleted"] = gone - asked
        assert self._infrastructure.count(GONE) == self._fleet.machines

    def seconds(self, what: str) -> float:
        """How long something took."""
        return self._seconds[what]

    def times(self) -> Times:
        """How long everything took."""
        return Times(**self._seconds)

    def costs(self) -> dict[str, Costs]:
        """CPU seconds by process."""
        names = self._costs["create"]
        return {
            name: Costs(*(self._costs.get(phase, {}).get(name, 0.0) for phase in ("create", "rest", "delete")))
            for name in names
        }


def _new_namespace(plane: ManagementCluster) -> str:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "fleet-"}}
    return str(plane.client.post("/api/v1/namespaces", manifest)["metadata"]["name"])


def _apply(plane: ManagementCluster, batch: list[manifests.Document]) -> None:
    for document in batch:
        metadata = document["metadata"]
        path = path_of(document["kind"], metadata["namespace"], metadata["name"])
        for attempt in range(1, _APPLY_ATTEMPTS + 1):
            try:
                plane.client.apply(path, document)
                break
            except RequestError as error:
                # Cluster API's webhooks have ten seconds, which a machine that does much else may not give them.
                if error.status != http.client.INTERNAL_SERVER_ERROR or attempt == _APPLY_ATTEMPTS:
                    raise


def _in_parallel(work: Callable[[Any], object], items: list[Any]) -> None:
    with ThreadPoolExecutor(APPLIERS, thread_name_prefix="fleet") as executor:
        for _ in executor.map(work, items):
            pass


def _pids_of(plane: ManagementCluster) -> dict[str, int]:
    return {running.name: running.pid for running in control_plane_processes.left_running(plane.directory)}


def _has_provider_id(document: Mapping[str, Any]) -> bool:
    return bool(document.get("spec", {}).get("providerID"))


def _is_infrastructure_provisioned(document: Mapping[str, Any]) -> bool:
    return bool(document.get("status", {}).get("initialization", {}).get("provisioned"))


def _is_machine_provisioned(document: Mapping[str, Any]) -> bool:
    return bool(document.get("status", {}).get("initialization", {}).get("infrastructureProvisioned"))
