"""Find a Docker engine on this computer, or install Debian's and start one that is ours alone.

Our own engine touches nothing of the host's: its data, its socket and its log are in the user's cache, it makes no
bridge and no firewall rule. It needs root, and it is stopped by its recorded process, never by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane import keeper
from hack.controlplane.paths import cache_directory
from hack.controlplane.processes import is_running
from hack.distribution import PackageError, install_packages
from hack.docker.runtime import has_capability, write_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hack.controlplane.progress import Reporter

__all__ = ["DockerError", "Engine", "answering_host", "docker_answer", "install"]

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_LOG_TAIL_LINES: Final = 15
_SCHEME: Final = "unix://"


class DockerError(Exception):
    """There is no Docker engine and none could be started; the message says why and what to do."""


class Engine:
    """The engine of our own, running or not.

    Args:
        environ: environment variables; HOME and XDG_CACHE_HOME are read.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self.directory = cache_directory(environ) / "docker"
        self.log = self.directory / "dockerd.log"
        self._record = self.directory / "dockerd.json"
        self._socket = self.directory / "docker.sock"

    @property
    def host(self) -> str:
        """What DOCKER_HOST has to be to reach it."""
        return f"{_SCHEME}{self._socket}"

    @property
    def is_running(self) -> bool:
        """Whether the process that was recorded lives."""
        return self._identity() is not None

    def ensure(self, reporter: Reporter) -> str:
        """Give an engine that answers: the one that is there, else our own, installed and started as needed.

        Returns:
            Its DOCKER_HOST.

        Raises:
            DockerError: there is none, and none can be had.
        """
        found = answering_host(self._environ) or answering_host(self._environ | {"DOCKER_HOST": self.host})
        if found is not None:
            return found
        if os.geteuid() != 0:
            raise DockerError(
                "No Docker engine answers, and starting one needs root. Start Docker (and be in its group), or name "
                "one by DOCKER_HOST=unix:///path/to/docker.sock"
            )
        if shutil.which("dockerd") is None or shutil.which("docker") is None:
            with reporter.stage("Installing Docker from the distribution's packages", expected_seconds=60):
                install()
            # On an ordinary computer the package has started an engine.
            found = answering_host(self._environ)
            if found is not None:
                return found
        with reporter.stage("Starting a Docker engine of our own", expected_seconds=5):
            self.start()
        return self.host

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            DockerError: it did not come up; the message has the end of its log.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # What a killed one has left would keep the new one from starting.
        (self.directory / "dockerd.pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command(),
                env={"PATH": self._environ.get("PATH", os.defpath), "HOME": self._environ.get("HOME", "/")},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._record.write_text(json.dumps(keeper.identify(process.pid)) + "\n")
        deadline = time.monotonic() + READY_SECONDS
        while answering_host({**self._environ, "DOCKER_HOST": self.host}) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                how = "ended" if process.poll() is not None else f"did not answer within {READY_SECONDS:.0f} s"
                self.stop()
                raise DockerError(f"dockerd {how}. End of {self.log}:\n{self._log_tail()}")
            time.sleep(_POLL_SECONDS)
        # It outlives this process on purpose, which Popen would complain of.
        process.returncode = 0

    def stop(self) -> bool:
        """Stop it; its images and containers stay in the cache.

        Returns:
            Whether it was running.
        """
        identity = self._identity()
        if identity is not None:
            for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(identity["pid"], number)
                deadline = time.monotonic() + seconds
                while is_running(identity) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
        self._record.unlink(missing_ok=True)
        return identity is not None

    def _command(self) -> list[str]:
        command = ["dockerd", "--data-root", str(self.directory / "data"), "--exec-root", str(self.directory / "exec")]
        command += ["--pidfile", str(self.directory / "dockerd.pid"), "--host", self.host]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        command += ["--userland-proxy=false"]
        if not has_capability(Path("/proc/self/status").read_text()):
            runc = shutil.which("runc", path=f"{self._environ.get('PATH', os.defpath)}:/usr/sbin:/usr/bin")
            if runc is None:
                raise DockerError("runc is needed and was not found. On Debian and Ubuntu: apt-get install runc")
            runtime = self.directory / "runtime"
            write_runtime(runtime, Path(runc))
            command += ["--add-runtime", f"lesser={runtime}", "--default-runtime", "lesser"]
        return command

    def _identity(self) -> dict[str, int] | None:
        try:
            identity: dict[str, int] = json.loads(self._record.read_text())
        except FileNotFoundError:
            return None
        return identity if is_running(identity) else None

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])


def answering_host(environ: Mapping[str, str]) -> str | None:
    """The DOCKER_HOST of the engine that `docker` finds in an environment; None when none answers, or not from here.

    An engine on another computer does not count: the rack's networks have to reach this one.
    """
    host = environ.get("DOCKER_HOST") or docker_answer(
        environ, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"
    )
    if not host.startswith(_SCHEME):
        return None
    return (
        host if docker_answer({**environ, "DOCKER_HOST": host}, "version", "--format", "{{.Server.Version}}") else None
    )


def docker_answer(environ: Mapping[str, str], *arguments: str, timeout_seconds: float = ANSWER_SECONDS) -> str:
    """The answer of a command of `docker`, empty when it failed, as when no engine is there.

    Args:
        environ: environment variables; DOCKER_HOST is in them where another engine than docker's own choice is meant.
        *arguments: the command.
        timeout_seconds: bound on the call.
    """
    try:
        done = subprocess.run(
            ["docker", *arguments],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def install() -> None:
    """Install the distribution's engine and client.

    Raises:
        DockerError: it cannot be installed.
    """
    try:
        install_packages("docker.io")
        if shutil.which("docker") is None:
            # Newer releases of Debian keep the client in a package of its own.
            install_packages("docker-cli")
    except PackageError as error:
        raise DockerError(str(error)) from error
