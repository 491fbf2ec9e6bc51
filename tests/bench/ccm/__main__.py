"""`python -m tests.bench.ccm`: measures the cloud controller manager and ends with 1 when a limit is missed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hack.controlplane.binaries import resolve
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.plane import ControlPlane
from hack.controlplane.progress import reporter_for
from tests.bench.ccm.limits import judge
from tests.bench.ccm.report import page, show
from tests.bench.ccm.results import Results
from tests.bench.ccm.run import measure
from tests.bench.fleet.racks import PROFILES, configuration
from tests.bench.machine import Machine
from tests.integration.audit import CCM_USER, apiserver_arguments
from tests.integration.ccm_process import install_rights
from tests.rack_process import RackProcess


def _measure(arguments: argparse.Namespace, directory: Path, console: Console) -> Results:
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[{time.monotonic() - began:7.1f} s] {line}", markup=False, highlight=False)

    binaries = resolve(os.environ, reporter=reporter_for())
    audit_arguments, audit = apiserver_arguments(directory, CCM_USER)
    say("starting the control plane")
    # Without kube-controller-manager: it would call Nodes lost by itself, and wait for 40 s before that.
    plane = ControlPlane(
        binaries,
        directory=directory / "plane",
        with_controllers=False,
        apiserver_arguments=audit_arguments,
    )
    with plane, RackProcess(directory, configuration(arguments.profile)) as rack:
        install_rights(plane)
        say(f"cloud controller manager: {arguments.nodes} Nodes, {arguments.services} Services, {arguments.profile}")
        return measure(
            plane,
            audit,
            directory,
            rack,
            arguments.profile,
            nodes=arguments.nodes,
            services=arguments.services,
            rest_seconds=arguments.rest_seconds,
            trials=arguments.trials,
            say=lambda line: say(f"  {line}"),
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.ccm", description="Measure the cloud controller manager with a cluster."
    )
    add = parser.add_argument
    add("--nodes", type=int, default=100, help="how many Nodes, three of them control planes (default: 100)")
    add("--services", type=int, default=50, help="how many Services (default: 50)")
    add("--profile", choices=PROFILES, default="realistic", help="the rack's timing (default: realistic)")
    add("--rest-seconds", type=float, default=300.0, help="how long nothing is to happen (default: 300)")
    add("--trials", type=int, default=3, help="how many nodes die of each cause (default: 3)")
    add("--report", type=Path, help="write the reference page to this file")
    add("--directory", type=Path, help="keep logs in this new directory (default: one of the system's)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when every limit is kept, 1 when one is missed or nothing could be measured."""
    parsed = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    directory = parsed.directory or Path(tempfile.mkdtemp(prefix="capox-bench-ccm-"))
    directory.mkdir(parents=True, exist_ok=True)
    # Nothing of it is left running when it is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        results = _measure(parsed, directory, console)
    except ControlPlaneError as error:
        console.print(f"error: {error}", markup=False)
        return 1
    except AssertionError as error:
        console.print(f"error: {error}\nlogs are in {directory}", markup=False)
        raise
    (directory / "results.json").write_text(json.dumps(dataclasses.asdict(results), indent=1))
    show(results, console)
    if parsed.report is not None:
        parsed.report.write_text(page(results, Machine.here()))
    missed = [verdict for verdict in judge(results) if not verdict.is_met]
    for verdict in missed:
        console.print(f"missed: {verdict.subject}: {verdict.what}", markup=False)
    console.print(f"logs and results are in {directory}", markup=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
