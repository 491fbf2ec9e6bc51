"""The demo, from top to bottom: what it needs, what it starts, and that it is left running."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from hack.controlplane.errors import ControlPlaneError, StartError
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.progress import Reporter, reporter_for
from hack.controlplane.state import NamedControlPlane
from hack.demo import cluster, departure, machines, provider, question, show
from hack.demo.departure import DepartureError
from hack.demo.down import has_provider, settle, take_down
from hack.demo.machines import Machines, NoMachinesError
from hack.demo.management import ExistingCluster, Management, OwnCluster, chosen_kubeconfig
from hack.demo.memory import Memory, recall, remember
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
    # Before anything is taken down: who has mistyped KUBECONFIG keeps the demo that is up.
    chosen = chosen_kubeconfig(environ, named)
    if chosen is not None:
        _judge(chosen, named, environ, reporter)
    if take_down(named, environ, reporter):
        reporter.say("Replaced the demo that was up")
    management = _management(chosen, named, environ, reporter)
    try:
        found = _machines(named, environ, choice, reporter)
        try:
            _start(management, reporter)
            code = _show(management, named, environ, reporter, found=found, choice=choice)
            management.detach()
        except BaseException:
            # As long as provider and rack run they can take away what they have made.
            _leave(management, named, reporter)
            raise
        finally:
            management.stop()
    except BaseException:
        settle(named, environ)
        raise
    return code


def _judge(chosen: str, named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter) -> None:
    """See that a cluster is one for the demo, and on a terminal ask whether it may be changed.

    Raises:
        ControlPlaneError: it is not, or may not.
    """
    with tempfile.TemporaryDirectory(prefix="capox-demo-") as directory:
        management = ExistingCluster(chosen, Path(directory), environ, reporter)
        management.judge()
        # What a demo has put there goes before the next one comes, which looks again.
        if not recall(named).is_installed:
            departure.require_room(management, management.server)
    reporter.say(
        f"KUBECONFIG={chosen} names the management cluster {management.server}. It gets the provider's kinds, rights "
        f"and policies, and the namespaces {provider.NAMESPACE} and {cluster.NAMESPACE}"
    )
    if not question.may("`make demo-down` takes them away."):
        raise ControlPlaneError(
            f"Nothing was changed in {management.server}. Without KUBECONFIG the demo has a control plane of its own"
        )


def _show(
    management: Management,
    named: NamedControlPlane,
    environ: Mapping[str, str],
    reporter: Reporter,
    *,
    found: Machines | None,
    choice: str,
) -> int:
    """Start and apply everything beside a management cluster that runs, and show what comes of it."""
    if isinstance(management, ExistingCluster):
        departure.require_room(management, management.server)
        remember(named, replace(recall(named), is_installed=True))
    rack = DemoRack(management.processes, named.directory, environ)
    _start_rack(rack, found, choice, reporter)
    _set_up(management, rack, reporter)
    management.leave_behind(named)
    return show.show(management, rack, named, environ)


def _leave(management: Management, named: NamedControlPlane, reporter: Reporter) -> None:
    """Take away what was put into a cluster that was there before; what a second try needs runs on."""
    memory = recall(named)
    if not isinstance(management, ExistingCluster) or not memory.is_installed:
        return
    try:
        departure.leave(management, has_provider=has_provider(named))
    except DepartureError as error:
        management.detach()
        reporter.say(str(error))
    except BaseException:
        management.detach()
        raise
    else:
        remember(named, replace(memory, is_installed=False))


def _management(
    chosen: str | None, named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter
) -> Management:
    """The cluster that KUBECONFIG names, or one of the demo's own."""
    if chosen is None:
        return OwnCluster(named, environ, reporter)
    return ExistingCluster(chosen, named.directory, environ, reporter)


def _machines(named: NamedControlPlane, environ: Mapping[str, str], choice: str, reporter: Reporter) -> Machines | None:
    """What runs in the rack's instances: machines where they can be had and nobody minds; None for nothing.

    Raises:
        ControlPlaneError: machines were asked for, and there are none to be had.
    """
    if choice == "none":
        return None
    try:
        host, is_ours = machines.start_engine(environ, reporter)
        if is_ours:
            remember(named, Memory(docker_host=host, is_engine_ours=True))
        named.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = machines.find(host, environ, reporter)
        machines.ask(changes_of_this_computer(found, named.directory, environ), reporter)
        # Not before: what bears the rack's name in somebody's engine is the demo's from here on only.
        remember(named, Memory(docker_host=host, is_engine_ours=is_ours))
    except NoMachinesError as error:
        settle(named, environ)
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
    words = ("--project", PROJECT, f"tcp/{API_PORT}", f"tcp/{SERVICE_PORT}")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hack.firewall", *words],
            env={"OXIDE_HOST": rack.url, "OXIDE_TOKEN": rack.token, "PATH": os.defpath, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_FIREWALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ControlPlaneError(f"The rules of the firewall were not made within {_FIREWALL_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise ControlPlaneError(f"The rules of the firewall could not be made: {done.stderr.strip()}")
    return done.stdout.strip()
