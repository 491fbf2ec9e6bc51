"""What was measured, as data; nothing here measures or judges."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

__all__ = ["Costs", "FleetResult", "FloorResult", "InMemoryResult", "RackCalls", "Results", "Times"]

_MACHINE_WRITES: Final = ("instance_", "disk_")


@dataclasses.dataclass(frozen=True)
class RackCalls:
    """Calls of a rack.

    Attributes:
        by_operation: How often each operation was called.
    """

    by_operation: Mapping[str, int]

    @property
    def reads(self) -> int:
        """Calls that changed nothing, lists and reads by id."""
        return self.lists + self.views

    @property
    def lists(self) -> int:
        """Calls of lists that all machines share, every page counted."""
        return sum(count for operation, count in self.by_operation.items() if _kind(operation) == "list")

    @property
    def views(self) -> int:
        """Reads of one object by its id or name, or of what belongs to it, such as the disks of an instance."""
        return sum(count for operation, count in self.by_operation.items() if _kind(operation) == "view")

    @property
    def writes(self) -> int:
        """Calls that changed something."""
        return sum(self.by_operation.values()) - self.reads

    @property
    def machine_writes(self) -> int:
        """Writes of instances and disks; the floating IPs of clusters are not among them."""
        return sum(
            count
            for operation, count in self.by_operation.items()
            if _kind(operation) == "write" and operation.startswith(_MACHINE_WRITES)
        )


def _kind(operation: str) -> Literal["list", "view", "write"]:
    if operation.startswith("instance_") and operation.endswith("_list"):
        # That of an instance's disks, or addresses, is about this one instance.
        return "list" if operation == "instance_list" else "view"
    if operation.endswith("_list") or "_list_" in operation:
        return "list"
    return "view" if operation.endswith("_view") else "write"


@dataclasses.dataclass(frozen=True)
class Times:
    """From the first apply on, in seconds.

    Attributes:
        applied: Until the apiserver had taken everything.
        identified: Until every machine had its provider ID, that is, until it was made.
        infrastructure: Until the infrastructure of every Machine was provisioned.
        provisioned: Until Cluster API had seen that of every Machine.
        deleted: From the request to delete on, until everything was gone.
    """

    applied: float
    identified: float
    infrastructure: float
    provisioned: float
    deleted: float


@dataclasses.dataclass(frozen=True)
class Costs:
    """CPU seconds of a process.

    Attributes:
        create: From the first apply until provisioned.
        rest: At rest.
        delete: From the request to delete until everything was gone.
    """

    create: float
    rest: float
    delete: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetResult:
    """This provider with one fleet.

    Attributes:
        profile: The rack's timing.
        machines: How many.
        clusters: How many.
        times: Wall time.
        create: Rack calls from the first apply until provisioned.
        rest: Rack calls at rest.
        rest_readings: Lists begun at rest; a list of several pages counts once.
        rest_seconds: How long the rest was.
        delete: Rack calls from the request to delete until everything was gone.
        rest_writes: Writes to Kubernetes at rest, by resource.
        requests: Requests to Kubernetes from the first apply until provisioned, by verb and resource.
        resident_bytes: Memory at rest.
        peak_bytes: The most memory from the beginning to the end.
        cpu: CPU time by process; this provider is `provider`.
    """

    profile: str
    machines: int
    clusters: int
    times: Times
    create: RackCalls
    rest: RackCalls
    rest_readings: int
    rest_seconds: float
    delete: RackCalls
    rest_writes: Mapping[str, int]
    requests: Mapping[str, int]
    resident_bytes: int
    peak_bytes: int
    cpu: Mapping[str, Costs]

    @property
    def cpu_per_machine(self) -> float:
        """CPU seconds of the provider to make and delete one machine."""
        own = self.cpu["provider"]
        return (own.create + own.delete) / self.machines

    @property
    def writes_at_rest(self) -> int:
        """Writes to Kubernetes at rest but for those that keep a Lease."""
        return sum(count for resource, count in self.rest_writes.items() if resource != "leases")

    @property
    def readings_a_minute(self) -> float:
        """Lists a minute at rest; the fleets are in one project."""
        return self.rest_readings * 60 / self.rest_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class FloorResult:
    """The same calls of the same rack by a bare script.

    Attributes:
        profile: The rack's timing.
        machines: How many.
        create_seconds: Until every instance was seen running.
        delete_seconds: Until everything was seen gone.
        create: Its calls.
        delete: Its calls.
    """

    profile: str
    machines: int
    create_seconds: float
    delete_seconds: float
    create: RackCalls
    delete: RackCalls


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemoryResult:
    """Cluster API's in-memory provider with one fleet.

    Attributes:
        machines: How many.
        times: Wall time.
        peak_bytes: The most memory of its manager so far.
        cpu: CPU time of its manager.
    """

    machines: int
    times: Times
    peak_bytes: int
    cpu: Costs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """All of one run."""

    fleets: tuple[FleetResult, ...]
    floors: tuple[FloorResult, ...]
    in_memory: tuple[InMemoryResult, ...]

    def floor_of(self, fleet: FleetResult) -> FloorResult | None:
        """The floor of a fleet; None when it was not measured."""
        same = (each for each in self.floors if (each.profile, each.machines) == (fleet.profile, fleet.machines))
        return next(same, None)

    def in_memory_of(self, fleet: FleetResult) -> InMemoryResult | None:
        """The in-memory provider with as many machines; None when it was not measured."""
        return next((each for each in self.in_memory if each.machines == fleet.machines), None)


def rack_calls(counts: Mapping[str, Mapping[str, int]]) -> RackCalls:
    """The calls of a rack's counts by operation and status."""
    totals = Counter({operation: sum(by_status.values()) for operation, by_status in counts.items()})
    return RackCalls({operation: count for operation, count in totals.items() if operation != "none"})
