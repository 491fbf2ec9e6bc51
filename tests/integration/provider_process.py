"""The provider as a process beside the shared control plane, under its own ServiceAccount and the shipped RBAC."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from hack.controlplane.capi import ManagementCluster
from hack.controlplane.plane import answers

READY_SECONDS = 60.0
STOP_SECONDS = 40.0
NAMESPACE = "capox-system"
SERVICE_ACCOUNT = "capox-manager"
CONFIG = Path(__file__).resolve().parents[2] / "config"


def install(plane: ManagementCluster) -> None:
    """Apply everything of config/default but the Deployment: there is no node for Pods here."""
    plane.kubectl("apply", "-f", str(CONFIG / "manager" / "namespace.yaml"))
    for part in ("rbac", "admission"):
        plane.kubectl("apply", "--server-side", "-k", str(CONFIG / part))


class ProviderProcess:
    """`capox provider`, from entering the context to leaving it; it may be killed and started again meanwhile.

    Args:
        plane: The management cluster, where `install` has been done.
        directory: For its log.
        arguments: Further ones for the command line.

    Attributes:
        diagnostics_port: Where its metrics are, once it has been started.
    """

    def __init__(self, plane: ManagementCluster, directory: Path, *arguments: str) -> None:
        self.diagnostics_port = 0
        self._plane = plane
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "provider.log"

    def __enter__(self) -> Self:
        """Start it and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop it, if it has not been stopped."""
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        health, self.diagnostics_port = self._plane.processes.lease_ports(2)
        kubeconfig = self._plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        command = [sys.executable, "-m", "capox", "provider", "--kubeconfig", str(kubeconfig)]
        command += [f"--health-probe-bind-address=127.0.0.1:{health}"]
        command += [f"--diagnostics-address=127.0.0.1:{self.diagnostics_port}", *self._arguments]
        environment = {"PATH": os.environ["PATH"], "POD_NAMESPACE": NAMESPACE, "POD_NAME": f"capox-{health}"}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_SECONDS
        while not answers(health, "/readyz"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the provider was not ready:\n{self.log_file.read_text()[-4000:]}")
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as SIGKILL does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the provider did not end within {STOP_SECONDS:.0f} s") from None
