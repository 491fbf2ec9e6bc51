"""The management cluster of the demo: a control plane of its own, or one that is there already.

Everything else of the demo sees only `Management`. A cluster that was there gets nothing but what `provider.install`
puts there and the demo's namespace, and both are taken away in the end.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from hack.controlplane import binaries, components
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.paths import lease_directory
from hack.controlplane.pki import kubeconfig, write_private
from hack.controlplane.plane import KUBECTL_SECONDS, CommandError
from hack.controlplane.processes import Processes
from hack.controlplane.programs import CLUSTERCTL, KUBECTL
from hack.controlplane.progress import Reporter
from hack.controlplane.record import record_of, write_commands, write_commands_of
from hack.controlplane.state import NamedControlPlane, Record

__all__ = ["Commands", "ExistingCluster", "Management", "OwnCluster", "Reader", "chosen_kubeconfig"]

CLUSTER_API: Final = "/apis/cluster.x-k8s.io/v1beta2"
COPY: Final = "management.kubeconfig"
_LIFETIME: Final = "8760h"


class Reader(Protocol):
    """Reads objects by their path."""

    def get(self, path: str) -> dict[str, Any]:
        """GET an object or a list."""


class Commands(Protocol):
    """Runs kubectl."""

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = KUBECTL_SECONDS) -> str:
        """Run kubectl as the administrator."""


class Management(Commands, Protocol):
    """What the demo needs of a management cluster."""

    @property
    def processes(self) -> Processes:
        """The programs beside it, which live as long as the demo."""

    @property
    def client(self) -> Reader:
        """Reads as the administrator."""

    def start_in_steps(self) -> Iterator[str]:
        """Make it ready; yields the name of each step that is done."""

    def clusterctl(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_seconds: float = KUBECTL_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run clusterctl as the administrator."""

    def service_account_kubeconfig(self, namespace: str, service_account: str) -> Path:
        """Write a kubeconfig that logs in as a ServiceAccount."""

    def leave_behind(self, named: NamedControlPlane) -> None:
        """Record where it is, and put its commands into a directory for PATH."""

    def detach(self) -> None:
        """Let the programs outlive this process."""

    def stop(self) -> None:
        """End the programs, unless they were let go of."""


class OwnCluster(ManagementCluster):
    """A control plane that comes and goes with the demo.

    Args:
        named: its name and directory.
        environ: environment variables.
        reporter: where the progress of building it goes.
    """

    def __init__(self, named: NamedControlPlane, environ: Mapping[str, str], reporter: Reporter) -> None:
        found = binaries.resolve(environ, reporter=reporter)
        manifests = components.ensure(environ, found, reporter)
        super().__init__(found, manifests, directory=named.directory, environ=environ)

    def leave_behind(self, named: NamedControlPlane) -> None:
        """Record where it is, and put its commands into a directory for PATH."""
        named.write_record(record_of(self))
        write_commands(named, self)


class ExistingCluster:
    """A cluster with Cluster API that somebody else has made.

    Args:
        chosen: KUBECONFIG as the person has set it.
        directory: for the demo's own files.
        environ: environment variables; commands get them, because logging in may take a program of the person's.
        reporter: where the progress of building kubectl and clusterctl goes.
    """

    def __init__(self, chosen: str, directory: Path, environ: Mapping[str, str], reporter: Reporter) -> None:
        self._programs = binaries.resolve(environ, programs=(KUBECTL, CLUSTERCTL), reporter=reporter)
        self._chosen = chosen
        self._directory = directory
        self._environ = dict(environ)
        self._processes: Processes | None = None
        self.server = ""

    @property
    def processes(self) -> Processes:
        """The programs beside it; there once it has been started."""
        assert self._processes is not None, "the demo's programs have no keeper yet"
        return self._processes

    @property
    def client(self) -> Reader:
        """Reads as the administrator."""
        return _ByKubectl(self)

    @property
    def kubeconfig(self) -> Path:
        """A copy of what of KUBECONFIG is about this one cluster, with mode 0600."""
        return self._directory / COPY

    def judge(self) -> None:
        """Copy the kubeconfig, and see that the cluster is one for the demo; nothing is changed there.

        Raises:
            ControlPlaneError: it is not; the message says what to do.
        """
        self._copy_kubeconfig()
        self._require_cluster_api()

    def start_in_steps(self) -> Iterator[str]:
        """Copy the kubeconfig, and see that the cluster is one for the demo.

        Yields:
            `kubeconfig`, then `Cluster API`.

        Raises:
            ControlPlaneError: it is not; the message says what to do.
        """
        logs = self._directory / "logs"
        for directory in (self._directory, logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._copy_kubeconfig()
        yield "kubeconfig"
        self._require_cluster_api()
        self._processes = Processes(self._directory, lease_directory(self._environ), logs)
        yield "Cluster API"

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = KUBECTL_SECONDS) -> str:
        """Run kubectl as the administrator.

        Raises:
            CommandError: it failed.
        """
        return self._command(self._programs.path(KUBECTL), arguments, stdin, timeout_seconds, {})

    def clusterctl(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_seconds: float = KUBECTL_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run clusterctl as the administrator.

        Raises:
            CommandError: it failed.
        """
        return self._command(self._programs.path(CLUSTERCTL), arguments, stdin, timeout_seconds, variables or {})

    def service_account_kubeconfig(self, namespace: str, service_account: str) -> Path:
        """Write a kubeconfig that logs in as a ServiceAccount; it has mode 0600.

        Raises:
            ControlPlaneError: the cluster's kubeconfig has no certificate authority to go on with.
        """
        (cluster,) = json.loads(self.kubeconfig.read_text())["clusters"]
        authority = cluster["cluster"].get("certificate-authority-data")
        if authority is None:
            raise ControlPlaneError(
                f"KUBECONFIG={self._chosen}: the cluster {self.server} has no certificate-authority-data, which the "
                "provider's own kubeconfig needs; use a cluster that has, or unset KUBECONFIG"
            )
        words = ("create", "token", service_account, "--namespace", namespace, f"--duration={_LIFETIME}")
        token = self.kubectl(*words).strip()
        path = self._directory / f"{namespace}.{service_account}.kubeconfig"
        write_private(path, kubeconfig(self.server, base64.b64decode(authority), token=token, namespace=namespace))
        return path

    def leave_behind(self, named: NamedControlPlane) -> None:
        """Record where it is, and put commands into a directory for PATH."""
        version = self.client.get("/version")["gitVersion"]
        named.write_record(Record(self.server, str(self.kubeconfig), version, None, {"ready": 0.0}))
        write_commands_of(named, self._programs, None)

    def detach(self) -> None:
        """Let the programs outlive this process."""
        self.processes.detach()

    def stop(self) -> None:
        """End the programs, unless they were let go of."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def _copy_kubeconfig(self) -> None:
        words = ("config", "view", "--raw", "--minify", "--flatten", "--output", "json")
        environment = self._environ | {"KUBECONFIG": self._chosen}
        try:
            text = _run(self._programs.path(KUBECTL), words, environment, "", KUBECTL_SECONDS)
            (cluster,) = json.loads(text)["clusters"]
        except (CommandError, TypeError, ValueError) as error:
            raise ControlPlaneError(
                f"KUBECONFIG={self._chosen} names no cluster with a current context ({error}). Correct it, or unset "
                "KUBECONFIG: then the demo starts a control plane of its own"
            ) from None
        self.server = cluster["cluster"]["server"]
        write_private(self.kubeconfig, text.encode())

    def _require_cluster_api(self) -> None:
        otherwise = "or unset KUBECONFIG: then the demo starts a control plane of its own"
        try:
            self.client.get(CLUSTER_API)
        except CommandError as error:
            raise ControlPlaneError(
                f"{self.server} (KUBECONFIG={self._chosen}) does not serve {CLUSTER_API} ({error}). Install Cluster "
                f"API 1.13 or newer there (clusterctl init), {otherwise}"
            ) from None

    def _command(
        self,
        program: Path,
        arguments: Sequence[str],
        stdin: str | None,
        timeout_seconds: float,
        variables: Mapping[str, str],
    ) -> str:
        environment = self._environ | {"KUBECONFIG": str(self.kubeconfig), "CLUSTERCTL_DISABLE_VERSIONCHECK": "true"}
        return _run(program, arguments, environment | dict(variables), stdin or "", timeout_seconds)


class _ByKubectl:
    """Reads by kubectl, which knows every way to log in."""

    def __init__(self, cluster: ExistingCluster) -> None:
        self._cluster = cluster

    def get(self, path: str) -> dict[str, Any]:
        """GET an object or a list."""
        found: dict[str, Any] = json.loads(self._cluster.kubectl("get", "--raw", path))
        return found


def chosen_kubeconfig(environ: Mapping[str, str], named: NamedControlPlane) -> str | None:
    """The cluster that a person wants the demo to use; None for one of the demo's own.

    Whoever has looked at a demo has its kubeconfig in KUBECONFIG, and wants the next one like the one before.
    """
    value = environ.get("KUBECONFIG", "")
    paths = [Path(path).absolute() for path in value.split(os.pathsep) if path]
    is_own = any(path.is_relative_to(named.directory.absolute()) for path in paths)
    return value if paths and not is_own else None


def _run(
    program: Path, arguments: Sequence[str], environ: Mapping[str, str], stdin: str, timeout_seconds: float
) -> str:
    try:
        answer = subprocess.run(
            [program, *arguments],
            env=dict(environ),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{program.name} {arguments[0]}: no answer within {timeout_seconds:.0f} s") from None
    if answer.returncode != 0:
        raise CommandError(
            f"{program.name} {' '.join(arguments)} failed: {answer.stderr.strip() or answer.stdout.strip()}"
        )
    return answer.stdout
