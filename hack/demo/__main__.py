"""`python -m hack.demo up | down`: the whole thing on this computer.

`up` starts a control plane with Cluster API, a simulated rack, and the provider; applies a cluster; shows how it comes
to be; and leaves everything running, with the lines to go on with. It needs no terminal. `down` leaves nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import rich.console
import rich.live
import rich.table

from hack.controlplane import binaries, components
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.programs import KUBE_APISERVER
from hack.controlplane.progress import reporter_for
from hack.controlplane.record import command_line, record_of, write_commands
from hack.controlplane.state import NamedControlPlane
from hack.demo import cluster, provider
from hack.demo.rack import DemoRack

NAME: Final = "demo"
CONFIG: Final = Path(__file__).resolve().parents[2] / "config"
WAIT_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 1.0
INTERRUPTED: Final = 130


def up(environ: Mapping[str, str]) -> int:
    """Bring everything up and show it."""
    named = NamedControlPlane(NAME, environ)
    with named.alone():
        if named.remove():
            print("Replacing the demo that was up")
        reporter = reporter_for()
        found = binaries.resolve(environ, reporter=reporter)
        manifests = components.ensure(environ, found, reporter)
        plane = ManagementCluster(found, manifests, directory=named.directory, environ=environ)
        try:
            with reporter.stage("Starting the control plane", expected_seconds=12) as stage:
                for step in plane.start_in_steps():
                    stage.update(f"{step} is ready")
            rack = DemoRack(plane.processes, named.directory)
            with reporter.stage("Starting the rack", expected_seconds=3):
                rack.start()
            with reporter.stage("Installing and starting the provider", expected_seconds=6):
                provider.install(plane, CONFIG)
                provider.start(plane)
            with reporter.stage("Applying the cluster", expected_seconds=4):
                cluster.apply_cluster(plane, rack, KUBE_APISERVER.version)
            named.write_record(record_of(plane))
            write_commands(named, plane)
            is_there = _watch(lambda: cluster.rows(plane, rack))
            plane.detach()
        finally:
            plane.stop()
    if not is_there:
        print(f"The cluster did not come as far as it should within {WAIT_SECONDS:.0f} s. Everything is left running.")
        print(f"The logs say why: {named.logs}. `make demo-down` stops it all.")
        return 1
    _print_next_steps(named, rack)
    return 0


def down(environ: Mapping[str, str]) -> int:
    """Stop everything and remove what it left."""
    named = NamedControlPlane(NAME, environ)
    with named.alone():
        stopped = named.remove()
    print(f"Stopped {', '.join(stopped)}" if stopped else "Nothing was running")
    return 0


def _watch(look: Callable[[], list[tuple[str, str, str]]]) -> bool:
    """Show what there is until the infrastructure stands; on a terminal as a table, elsewhere a line a change."""
    deadline = time.monotonic() + WAIT_SECONDS
    console = rich.console.Console()
    shown: set[tuple[str, str, str]] = set()
    with rich.live.Live(console=console, refresh_per_second=4) if console.is_terminal else _NoLive() as live:
        while True:
            rows = look()
            if isinstance(live, rich.live.Live):
                live.update(_table(rows))
            for row in rows if not console.is_terminal else ():
                if row not in shown:
                    print("{:14} {:40} {}".format(*row), flush=True)
            shown.update(rows)
            if cluster.is_there(rows):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)


class _NoLive:
    """What stands in for the live table where there is no terminal."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


def _table(rows: list[tuple[str, str, str]]) -> rich.table.Table:
    table = rich.table.Table(title="The cluster comes to be", title_justify="left")
    for column in ("kind", "name", "state"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _print_next_steps(named: NamedControlPlane, rack: DemoRack) -> None:
    kubectl = f"kubectl -n {cluster.NAMESPACE}"
    print(f"""
Up, and left running: the control plane's instance runs and has the endpoint. The workers wait for a control plane that
answers; that needs an operating system in the instance, and there is none here.

  eval "$({command_line()} env --name {NAME})"    # kubectl and clusterctl for what follows
  {kubectl} get cluster,machines,oxidecluster,oxidemachines
  {kubectl} describe oxidecluster {cluster.CLUSTER_NAME}
  curl -H "Authorization: Bearer $(cat {shlex.quote(str(rack.token_file))})" '{rack.url}/v1/instances?project=demo'
  {kubectl} delete cluster {cluster.CLUSTER_NAME}    # half a minute; then the rack is empty again
  make demo-down                   # stop it all; then: unset KUBECONFIG; hash -r

  logs  {named.logs}""")


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m hack.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["up", "down"], nargs="?", default="up")
    options = parser.parse_args(arguments)
    try:
        return up(environ) if options.command == "up" else down(environ)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; what had been started was stopped", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
