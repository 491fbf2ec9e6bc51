"""The cloud controller manager as a process beside the shared control plane, under its own ServiceAccount and RBAC."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from hack.controlplane.errors import RequestError
from hack.controlplane.plane import ControlPlane
from hack.controlplane.workload import CONTROL_PLANE_LABEL
from tests.integration import https

READY_SECONDS = 60.0
STOP_SECONDS = 40.0
NAMESPACE = "kube-system"
SERVICE_ACCOUNT = "capox-cloud-controller-manager"
CONFIG = Path(__file__).resolve().parents[2] / "config" / "ccm"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cloud-controller-manager"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"

_RIGHTS = ("service_account", "cluster_role", "leader_election_role", "node_lease_role")
_BEAT_SECONDS = 5.0


def install_rights(plane: ControlPlane) -> None:
    """Apply the ServiceAccount and what it may do, as config/ccm has them; there is no node for Pods here."""
    for path in sorted(CONFIG.glob("*.yaml")):
        if path.stem.removesuffix("_binding") in _RIGHTS:
            plane.kubectl("apply", "--server-side", "-f", str(path))


class CCMProcess:
    """`capox ccm`, from entering the context to leaving it; it may be killed and started again meanwhile.

    Args:
        plane: The cluster, where `install_rights` has been done.
        directory: For its log and its credentials.
        host: The rack's address.
        token: The rack's token.
        arguments: Further ones for the command line.

    Attributes:
        port: Where it serves.
        log_file: Its log.
    """

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        host: str,
        token: str,
        *arguments: str,
        program: Sequence[str] = (sys.executable, "-m", "capox"),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._plane = plane
        self._arguments = arguments
        self._program = program
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._credentials = directory / "credentials"
        self._credentials.mkdir(mode=0o700)
        self.write_credentials(host, token)
        self.port = 0
        self.log_file = directory / "ccm.log"

    def __enter__(self) -> Self:
        """Start it and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop it, if it has not been stopped."""
        if self._process is not None and self._process.poll() is None:
            self.stop()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def write_credentials(self, host: str, token: str, project: str = "demo") -> None:
        """Write the files that a mounted Secret has."""
        for name, text in (("oxide-host", host), ("oxide-token", token), ("oxide-project", project)):
            (self._credentials / name).write_text(f"{text}\n")

    def start(self) -> None:
        """Start it and wait until it answers that it is ready."""
        (self.port,) = self._plane.processes.lease_ports(1)
        kubeconfig = self._plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        command = [*self._program, "ccm", "--cloud-provider=oxide", "--kubeconfig", str(kubeconfig)]
        command += [f"--credentials-directory={self._credentials}", "--cluster-id="]
        command += ["--bind-address=127.0.0.1", f"--secure-port={self.port}", *self._arguments]
        environment = {"PATH": os.environ["PATH"], "POD_NAME": f"ccm-{self.port}", **self._variables}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_SECONDS
        while self.ask("/readyz")[0] != 200:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the CCM was not ready:\n{self.log_file.read_text()[-4000:]}")
            time.sleep(0.1)

    def ask(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Ask it something over HTTPS; status 0 when nobody answers."""
        return https.ask(self.port, path, token)

    def kill(self) -> None:
        """End it as SIGKILL does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the CCM did not end within {STOP_SECONDS:.0f} s") from None


class Kubelets:
    """What kubelets are to a cloud controller manager: Nodes, and Leases that are renewed as long as they live.

    Args:
        plane: The cluster.
        beat_seconds: How old a Lease may become; a kubelet's own renewals are 10 s apart.
    """

    def __init__(self, plane: ControlPlane, beat_seconds: float = _BEAT_SECONDS) -> None:
        self._plane = plane
        self._beat_seconds = beat_seconds
        self._living: dict[str, float] = {}
        # Leases may be renewed by a thread, and none after its kubelet has died.
        self._lock = threading.Lock()
        self._made: list[str] = []

    def register(self, name: str, *, is_control_plane: bool = False, **annotations: str) -> None:
        """Register a Node as a kubelet does that waits for a cloud provider."""
        labels = {CONTROL_PLANE_LABEL: ""} if is_control_plane else {}
        taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": annotations, "labels": labels},
            "spec": {"taints": [taint]},
        }
        self._plane.client.post("/api/v1/nodes", document)
        self._made.append(name)
        status = {"addresses": [{"type": "Hostname", "address": name}], "conditions": [_ready("True")]}
        self._plane.client.patch_status(f"/api/v1/nodes/{name}", {"status": status})
        with self._lock:
            self._living[name] = 0.0
        self.beat()

    def beat(self) -> bool:
        """Renew the Leases that are due; always true, so that it can stand in a condition that is waited for."""
        with self._lock:
            self._renew()
        return True

    def silence(self, name: str) -> None:
        """Have a kubelet die, and be noticed."""
        with self._lock:
            del self._living[name]
        self._plane.client.patch_status(f"/api/v1/nodes/{name}", {"status": {"conditions": [_ready("Unknown")]}})

    def node(self, name: str) -> Any:
        """A Node; None when it is gone."""
        try:
            return self._plane.client.get(f"/api/v1/nodes/{name}")
        except RequestError as error:
            if error.status == 404:
                return None
            raise

    def clean(self) -> None:
        """Delete all Nodes and Leases that were made."""
        for name in self._made:
            for path in (f"/api/v1/nodes/{name}", _lease_path(name)):
                if self._plane.client.exists(path):
                    self._plane.client.request("DELETE", path)

    def _renew(self) -> None:
        now = time.monotonic()
        for name, renewed_at in self._living.items():
            if now - renewed_at < self._beat_seconds:
                continue
            self._living[name] = now
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
            self._plane.client.apply(path, document)


def _lease_path(name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"


def _ready(status: str) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": status,
        "reason": "KubeletReady" if status == "True" else "NodeStatusUnknown",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }
