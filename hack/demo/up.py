"""The demo, from top to bottom: what it needs, what it starts, and that it is left running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from hack.controlplane.errors import ControlPlaneError, StartError
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.progress import Reporter, reporter_for
from hack.controlplane.state import NamedControlPlane
from hack.demo import cluster, departure, machines, provider, show
from hack.demo.down import take_down
from hack.demo.machines import Machines, NoMachinesError
from hack.demo.management import ExistingCluster, Management, OwnCluster, chosen_kubeconfig
from hack.demo.memory import Memory, remember
from hack.demo.rack import PROJECT, DemoRack, changes_of_this_computer
from hack.demo.workload import SERVICE_PORT

__all__ = ["bring_up"]

API_PORT: Final = 6443
_FIREWALL_SECONDS: Final = 60.0


def bring_up(named: NamedControlPlane, environ: Mapping[str, str], choice: str) -> int:
    """Bring everything up, show it, and leave it running.

    Args:
        named: the demo's name and directory.
        environ: environment variables.
        choice: what runs in the rack's instances: `auto`, `docker` or `none`.

    Returns:
        The exit code.

    Raises:
        ControlPlaneError: something is missing or does not start; the message says what to do.
    """
    reporter = reporter_for()
    if take_down(named, environ, reporter):
        reporter.say("Replaced the demo that was up")
    management = _management(named, environ, reporter)
    found = _machines(named, environ, choice, reporter)
    remember(named, _memory(found, is_installed=False))
    try:
        _start(management, reporter)
        if isinstance(management, ExistingCluster):
            departure.require_room(management, management.server)
            remember(named, _memory(found, is_installed=True))
        rack = DemoRack(management.processes, named.directory, environ)
        try:
            _start_rack(rack, found, choice, reporter)
            _set_up(management, rack, reporter)
            management.leave_behind(named)
            code = show.show(management, rack, named, environ)
        except BaseException:
            # As long as provider and rack run they can take away what they have made.
            if isinstance(management, ExistingCluster):
                departure.leave(management, has_provider=True)
            raise
        management.detach()
    finally:
        management.stop()
    return code


def _management(named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter) -> Management:
    """The cluster that KUBECONFIG names, or one of the demo's own."""
    chosen = chosen_kubeconfig(environ, named)
    if chosen is None:
        return OwnCluster(named, environ, reporter)
    reporter.say(f"KUBECONFIG={chosen} names the management cluster; without it the demo has one of its own")
    return ExistingCluster(chosen, named, environ, reporter)


def _machines(named: NamedControlPlane, environ: Mapping[str, str], choice: str, reporter: Reporter) -> Machines | None:
    """What runs in the rack's instances: machines where they can be had and nobody minds; None for nothing.

    Raises:
        ControlPlaneError: machines were asked for, and there are none to be had.
    """
    if choice == "none":
        return None
    try:
        found = machines.find(environ, reporter)
        named.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        machines.ask(changes_of_this_computer(found, named.directory, environ), reporter)
    except NoMachinesError as error:
        _go_without(error, choice, reporter)
        return None
    return found


def _go_without(error: NoMachinesError, choice: str, reporter: Reporter) -> None:
    """Say that the instances stay empty, or give up where they must not.

    Raises:
        ControlPlaneError: machines were asked for.
    """
    if choice == "docker":
        raise ControlPlaneError(f"The rack's instances cannot be machines: {error}")
    reporter.say(f"The rack's instances stay empty, so there will be no Nodes: {error}")


def _memory(found: Machines | None, *, is_installed: bool) -> Memory:
    if found is None:
        return Memory(is_installed)
    return Memory(is_installed, found.docker_host, found.is_engine_ours)


def _start(management: Management, reporter: Reporter) -> None:
    with reporter.stage("Starting the management cluster", expected_seconds=30) as stage:
        for step in management.start_in_steps():
            stage.update(f"{step} is ready")


def _start_rack(rack: DemoRack, found: Machines | None, choice: str, reporter: Reporter) -> None:
    """Start the rack, with machines if it can have them."""
    if found is not None:
        try:
            with reporter.stage("Starting the rack with machines", expected_seconds=5):
                rack.start(found)
        except StartError as error:
            rack.stop()
            # What it has said last is why it ended.
            last = str(error).splitlines()[-1].removeprefix("capox rack: ")
            _go_without(NoMachinesError(last), choice, reporter)
        else:
            return
    with reporter.stage("Starting the rack", expected_seconds=3):
        rack.start(None)


def _set_up(management: Management, rack: DemoRack, reporter: Reporter) -> None:
    """Everything that a user of the provider does: install it, open the firewall, apply a cluster."""
    with reporter.stage("Installing and starting the provider", expected_seconds=6):
        provider.install(management, departure.CONFIG)
        # It runs from no image, so it is told which one cloud controller managers run.
        arguments = [f"--ccm-image={rack.machines.manager}"] if rack.machines is not None else []
        provider.start(management, *arguments)
    if rack.machines is not None:
        reporter.say(_open_firewall(rack))
    with reporter.stage("Applying the cluster", expected_seconds=4):
        cluster.apply_cluster(management, rack)


def _open_firewall(rack: DemoRack) -> str:
    """Let the API server and the Service in, by the command that the README gives.

    Raises:
        ControlPlaneError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "hack.firewall", "--project", PROJECT, f"tcp/{API_PORT}", f"tcp/{SERVICE_PORT}"],
        env={"OXIDE_HOST": rack.url, "OXIDE_TOKEN": rack.token, "PATH": os.defpath, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_FIREWALL_SECONDS,
    )
    if done.returncode != 0:
        raise ControlPlaneError(f"The rules of the firewall could not be made: {done.stderr.strip()}")
    return done.stdout.strip()
