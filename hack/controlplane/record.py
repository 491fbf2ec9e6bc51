"""What is left behind for people when a control plane has come up: its record, and commands that know it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from hack.controlplane import state
from hack.controlplane.binaries import Binaries
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.plane import ControlPlane
from hack.controlplane.programs import CAPI_CORE, CLUSTERCTL, KUBE_APISERVER, KUBECTL

ROOT: Final = Path(__file__).resolve().parents[2]

__all__ = ["command_line", "record_of", "write_commands", "write_commands_of"]


def command_line() -> str:
    """Give the command of this package as it works in any shell and any directory: other Pythons lack what it needs."""
    return f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m hack.controlplane"


def record_of(plane: ControlPlane) -> state.Record:
    """Give the record of a control plane that runs."""
    return state.Record(
        server=plane.server,
        kubeconfig=str(plane.kubeconfig),
        kubernetes=KUBE_APISERVER.version,
        cluster_api=CAPI_CORE.version if isinstance(plane, ManagementCluster) else None,
        phases=plane.phases,
    )


def write_commands(named: state.NamedControlPlane, plane: ControlPlane) -> None:
    """Put kubectl and a clusterctl that knows the local repository into a directory for PATH."""
    configuration = plane.clusterctl_configuration if isinstance(plane, ManagementCluster) else None
    write_commands_of(named, plane.binaries, configuration)


def write_commands_of(named: state.NamedControlPlane, binaries: Binaries, configuration: Path | None) -> None:
    """Put kubectl and clusterctl into a directory for PATH.

    Args:
        named: whose directory.
        binaries: with both programs.
        configuration: of clusterctl; None: the one that it finds by itself.
    """
    named.commands.mkdir(exist_ok=True)
    (named.commands / "kubectl").symlink_to(binaries.path(KUBECTL))
    options = f" --config {shlex.quote(str(configuration))}" if configuration is not None else ""
    script = f'#!/bin/sh\nexec {shlex.quote(str(binaries.path(CLUSTERCTL)))}{options} "$@"\n'
    (named.commands / "clusterctl").write_text(script)
    (named.commands / "clusterctl").chmod(0o755)
