"""Rack calls are told apart by what they are."""

from __future__ import annotations

from typing import Any

from tests.bench.fleet.racks import count_readings
from tests.bench.fleet.results import rack_calls
from tests.unit.bench.fleets import calls, fleet

COUNTS = {
    "instance_create": {"201": 9, "507": 1},
    "instance_list": {"200": 4},
    "vpc_subnet_list_network_interfaces": {"200": 2},
    "instance_view": {"200": 1, "404": 2},
    "instance_disk_list": {"200": 2},
    "floating_ip_create": {"201": 1},
    "disk_delete": {"204": 3},
    "none": {"none": 5},
}


def test_calls_are_sorted_by_kind() -> None:
    """Refused ones count like the others, and what was no operation of the rack does not count."""
    found = rack_calls(COUNTS)

    assert (found.lists, found.views, found.reads) == (6, 5, 11)
    assert (found.writes, found.machine_writes) == (14, 13)


def test_a_list_of_several_pages_is_one_reading() -> None:
    """Only the first page has no token."""
    asked: list[dict[str, Any]] = [
        {"operation": "instance_list", "query": "project=demo&limit=1000&sort_by=id_ascending"},
        {"operation": "instance_list", "query": "project=demo&limit=1000&page_token=abc"},
        {"operation": "vpc_subnet_list_network_interfaces", "query": "limit=1000"},
        {"operation": "instance_view", "query": ""},
        {"operation": None, "query": ""},
    ]

    assert count_readings(asked) == 2


def test_lease_renewals_are_no_writes() -> None:
    """They are how a replica shows that it lives."""
    assert fleet(10, rest_writes={"leases": 12, "oxidemachines/status": 2, "events": 1}).writes_at_rest == 3
    assert fleet(10, rest=calls(), rest_readings=3, rest_seconds=90.0).readings_a_minute == 2
