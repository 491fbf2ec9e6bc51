"""The provider beside the management cluster: installed like everywhere, but as a process of its own instead of a Pod.

It logs in as its own ServiceAccount, so it may do what the shipped RBAC allows and no more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from hack.controlplane.plane import answers
from hack.demo.management import Commands, Management

__all__ = ["KINDS", "install", "remove", "start"]

NAMESPACE: Final = "capox-system"
SERVICE_ACCOUNT: Final = "capox-manager"
KINDS: Final = "cluster.x-k8s.io/provider=infrastructure-oxide"
"""The label of the provider's kinds."""
READY_SECONDS: Final = 60.0
_PARTS: Final = ("crd", "rbac", "admission")
_REMOVE_SECONDS: Final = 180.0


def install(plane: Commands, config: Path) -> None:
    """Apply everything of config/default but the Deployment, and wait until the kinds are served."""
    plane.kubectl("apply", "-f", str(config / "manager" / "namespace.yaml"))
    for part in _PARTS:
        plane.kubectl("apply", "--server-side", "-k", str(config / part))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "-l", KINDS)


def remove(plane: Commands, config: Path) -> None:
    """Take away what `install` has put there."""
    missing_is_fine = ("--ignore-not-found", f"--timeout={_REMOVE_SECONDS:.0f}s")
    for part in reversed(_PARTS):
        words = ("delete", "-k", str(config / part), *missing_is_fine)
        plane.kubectl(*words, timeout_seconds=_REMOVE_SECONDS)
    words = ("delete", "-f", str(config / "manager" / "namespace.yaml"), *missing_is_fine)
    plane.kubectl(*words, timeout_seconds=_REMOVE_SECONDS)


def start(plane: Management, *arguments: str) -> None:
    """Start the provider and wait until it is ready.

    Args:
        plane: The cluster beside which it runs.
        *arguments: Further ones of `capox provider`.
    """
    health, diagnostics = plane.processes.lease_ports(2)
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
    argv = [sys.executable, "-m", "capox", "provider", "--kubeconfig", os.fspath(kubeconfig)]
    argv += ["--health-probe-bind-address", f"127.0.0.1:{health}", "--diagnostics-address", f"127.0.0.1:{diagnostics}"]
    environment = {"PATH": os.defpath, "POD_NAMESPACE": NAMESPACE, "POD_NAME": "capox-0"}
    plane.processes.start("capox-provider", [*argv, *arguments], environment)
    plane.processes.wait_until("capox-provider", lambda: answers(health, "/readyz"), within_seconds=READY_SECONDS)
