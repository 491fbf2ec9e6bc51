"""Results of a run that keeps every limit, to be made worse."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.bench.fleet.results import (
    Costs,
    FleetResult,
    FloorResult,
    InMemoryResult,
    RackCalls,
    Results,
    Times,
)
from tests.bench.tables import MEGABYTE


def calls(**by_operation: int) -> RackCalls:
    """Calls of a rack."""
    return RackCalls(by_operation)


def fleet(machines: int, profile: str = "quick", **changes: Any) -> FleetResult:
    """A fleet that costs what it may and no more."""
    clusters = -(-machines // 50)
    good = FleetResult(
        profile=profile,
        machines=machines,
        clusters=clusters,
        times=Times(applied=10.0, identified=60.0, infrastructure=80.0, provisioned=115.0, deleted=200.0),
        create=calls(
            instance_create=machines, floating_ip_create=clusters, instance_list=machines // 5 - 1, vpc_subnet_view=1
        ),
        rest=calls(instance_list=8, floating_ip_list=8),
        rest_readings=8,
        rest_seconds=120.0,
        delete=calls(
            instance_stop=machines,
            instance_delete=machines,
            disk_delete=machines,
            floating_ip_delete=clusters,
            instance_view=4 * machines,
            disk_view=machines,
            instance_list=1000,
        ),
        rest_writes={"leases": 120},
        requests={"get oxidemachines": machines},
        resident_bytes=100 * MEGABYTE,
        peak_bytes=150 * MEGABYTE,
        cpu={"provider": Costs(create=0.06 * machines, rest=1.0, delete=0.04 * machines)},
    )
    return dataclasses.replace(good, **changes)


def results(*fleets: FleetResult) -> Results:
    """A run with these fleets, whose floors and in-memory counterparts took 40 and 60 s."""
    return Results(
        fleets=fleets,
        floors=tuple(
            FloorResult(
                profile=each.profile,
                machines=each.machines,
                create_seconds=40.0,
                delete_seconds=150.0,
                create=calls(instance_create=each.machines),
                delete=calls(instance_delete=each.machines),
            )
            for each in fleets
        ),
        in_memory=tuple(
            InMemoryResult(
                machines=each.machines,
                times=Times(applied=10.0, identified=20.0, infrastructure=50.0, provisioned=60.0, deleted=40.0),
                peak_bytes=80 * MEGABYTE,
                cpu=Costs(create=5.0, rest=0.0, delete=5.0),
            )
            for each in fleets
        ),
    )
