"""`python -m tests.bench.fleet`: measures fleets and ends with 1 when a limit is missed."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from hack.controlplane import components
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.programs import CAPI_CORE
from hack.controlplane.progress import reporter_for
from hack.demo.provider import install
from tests.bench.fleet.floor import measure_floor
from tests.bench.fleet.in_memory import add_in_memory_provider, binaries
from tests.bench.fleet.limits import judge
from tests.bench.fleet.parts import Parts
from tests.bench.fleet.racks import PROFILES, configuration
from tests.bench.fleet.report import page, show
from tests.bench.fleet.results import FleetResult, FloorResult, InMemoryResult, Results
from tests.bench.fleet.stage import measure_fleet, measure_in_memory
from tests.bench.machine import Machine
from tests.integration.audit import IN_MEMORY_USER, USER, AuditLog, apiserver_arguments
from tests.rack_process import RackProcess

CONFIG: Final = Path(__file__).resolve().parents[3] / "config"
SIZES: Final = "10,100,1000"


class _Bench:
    """One run.

    Args:
        arguments: As on the command line.
        directory: For logs.
        console: Where progress and tables go.
    """

    def __init__(self, arguments: argparse.Namespace, directory: Path, console: Console) -> None:
        self._arguments = arguments
        self._directory = directory
        self._console = console
        self._began = time.monotonic()
        self._parts = Parts(directory / "parts")

    def measure(self) -> Results:
        """Measure everything that was asked for."""
        arguments = self._arguments
        programs = binaries()
        manifests = components.ensure(os.environ, programs, reporter_for())
        audit_arguments, audit = apiserver_arguments(self._directory, USER, IN_MEMORY_USER)
        plane = ManagementCluster(
            programs, manifests, directory=self._directory / "plane", apiserver_arguments=audit_arguments
        )
        self.say("starting the control plane")
        with plane:
            install(plane, CONFIG)
            fleets = [
                self._parts.ensure(
                    f"fleet-{profile}-{size}",
                    FleetResult,
                    functools.partial(self._measure_fleet, plane, audit, profile, size),
                )
                for profile in arguments.profiles
                for size in arguments.sizes
            ]
            in_memory = self._in_memory(plane) if arguments.in_memory else []
        floors = [
            self._parts.ensure(
                f"floor-{profile}-{size}", FloorResult, functools.partial(self._measure_floor, profile, size)
            )
            for profile in arguments.profiles
            for size in arguments.sizes
        ]
        return Results(fleets=tuple(fleets), floors=tuple(floors), in_memory=tuple(in_memory))

    def say(self, line: str) -> None:
        """Print what is going on."""
        self._console.print(f"[{time.monotonic() - self._began:7.1f} s] {line}", markup=False, highlight=False)

    def _in_memory(self, plane: ManagementCluster) -> list[InMemoryResult]:
        """All sizes, in one process, which is started for the first that is not there."""
        process = functools.cache(lambda: add_in_memory_provider(plane))

        def measure(size: int) -> InMemoryResult:
            self.say(f"in-memory provider: {size} machines")
            return measure_in_memory(plane, process(), machines=size)

        sizes = self._arguments.sizes
        return [
            self._parts.ensure(f"in-memory-{size}", InMemoryResult, functools.partial(measure, size)) for size in sizes
        ]

    def _measure_fleet(self, plane: ManagementCluster, audit: AuditLog, profile: str, size: int) -> FleetResult:
        self.say(f"provider: {size} machines, {profile}")
        directory = self._made(f"fleet-{profile}-{size}")
        with RackProcess(directory, configuration(profile)) as rack:
            return measure_fleet(
                plane,
                audit,
                directory,
                rack,
                profile,
                is_leader_elected=self._arguments.lease,
                machines=size,
                rest_seconds=self._arguments.rest_seconds,
                say=lambda line: self.say(f"  {line}"),
            )

    def _measure_floor(self, profile: str, size: int) -> FloorResult:
        self.say(f"rack's floor: {size} machines, {profile}")
        with RackProcess(self._made(f"floor-{profile}-{size}"), configuration(profile)) as rack:
            return measure_floor(rack, profile, machines=size, clusters=-(-size // 50))

    def _made(self, name: str) -> Path:
        path = self._directory / name
        # Of a run that was interrupted in it.
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fleet", description="Measure the provider with fleets."
    )
    add = parser.add_argument
    add("--sizes", type=_numbers, default=_numbers(SIZES), help=f"numbers of machines (default: {SIZES})")
    add("--profiles", type=_profiles, default=PROFILES, help=f"the rack's timings (default: {','.join(PROFILES)})")
    add("--rest-seconds", type=float, default=120.0, help="how long a fleet is at rest (default: 120)")
    add("--no-in-memory", dest="in_memory", action="store_false", help="leave Cluster API's in-memory provider out")
    without = "run the provider without a Lease, on a machine too busy to have it renewed within 10 s"
    add("--no-lease", dest="lease", action="store_false", help=without)
    add("--report", type=Path, help="write the reference page to this file")
    add(
        "--directory",
        type=Path,
        help="keep logs and what was measured here; a run that finds some of it there measures the rest "
        "(default: a new directory)",
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _profiles(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = sorted(set(chosen) - set(PROFILES))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(PROFILES)}")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when every limit is kept, 1 when one is missed or nothing could be measured."""
    parsed = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    directory = parsed.directory or Path(tempfile.mkdtemp(prefix="capox-bench-"))
    directory.mkdir(parents=True, exist_ok=True)
    # Nothing of it is left running when it is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        results = _Bench(parsed, directory, console).measure()
    except ControlPlaneError as error:
        console.print(f"error: {error}", markup=False)
        return 1
    except AssertionError as error:
        console.print(f"error: {error}\nlogs are in {directory}", markup=False)
        raise
    (directory / "results.json").write_text(json.dumps(dataclasses.asdict(results), indent=1))
    show(results, console)
    if parsed.report is not None:
        parsed.report.write_text(
            page(results, Machine.here(is_leader_elected=parsed.lease, Cluster_API=CAPI_CORE.version))
        )
    missed = [verdict for verdict in judge(results) if not verdict.is_met]
    for verdict in missed:
        console.print(f"missed: {verdict.subject}: {verdict.what}", markup=False)
    console.print(f"logs and results are in {directory}", markup=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
