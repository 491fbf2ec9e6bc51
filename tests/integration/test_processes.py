"""The keeper ends programs in the right order, gently first, and whatever happens to their owner.

Ordinary commands stand in for the programs of a control plane here; `test_control_plane` has the same for real ones.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from hack.controlplane import keeper
from hack.controlplane.errors import StartError
from hack.controlplane.processes import (
    TIER_APISERVER,
    TIER_STORAGE,
    Processes,
    is_running,
    left_running,
    stop_left_running,
)
from tests.integration.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = ["/bin/sleep", "600"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """An owner's side, in `tmp_path`."""
    owned = Processes(tmp_path, tmp_path / "ports", tmp_path)
    yield owned
    owned.close()


def identities(directory: Path) -> dict[str, dict[str, Any]]:
    """The recorded programs."""
    recorded: dict[str, dict[str, Any]] = json.loads((directory / keeper.STATE_FILE).read_text())["processes"]
    return recorded


def shell(script: str) -> list[str]:
    """A command that runs a script."""
    return ["/bin/sh", "-c", script]


def test_output_and_environment(processes: Processes, tmp_path: Path) -> None:
    """A program gets the environment it was given and no other; what it prints is in its log."""
    processes.start("printer", shell('echo "$GREETING, $HOME"; echo oops >&2'), {"GREETING": "hello"})
    eventually("the end of the program", lambda: processes.exit_code("printer") is not None)

    assert (tmp_path / "printer.log").read_text() == "hello, \noops\n"


def test_stopping_is_gentle_first(processes: Processes, tmp_path: Path) -> None:
    """SIGTERM comes first; who ignores it is killed after the grace, with all that it has started."""
    processes.start("polite", shell('trap "echo bye; exit" TERM; echo up; while :; do sleep 0.05; done'))
    processes.start("stubborn", shell('trap "" TERM; sleep 600 & echo $!; wait'), grace_seconds=0.5)
    eventually(
        "both programs", lambda: (tmp_path / "polite.log").read_text() and (tmp_path / "stubborn.log").read_text()
    )
    grandchild = keeper.identify(int((tmp_path / "stubborn.log").read_text()))
    recorded = identities(tmp_path)

    processes.stop("polite", "stubborn")

    assert not any(is_running(identity) for identity in recorded.values())
    eventually("the end of the grandchild", lambda: not is_running(grandchild))
    assert (tmp_path / "polite.log").read_text().endswith("bye\n")


def test_a_grace_is_a_program_s_own(processes: Processes, tmp_path: Path) -> None:
    """Who has more to take away gets longer than its neighbours, also when its owner just goes away."""
    slow = 'trap "sleep 1; echo done; exit" TERM; echo up; while :; do sleep 0.05; done'
    processes.start("patient", shell(slow), {"PATH": "/bin:/usr/bin"}, grace_seconds=60.0)
    processes.start("hasty", shell(slow), {"PATH": "/bin:/usr/bin"}, grace_seconds=0.2)
    logs = [tmp_path / "patient.log", tmp_path / "hasty.log"]
    eventually("both programs", lambda: all(log.read_text() for log in logs))

    processes.close()

    assert ["done" in log.read_text() for log in logs] == [True, False]
    assert left_running(tmp_path) == []


def test_a_long_grace_is_waited_for(tmp_path: Path) -> None:
    """A later command knows how long the programs may take, the longest of each tier; killing comes after that."""
    owned = Processes(tmp_path, tmp_path / "ports", tmp_path)
    owned.start("rack", SLEEP, grace_seconds=60.0)
    owned.start("other", SLEEP, grace_seconds=7.0)
    owned.start("etcd", SLEEP, tier=TIER_STORAGE)
    owned.detach()
    owned.close()

    recorded = json.loads((tmp_path / keeper.STATE_FILE).read_text())
    stopped = stop_left_running(tmp_path)

    assert recorded["stop_seconds"] == 60.0 + keeper.GRACE_SECONDS
    assert stopped == ["rack", "other", "etcd"]


def test_who_is_needed_ends_last(processes: Processes, tmp_path: Path) -> None:
    """Tiers end one after the other, whatever the order of their start."""
    note = 'trap "sleep 0.1; echo $NAME >> order; exit" TERM; touch $NAME.up; while :; do sleep 0.02; done'
    tiers = {"storage": TIER_STORAGE, "client": 2, "apiserver": TIER_APISERVER}
    for name, tier in tiers.items():
        processes.start(name, shell(note), {"NAME": name, "PATH": "/bin:/usr/bin"}, tier=tier)
    eventually("all programs", lambda: len(list(tmp_path.glob("*.up"))) == 3)

    processes.close()

    assert (tmp_path / "order").read_text().split() == ["client", "apiserver", "storage"]


def test_an_early_end_is_an_error(processes: Processes) -> None:
    """Who waits for a program that has ended is told at once, with its exit code and last words."""
    processes.start("failing", shell("echo cannot bind; exit 3"))

    with pytest.raises(StartError, match=r"(?s)failing ended with exit code 3 before it was ready.*cannot bind"):
        processes.wait_until("failing", lambda: False, within_seconds=30)


def test_a_wait_has_a_bound(processes: Processes) -> None:
    """The message names the program, the bound and the log."""
    processes.start("slow", SLEEP)

    with pytest.raises(StartError, match=r"slow was not listening within 0 s.*slow\.log"):
        processes.wait_until("slow", lambda: False, within_seconds=0.1, what="listening")


def test_a_missing_program_is_an_error(processes: Processes) -> None:
    """The message names it."""
    with pytest.raises(StartError, match=r"start ghost: .*No such file.*ghost-program"):
        processes.start("ghost", ["/nonexistent/ghost-program"])


def test_detached_programs_outlive_their_owner(tmp_path: Path) -> None:
    """After detach, closing ends nothing; whoever knows the directory finds and ends them later."""
    owned = Processes(tmp_path, tmp_path / "ports", tmp_path)
    owned.start("sleeper", SLEEP)
    recorded = identities(tmp_path)
    owned.detach()
    owned.close()
    assert [process.name for process in left_running(tmp_path)] == ["keeper", "sleeper"]

    assert stop_left_running(tmp_path) == ["sleeper"]

    assert left_running(tmp_path) == []
    assert not any(is_running(identity) for identity in recorded.values())


def test_a_dead_keeper_is_noticed(processes: Processes, tmp_path: Path) -> None:
    """When the keeper is killed its programs go with it, and the owner is told instead of waiting for ever."""
    processes.start("sleeper", SLEEP)
    recorded = identities(tmp_path)
    os.kill(left_running(tmp_path)[0].pid, signal.SIGKILL)
    eventually("the end of the program", lambda: not any(is_running(identity) for identity in recorded.values()))

    with pytest.raises(StartError, match="keeper of the control plane's processes is gone"):
        processes.start("another", SLEEP)


def test_a_pid_that_changed_hands_is_left_alone(tmp_path: Path) -> None:
    """A recorded pid that now belongs to another process, this test for one, is nobody to stop."""
    stranger = {**keeper.identify(os.getpid()), "start_ticks": 1}
    state = {"keeper": stranger, "processes": {"etcd": stranger}}
    (tmp_path / keeper.STATE_FILE).write_text(json.dumps(state))

    assert left_running(tmp_path) == []
    assert stop_left_running(tmp_path) == []
    assert is_running(keeper.identify(os.getpid()))
