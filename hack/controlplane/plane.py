"""etcd, kube-apiserver and kube-controller-manager on loopback, with a kubeconfig.

Start-up is short of processors, not of time to wait: everything that can run beside something else does.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.paths import lease_directory
from hack.controlplane.pki import LOOPBACK, ControlPlanePKI, kubeconfig, write_private
from hack.controlplane.processes import TIER_APISERVER, TIER_STORAGE, Processes
from hack.controlplane.programs import CLUSTERCTL, ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL
from hack.controlplane.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from hack.controlplane.binaries import Binaries

SERVICE_RANGE: Final = "10.0.0.0/24"
_ETCD_SECONDS: Final = 60.0
_APISERVER_SECONDS: Final = 180.0
_CONTROLLERS_SECONDS: Final = 180.0
"""Bounds on start-up. Idle, the three take 0.3, 4 and 4 s; a loaded machine takes many times that."""

_TOKEN_SECONDS: Final = 365 * 24 * 3600

KUBECTL_SECONDS: Final = 60.0
"""Bound on one kubectl or clusterctl call unless the caller sets another."""


class CommandError(ControlPlaneError):
    """kubectl or clusterctl ended with an error; the message is what it said."""


class ControlPlane:
    """One control plane.

    Use it as a context manager, or call `start` and `stop`. Every process ends with this Python process, however that
    ends, unless `detach` was called.

    Args:
        binaries: the programs (`binaries.resolve`).
        directory: where its files go; made when it is missing. None: a temporary directory that `stop` removes.
        environ: environment variables; HOME, PATH and XDG_CACHE_HOME are read.
        with_controllers: whether kube-controller-manager runs. Without it there are no default ServiceAccounts, no
            garbage collection, and namespaces never finish deleting.
        apiserver_arguments: further arguments of kube-apiserver.
        controller_arguments: further arguments of kube-controller-manager.

    Attributes:
        directory: certificates, kubeconfigs, data and logs.
        phases: seconds that each phase of the start took, in order.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        directory: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        with_controllers: bool = True,
        apiserver_arguments: Sequence[str] = (),
        controller_arguments: Sequence[str] = (),
    ) -> None:
        self.binaries = binaries
        self._is_temporary = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="capox-controlplane-")) if directory is None else directory.absolute()
        )
        self.environ = environ
        self._with_controllers = with_controllers
        self._apiserver_arguments = apiserver_arguments
        self._controller_arguments = controller_arguments
        self.phases: dict[str, float] = {}
        self._began = time.monotonic()
        self._processes: Processes | None = None
        self._client: RestClient | None = None
        self._pki: ControlPlanePKI | None = None
        self._server = ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # What callers use.

    @property
    def server(self) -> str:
        """URL of the apiserver."""
        return self._server

    @property
    def port(self) -> int:
        """Port of the apiserver."""
        return int(self._server.rpartition(":")[2])

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator (group system:masters)."""
        return self.pki.directory / "admin.kubeconfig"

    @property
    def logs(self) -> Path:
        """Directory of one log file a program."""
        return self.directory / "logs"

    @property
    def client(self) -> RestClient:
        """Requests to the apiserver as the administrator; there once the apiserver has been started."""
        assert self._client is not None, "the control plane has not been started"
        return self._client

    @property
    def pki(self) -> ControlPlanePKI:
        """Keys and certificates; there once the control plane has been started."""
        assert self._pki is not None, "the control plane has not been started"
        return self._pki

    @property
    def processes(self) -> Processes:
        """The running programs; more can be started beside them and end with them."""
        assert self._processes is not None, "the control plane has not been started"
        return self._processes

    def service_account_kubeconfig(self, namespace: str, service_account: str) -> Path:
        """Write a kubeconfig that logs in as a ServiceAccount, which must exist.

        Returns:
            Its path; the file has mode 0600, its token is good for a year.
        """
        token = self.client.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_SECONDS},
            },
        )["status"]["token"]
        path = self.pki.directory / f"{namespace}.{service_account}.kubeconfig"
        authority = self.pki.authority.key_pair.certificate
        write_private(path, kubeconfig(self.server, authority, token=token, namespace=namespace))
        return path

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = KUBECTL_SECONDS) -> str:
        """Run kubectl as the administrator.

        Args:
            *arguments: as on the command line.
            stdin: standard input, for `-f -`.
            timeout_seconds: bound on the call.

        Returns:
            Its standard output.

        Raises:
            CommandError: it failed.
        """
        return self._command(self.binaries.path(KUBECTL), arguments, stdin, timeout_seconds)

    def clusterctl(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_seconds: float = KUBECTL_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run clusterctl as the administrator. Arguments and errors as with `kubectl`.

        Args:
            *arguments: as on the command line.
            stdin: standard input.
            timeout_seconds: bound on the call.
            variables: for the template that is filled in.
        """
        return self._command(self.binaries.path(CLUSTERCTL), arguments, stdin, timeout_seconds, variables)

    def command_environment(self) -> dict[str, str]:
        """Environment for commands that talk to this control plane; nothing in it of the user's own clusters."""
        return {
            "PATH": self.environ.get("PATH", ""),
            "HOME": str(self.directory / "home"),
            "KUBECONFIG": str(self.kubeconfig),
            # clusterctl would ask GitHub for its newest release.
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
        }

    def _command(
        self,
        program: Path,
        arguments: Sequence[str],
        stdin: str | None,
        timeout_seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        answer = subprocess.run(
            [program, *arguments],
            env={**self.command_environment(), **(variables or {})},
            cwd=self.directory,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        if answer.returncode != 0:
            raise CommandError(
                f"{program.name} {' '.join(arguments)} failed: {answer.stderr.strip() or answer.stdout.strip()}"
            )
        return answer.stdout

    # Life.

    def start(self) -> None:
        """Start and return when everything is ready.

        Raises:
            StartError: a program ended or was not ready in time; what had been started still runs until `stop`.
        """
        for _ in self.start_in_steps():
            pass

    def start_in_steps(self) -> Iterator[str]:
        """As `start`, but yields the name of what has become ready, so that a caller can do its own part meanwhile.

        Yields:
            `etcd`, `kube-apiserver`, then, unless there are no controllers, `kube-controller-manager`.
        """
        self._began = time.monotonic()
        for directory in (self.directory, self.logs, self.directory / "home"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._processes = Processes(self.directory, lease_directory(self.environ), self.logs)
        etcd_port, peer_port, api_port, controllers_port = self._processes.lease_ports(4)
        self._start_etcd(etcd_port, peer_port)
        self._server = f"https://{LOOPBACK}:{api_port}"
        self._pki = ControlPlanePKI(self.directory / "pki")
        self._pki.write_kubeconfigs(self._server)
        directory = self._pki.directory
        self._client = RestClient(
            self._server,
            authority=directory / "ca.crt",
            certificate=directory / "admin.crt",
            key=directory / "admin.key",
        )
        # kube-apiserver has a second of its own preparations before it looks for etcd.
        self._start_apiserver(etcd_port, api_port)
        self._processes.wait_until("etcd", lambda: answers(etcd_port, "/readyz"), within_seconds=_ETCD_SECONDS)
        self.note_phase("etcd")
        yield "etcd"
        self._processes.wait_until("kube-apiserver", self._client.is_ready, within_seconds=_APISERVER_SECONDS)
        self.note_phase("kube-apiserver")
        if self._with_controllers:
            self._start_controllers(controllers_port)
        yield "kube-apiserver"
        if self._with_controllers:
            # The account's existence shows that the controllers are at work, which their health endpoint does not.
            self._processes.wait_until(
                "kube-controller-manager",
                lambda: self.client.exists("/api/v1/namespaces/default/serviceaccounts/default"),
                within_seconds=_CONTROLLERS_SECONDS,
                what="making default ServiceAccounts",
            )
            self.note_phase("kube-controller-manager")
            yield "kube-controller-manager"

    def note_phase(self, name: str) -> None:
        """Record that a phase of the start is over, for `phases`."""
        self.phases[name] = round(time.monotonic() - self._began, 2)

    def stop(self) -> None:
        """End every process; remove the directory when it was temporary. Can be called more than once."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def detach(self) -> None:
        """Let the processes outlive this one; `processes.stop_left_running(directory)` ends them."""
        self.processes.detach()
        self._is_temporary = False

    def _start_etcd(self, port: int, peer_port: int) -> None:
        client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
        self.processes.start(
            "etcd",
            [
                self.binaries.path(ETCD),
                "--name=capox",
                f"--data-dir={self.directory / 'etcd'}",
                # The data is worth nothing after a crash of the computer.
                "--unsafe-no-fsync",
                "--log-level=warn",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=capox={peer}",
            ],
            tier=TIER_STORAGE,
        )

    def _start_apiserver(self, etcd_port: int, port: int) -> None:
        pki = self.pki.directory
        self.processes.start(
            "kube-apiserver",
            [
                self.binaries.path(KUBE_APISERVER),
                f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
                f"--bind-address={LOOPBACK}",
                f"--advertise-address={LOOPBACK}",
                f"--secure-port={port}",
                f"--tls-cert-file={pki / 'apiserver.crt'}",
                f"--tls-private-key-file={pki / 'apiserver.key'}",
                f"--client-ca-file={pki / 'ca.crt'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={pki / 'service-account.pub'}",
                f"--service-account-signing-key-file={pki / 'service-account.key'}",
                f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
                f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
                "--authorization-mode=Node,RBAC",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                # An apiserver does not write a loopback address into the Endpoints of its Service, and says so forever.
                "--endpoint-reconciler-type=none",
                "--allow-privileged=true",
                "--profiling=false",
                *self._apiserver_arguments,
            ],
            tier=TIER_APISERVER,
        )

    def _start_controllers(self, port: int) -> None:
        pki = self.pki.directory
        kubeconfig = pki / "controller-manager.kubeconfig"
        self.processes.start(
            "kube-controller-manager",
            [
                self.binaries.path(KUBE_CONTROLLER_MANAGER),
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={port}",
                f"--tls-cert-file={pki / 'controller-manager-serving.crt'}",
                f"--tls-private-key-file={pki / 'controller-manager-serving.key'}",
                f"--service-account-private-key-file={pki / 'service-account.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
                # Each controller fetches a token of its own before any of them starts; at the default 20 requests a
                # second that alone takes four seconds.
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                f"--cluster-signing-cert-file={pki / 'ca.crt'}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                "--profiling=false",
                *self._controller_arguments,
            ],
        )


def answers(port: int, path: str) -> bool:
    """Whether a plain HTTP endpoint on loopback answers with success.

    Args:
        port: its port.
        path: path of the health check.
    """
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=2)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
