"""The provider beside the control plane: installed like everywhere, but as a process of its own instead of a Pod.

It logs in as its own ServiceAccount, so it may do what the shipped RBAC allows and no more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from hack.controlplane.capi import ManagementCluster
from hack.controlplane.plane import answers

__all__ = ["install", "start"]

NAMESPACE: Final = "capox-system"
SERVICE_ACCOUNT: Final = "capox-manager"
READY_SECONDS: Final = 60.0


def install(plane: ManagementCluster, config: Path) -> None:
    """Apply everything of config/default but the Deployment, and wait until the kinds are served."""
    plane.kubectl("apply", "-f", str(config / "manager" / "namespace.yaml"))
    for part in ("crd", "rbac", "admission"):
        plane.kubectl("apply", "--server-side", "-k", str(config / part))
    plane.kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "-l",
        "cluster.x-k8s.io/provider=infrastructure-oxide",
    )


def start(plane: ManagementCluster, *arguments: str) -> None:
    """Start the provider and wait until it is ready.

    Args:
        plane: The control plane beside which it runs, and with which it ends.
        *arguments: Further ones of `capox provider`.
    """
    health, diagnostics = plane.processes.lease_ports(2)
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
    argv = [sys.executable, "-m", "capox", "provider", "--kubeconfig", os.fspath(kubeconfig)]
    argv += ["--health-probe-bind-address", f"127.0.0.1:{health}", "--diagnostics-address", f"127.0.0.1:{diagnostics}"]
    environment = {"PATH": os.defpath, "POD_NAMESPACE": NAMESPACE, "POD_NAME": "capox-0"}
    plane.processes.start("capox-provider", [*argv, *arguments], environment)
    plane.processes.wait_until("capox-provider", lambda: answers(health, "/readyz"), within_seconds=READY_SECONDS)
