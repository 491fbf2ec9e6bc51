"""The command line: `python -m hack.controlplane build | up | down | status | env`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from hack.controlplane import binaries, components, state
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.plane import ControlPlane
from hack.controlplane.programs import MACHINE_PROGRAMS, PROGRAMS, Program
from hack.controlplane.progress import reporter_for
from hack.controlplane.record import command_line, record_of, write_commands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BY_NAME: Final = {program.name: program for program in (*PROGRAMS, *MACHINE_PROGRAMS)}


def build(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make programs ready: those that are named, else all of a control plane's with their manifests."""
    reporter = reporter_for()
    wanted: list[Program] = arguments.programs
    found = binaries.resolve(environ, programs=wanted or PROGRAMS, reporter=reporter)
    if not wanted:
        components.ensure(environ, found, reporter)
    for binary in found:
        print(f"{binary.program.name:28} {binary.program.version:9} {binary.source:18} {binary.path}")
    return 0


def up(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Bring a control plane up and leave it running."""
    named = state.NamedControlPlane(arguments.name, environ)
    with named.alone():
        if named.running() and named.record():
            print(f"The control plane {named.name!r} is up already.")
            _print_next_steps(named)
            return 0
        # What an interrupted command or a restart of the computer left is of no use.
        named.remove()
        reporter = reporter_for()
        found = binaries.resolve(environ, reporter=reporter)
        plane: ControlPlane
        if arguments.cluster_api:
            manifests = components.ensure(environ, found, reporter)
            plane = ManagementCluster(found, manifests, directory=named.directory, environ=environ)
        else:
            plane = ControlPlane(found, directory=named.directory, environ=environ)
        try:
            with reporter.stage(f"Starting the control plane {named.name!r}", expected_seconds=10) as stage:
                for step in plane.start_in_steps():
                    stage.update(f"{step} is ready")
            named.write_record(record_of(plane))
            write_commands(named, plane)
            plane.detach()
        finally:
            plane.stop()
    _print_next_steps(named)
    return 0


def _print_next_steps(named: state.NamedControlPlane) -> None:
    record = named.record()
    assert record is not None
    option = "" if named.name == state.DEFAULT_NAME else f" --name {named.name}"
    command = command_line()
    what = f"Kubernetes {record.kubernetes}" + (f", Cluster API {record.cluster_api}" if record.cluster_api else "")
    print(f"""
{what} on {record.server}, up in {max(record.phases.values()):.0f} s.

  kubeconfig   {record.kubeconfig}
  logs         {named.logs}

Next:
  eval "$({command} env{option})"    # KUBECONFIG, and kubectl and clusterctl on PATH
  kubectl apply -k crds        # the kinds of this provider
  clusterctl describe cluster NAME
  {command} down{option}       # stop it; its objects are gone then""")


def down(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Stop a control plane and remove what it left."""
    chosen = state.all_named(environ) if arguments.all else [state.NamedControlPlane(arguments.name, environ)]
    for named in chosen:
        with named.alone():
            stopped = named.remove()
        print(f"{named.name}: stopped {', '.join(stopped)}" if stopped else f"{named.name}: nothing was running")
    return 0


def status(_: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Say which control planes there are. The exit code is 3 when none is up."""
    is_any_up = False
    for named in state.all_named(environ):
        running, record = named.running(), named.record()
        if not running or record is None:
            print(f"{named.name}: down, but not by `down`; its logs are in {named.logs}; `up` and `down` tidy up")
            continue
        is_any_up = True
        print(f"{named.name}: up, {record.server}, {sum(process.memory_mb for process in running)} MB")
        print(f"  kubeconfig  {record.kubeconfig}\n  logs        {named.logs}")
        for process in running:
            print(f"  {process.name:28} pid {process.pid:<8} {process.memory_mb:5} MB")
    if not is_any_up:
        print("No control plane is up. `python -m hack.controlplane up` starts one.")
    return 0 if is_any_up else 3


def env(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print shell commands that point kubectl and clusterctl to a control plane."""
    named = state.NamedControlPlane(arguments.name, environ)
    record = named.record()
    if record is None or not named.running():
        raise ControlPlaneError(f"The control plane {named.name!r} is not up. Run `python -m hack.controlplane up`.")
    print(f"export KUBECONFIG={shlex.quote(record.kubeconfig)}")
    print(f'export PATH={shlex.quote(str(named.commands))}:"$PATH"')
    print("export CLUSTERCTL_DISABLE_VERSIONCHECK=true")
    return 0


def _program(name: str) -> Program:
    if name not in _BY_NAME:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(sorted(_BY_NAME))}")
    return _BY_NAME[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.controlplane", description="A real control plane on loopback."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, explanation: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=explanation, description=explanation)
        added.set_defaults(function=function)
        return added

    built = command("build", build, "Build what is not there yet (first time: a quarter of an hour on two cores).")
    # Not by `choices`, which Python 3.11 also looks for in the empty list when nothing is named.
    built.add_argument(
        "programs", nargs="*", type=_program, metavar="PROGRAM", help="only this one (kube-proxy, kubelet, ...)"
    )
    for name, function, explanation in (
        ("up", up, "Start a control plane with Cluster API and leave it running."),
        ("down", down, "Stop a control plane and remove its files."),
        ("env", env, "Print shell commands that set KUBECONFIG and PATH."),
    ):
        added = command(name, function, explanation)
        added.add_argument(
            "--name", default=state.DEFAULT_NAME, help="which one; several can be up (default: %(default)s)"
        )
        if name == "up":
            added.add_argument(
                "--no-cluster-api",
                dest="cluster_api",
                action="store_false",
                help="Kubernetes only: starts faster, half the memory",
            )
        if name == "down":
            added.add_argument("--all", action="store_true", help="every control plane of this user")
    command("status", status, "List the control planes, their processes and memory.")
    return parser


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one command.

    Args:
        arguments: the command line without the program; None: that of this process.
        environ: environment variables.

    Returns:
        The exit code: 0; 1 after an error that has been printed; 130 after Ctrl-C; `status`: 3 when nothing is up.
    """
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.function(parsed, environ)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. What was finished is kept; run the same command to go on.", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
