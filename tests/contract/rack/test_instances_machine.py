"""Random lives of instances against a table of their own (semantics 3.2, 3.3)."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capox.rack import instance_states
from capox.rack.state import Timing
from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

NAMES = ("first", "second")

# Different from each other, so that a mix-up shows.
TIMING = Timing(
    instance_create=0.0,
    instance_start=2.0,
    instance_stop=3.0,
    instance_reboot=5.0,
    failure_notice=7.0,
    auto_restart=11.0,
    auto_restart_cooldown=60.0,
)

# What an act does to the state that it meets: the state afterwards, or the status of the refusal.
ACTS: dict[str, dict[str, str | int]] = {
    "start": {
        "stopped": "starting",
        "starting": "starting",
        "running": "running",
        "rebooting": "rebooting",
        "stopping": 409,
        "failed": "starting",
    },
    "stop": {
        "stopped": "stopped",
        "starting": "stopping",
        "running": "stopping",
        "rebooting": "stopping",
        "stopping": "stopping",
        "failed": "stopped",
    },
    "reboot": {
        "stopped": 400,
        "starting": "rebooting",
        "running": "rebooting",
        "rebooting": "rebooting",
        "stopping": 400,
        "failed": 400,
    },
}
MEANT = {"start": True, "stop": False, "reboot": True, "delete": False}
WITH_VMM = {"starting", "running", "rebooting", "stopping"}
LASTS = {
    "starting": (TIMING.instance_start, "running"),
    "rebooting": (TIMING.instance_reboot, "running"),
    "stopping": (TIMING.instance_stop, "stopped"),
}


@dataclasses.dataclass
class Expected:
    """What an instance should be."""

    state: str = "stopped"
    since: float = 0.0
    is_lost: bool = False
    lost_at: float = 0.0
    is_meant_to_run: bool = False
    policy: str | None = None
    barred_until: float = 0.0
    restarted_at: float | None = None

    def become(self, state: str, now: float) -> None:
        """Enter a state, also the one that it is in."""
        self.state, self.since = state, now
        self.is_lost = self.is_lost and state in WITH_VMM

    @property
    def is_to_be_restarted(self) -> bool:
        """Whether it comes back by itself when the time has come."""
        return self.state == "failed" and self.is_meant_to_run and self.policy != "never"

    def next_event(self) -> tuple[float, str] | None:
        """What will happen by itself, and when."""
        if self.is_lost:
            return self.lost_at + TIMING.failure_notice, "failed"
        if self.state in LASTS:
            seconds, end = LASTS[self.state]
            return self.since + seconds, end
        if self.is_to_be_restarted:
            cooled = 0.0 if self.restarted_at is None else self.restarted_at + TIMING.auto_restart_cooldown
            return max(self.since + TIMING.auto_restart, cooled, self.barred_until), "starting"
        return None

    def pass_until(self, now: float) -> None:
        """Let everything happen that is due by then."""
        while (event := self.next_event()) is not None and event[0] <= now:
            moment, state = event
            if self.state == "failed":
                self.restarted_at = moment
            self.become(state, moment)
        if not self.is_to_be_restarted:
            self.barred_until = now


class InstanceLives(RuleBasedStateMachine):
    """Two instances that are moved at random, compared with what the table says after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.rack = RackUnderTest(TIMING)
        self.expected: dict[str, Expected] = {}

    def teardown(self) -> None:
        """Close what the run has opened; the rack must have kept to its document."""
        self.runner.run(self.rack.http.aclose())
        self.runner.close()
        assert self.rack.app.violations == []

    def must(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """One request, answered by this status."""
        return self.runner.run(self.rack.must(status, method, path, body))

    @property
    def now(self) -> float:
        """Seconds of the rack's clock since an origin."""
        return (self.rack.clock.now() - datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)).total_seconds()

    @initialize()
    def begin(self) -> None:
        """Both instances exist."""
        for name in NAMES:
            self.create(name)

    def create(self, name: str) -> None:
        """Make an instance that is stopped."""
        self.must(201, "POST", life.INSTANCES, life.MINIMAL | {"name": name})
        self.expected[name] = Expected(since=self.now)

    @rule(name=st.sampled_from(NAMES), act=st.sampled_from(sorted(ACTS)))
    def power(self, name: str, act: str) -> None:
        """A power operation."""
        expected = self.expected[name]
        expected.is_meant_to_run = MEANT[act]
        outcome = ACTS[act][expected.state]
        if expected.is_lost and act != "start":
            error = self.must(503, "POST", life.path(name, act))
            assert "error_code" not in error
            expected.become("failed", self.now)
        elif isinstance(outcome, int):
            self.must(outcome, "POST", life.path(name, act))
        else:
            answer = self.must(202, "POST", life.path(name, act))
            assert answer["run_state"] == outcome
            if outcome != expected.state:
                expected.become(outcome, self.now)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        """A delete; an instance that goes is made again."""
        expected = self.expected[name]
        expected.is_meant_to_run = MEANT["delete"]
        if expected.state in WITH_VMM:
            self.must(400, "DELETE", life.path(name))
        else:
            self.must(204, "DELETE", life.path(name))
            self.create(name)

    @rule(name=st.sampled_from(NAMES), policy=st.sampled_from([None, "never", "best_effort"]))
    def set_policy(self, name: str, policy: str | None) -> None:
        """An update of the restart policy, which every state allows."""
        self.expected[name].policy = policy
        self.must(200, "PUT", life.path(name), life.UNCHANGED | {"auto_restart_policy": policy})

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 120.0]))
    def wait(self, seconds: float) -> None:
        """Time."""
        self.rack.pass_time(seconds)

    def _has_vmm(self, name: str) -> bool:
        return self.expected[name].state in WITH_VMM

    @precondition(lambda self: any(self._has_vmm(name) for name in NAMES))
    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        """A guest that is gone before the rack notices."""
        expected = self.expected[name]
        if self._has_vmm(name) and not expected.is_lost:
            expected.is_lost, expected.lost_at = True, self.now
            instance_states.crash_guest(self.rack.state, life.record(self.rack, name))

    @precondition(lambda self: any(self._has_vmm(name) for name in NAMES))
    @rule(name=st.sampled_from(NAMES))
    def fail(self, name: str) -> None:
        """A guest that the rack finds gone."""
        if self._has_vmm(name):
            instance_states.fail(self.rack.state, life.record(self.rack, name))
            self.expected[name].become("failed", self.now)

    @precondition(lambda self: any(self.expected[name].state == "running" for name in NAMES))
    @rule(name=st.sampled_from(NAMES))
    def power_off(self, name: str) -> None:
        """A guest that shuts itself down."""
        expected = self.expected[name]
        if expected.state == "running" and not expected.is_lost:
            instance_states.power_off_guest(self.rack.state, life.record(self.rack, name))
            expected.become("stopping", self.now)

    @invariant()
    def world_is_as_expected(self) -> None:
        """Every instance is in the state that the table gives it, since when it says, and only VMMs use anything."""
        listed = {item["name"]: item for item in self.must(200, "GET", life.INSTANCES)["items"]}
        assert listed.keys() == self.expected.keys()
        for name, expected in self.expected.items():
            expected.pass_until(self.now)
            shown = listed[name]
            assert shown["run_state"] == expected.state
            updated = datetime.datetime.fromisoformat(shown["time_run_state_updated"])
            since = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=expected.since)
            assert abs(updated - since) < datetime.timedelta(milliseconds=1)
            assert (life.record(self.rack, name).sled is not None) == (expected.state in WITH_VMM)
        with_vmm = sum(expected.state in WITH_VMM for expected in self.expected.values())
        silo = self.rack.silo
        assert (silo.provisioned_cpus, silo.provisioned_memory_bytes) == (2 * with_vmm, 4 * GIB * with_vmm)
        assert sum(sled.reserved_cpus for sled in self.rack.state.sleds.values()) == 2 * with_vmm


TestInstanceLives = InstanceLives.TestCase
TestInstanceLives.__doc__ = "3.2, 3.3: whatever is done to instances, they are what a small table says."
TestInstanceLives.settings = settings(max_examples=20, stateful_step_count=40)
