"""A control plane comes up, works, does not get in another's way, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hack.controlplane import keeper
from hack.controlplane.errors import StartError
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.plane import ControlPlane
from hack.controlplane.processes import is_running
from hack.controlplane.programs import KUBE_APISERVER
from tests.integration.waiting import eventually

if TYPE_CHECKING:
    from hack.controlplane.binaries import Binaries
    from hack.controlplane.capi import ManagementCluster


def identities(directory: Path) -> dict[str, dict[str, Any]]:
    """The processes of a control plane, keeper included, with what is needed to recognise each later."""
    state = json.loads((directory / keeper.STATE_FILE).read_text())
    return {"keeper": state["keeper"], **state["processes"]}


def survivors(recorded: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the recorded processes that still live."""
    return [name for name, identity in recorded.items() if is_running(identity)]


def test_an_administrator_is_served(control_plane: ManagementCluster) -> None:
    """The kubeconfig gives access to a Kubernetes of the pinned version."""
    version = json.loads(control_plane.kubectl("version", "-o", "json"))

    assert version["serverVersion"]["gitVersion"] == KUBE_APISERVER.version
    assert control_plane.kubectl("auth", "can-i", "*", "*").strip() == "yes"


def test_everything_listens_on_loopback_but_webhooks(control_plane: ManagementCluster) -> None:
    """No program listens beyond loopback, except the managers' webhook servers, which have no flag for it."""
    pids = {identity["pid"]: name for name, identity in identities(control_plane.directory).items()}
    beyond = sorted({pids[pid] for pid, address in _listeners(set(pids)) if not address.startswith("0100007F:")})

    assert beyond == ["capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane"]


def _listeners(pids: set[int]) -> list[tuple[int, str]]:
    """Pid and local address, as the kernel writes it, of every listening TCP socket of some processes."""
    listening = "0A"
    found = []
    for pid in pids:
        process = Path("/proc") / str(pid)
        sockets = set()
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                sockets.add(str(descriptor.readlink()))
        for table in ("tcp", "tcp6"):
            rows = [line.split() for line in (process / "net" / table).read_text().splitlines()[1:]]
            found += [(pid, row[1]) for row in rows if row[3] == listening and f"socket:[{row[9]}]" in sockets]
    return found


def test_a_namespace_can_be_deleted(control_plane: ManagementCluster) -> None:
    """The controllers work: a namespace gets its ServiceAccount, and its deletion ends."""
    path = "/api/v1/namespaces/short-lived"
    control_plane.kubectl("create", "namespace", "short-lived")
    eventually("a default ServiceAccount", lambda: control_plane.client.exists(f"{path}/serviceaccounts/default"))

    control_plane.kubectl("delete", "namespace", "short-lived", "--timeout=60s")

    assert not control_plane.client.exists(path)


def test_several_at_a_time(binaries: Binaries, control_plane: ManagementCluster) -> None:
    """Two that start at the same moment beside a third are three worlds, and stop without harm to each other."""
    first = ControlPlane(binaries, with_controllers=False)
    second = ControlPlane(binaries, with_controllers=False)
    try:
        with ThreadPoolExecutor(2) as executor:
            list(executor.map(lambda plane: plane.start(), (first, second)))
        first.kubectl("create", "namespace", "only-here")

        assert len({first.server, second.server, control_plane.server}) == 3
        assert first.client.exists("/api/v1/namespaces/only-here")
        assert not second.client.exists("/api/v1/namespaces/only-here")
        first.stop()
        assert second.client.is_ready()
        assert control_plane.client.is_ready()
    finally:
        first.stop()
        second.stop()


def test_stop_leaves_nothing(binaries: Binaries) -> None:
    """After stop no process lives and the temporary directory is gone."""
    with ControlPlane(binaries, with_controllers=False) as plane:
        recorded = identities(plane.directory)
        assert sorted(recorded) == ["etcd", "keeper", "kube-apiserver"]
        assert survivors(recorded) == list(recorded)

    assert survivors(recorded) == []
    assert not plane.directory.exists()


@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_a_kill_leaves_nothing(tmp_path: Path, binaries: Binaries, victim: str) -> None:
    """When the Python process that owns a control plane is killed, or the keeper itself, every program ends."""
    del binaries  # asked for so that missing programs are reported as such
    command = [sys.executable, "-m", "tests.integration.owner", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        recorded = identities(tmp_path)
        assert survivors(recorded) == list(recorded)

        os.kill(owner.pid if victim == "owner" else recorded["keeper"]["pid"], signal.SIGKILL)

        eventually("no process of the control plane", lambda: not survivors(recorded), within_seconds=30)
        owner.kill()


def test_a_failed_start_says_why(binaries: Binaries, tmp_path: Path) -> None:
    """An apiserver that ends at once is an error that quotes its log and names the file."""
    plane = ControlPlane(binaries, directory=tmp_path, apiserver_arguments=["--no-such-flag"])
    with pytest.raises(StartError) as failure, plane:
        pytest.fail("it started")

    message = str(failure.value)
    assert "kube-apiserver ended with exit code 1" in message
    assert "unknown flag: --no-such-flag" in message
    assert str(tmp_path / "logs" / "kube-apiserver.log") in message
