"""The rack of a fleet: large enough for all of it, with one of two timings, which its own module publishes."""

from __future__ import annotations

import copy
from typing import Any, Final

from tests.bench.fleet.results import RackCalls, rack_calls
from tests.rack_process import CONFIG, RackProcess

__all__ = ["PROFILES", "TOKEN", "calls_of", "configuration", "count_readings"]

PROFILES: Final = ("quick", "realistic")
"""Timings of `capox.rack.timing`."""

TOKEN: Final = "oxide-token-admin"


def configuration(profile: str) -> dict[str, Any]:
    """The configuration: a thousand machines of one CPU and 1 GiB have room, and addresses to go out by."""
    config = copy.deepcopy(CONFIG)
    config["timing"] = profile
    config["silos"][0]["quotas"] = {"cpus": 4000, "memory": "16 TiB", "storage": "400 TiB"}
    config["sleds"] = [{"count": 32, "cpus": 128, "memory": "1 TiB"}]
    config["ip_pools"][0]["ranges"] = ["198.18.0.0-198.18.7.255"]
    return config


def calls_of(rack: RackProcess) -> RackCalls:
    """The rack's calls since its log was cleared."""
    return rack_calls(rack.control.counts())


def count_readings(calls: list[dict[str, Any]]) -> int:
    """How many lists were begun: of one with several pages the further ones name the place where they go on."""
    lists = [call for call in calls if call["operation"] and "_list" in call["operation"]]
    return sum("page_token=" not in call["query"] for call in lists)
