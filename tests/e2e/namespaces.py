"""Network namespaces without names: made, entered, asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

REFUSED: Final = "refused"
SILENCE: Final = "silence"

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_ANSWER_SECONDS: Final = 2
_COMMAND_SECONDS: Final = 30
_CURL_REFUSED: Final = 7
_CURL_TIMED_OUT: Final = 28


class NamespaceError(Exception):
    """A namespace could not be made or furnished."""


@dataclass(frozen=True)
class Reply:
    """What came back to a request.

    Attributes:
        name: who answered; `REFUSED` when the way there or its end said no at once, `SILENCE` when nobody said
            anything.
        seen: the address as which the one who answered sees the one who asked.
    """

    name: str
    seen: str = ""


class Namespaces:
    """Namespaces that are there while the context lasts, and no longer than this process."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the process that keeps them."""
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.namespace_keeper"],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        """Let it end, and with it the namespaces."""
        assert self._keeper is not None
        self._keeper.communicate(timeout=_COMMAND_SECONDS)

    def make(self, *names: str) -> None:
        """Make namespaces, each with its loopback up."""
        for name in names:
            self._paths[name] = self._ask(op="make", namespace=name)["path"]
            self.ip(name, "link set lo up")

    def answer(self, name: str, port: int) -> None:
        """Have the namespace answer at a port, over TCP and UDP, with its name."""
        self._ask(op="answer", namespace=name, port=port)

    def relay(self, name: str, port: int) -> None:
        """Have a port of this computer's loopback be there on the namespace's, too."""
        self._ask(op="relay", namespace=name, port=port)

    def path(self, name: str) -> str:
        """The file that stands for a namespace."""
        return self._paths[name]

    def entry(self, name: str) -> list[str]:
        """What stands before a command that is to run inside."""
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "nsenter is there, or nothing would have been begun"
        return [nsenter, f"--net={self._paths[name]}"]

    def run(self, name: str, *words: str, stdin: str = "") -> str:
        """Run a command inside that has to succeed; returns what it says."""
        done = self._try(name, *words, stdin=stdin)
        if done.returncode != 0:
            raise NamespaceError(f"{name}: {' '.join(words)}: {done.stderr.strip()}\n{stdin}")
        return done.stdout

    def ip(self, name: str, *commands: str) -> None:
        """Run commands of `ip` inside; all of them have to succeed."""
        self.run(name, "ip", "-batch", "-", stdin="".join(f"{command}\n" for command in commands))

    def setting(self, name: str, setting: str, value: str) -> None:
        """Change a setting of the kernel inside."""
        self.run(name, "sh", "-c", f"echo {value} > /proc/sys/{setting.replace('.', '/')}")

    def fetch(self, name: str, address: str, port: int, *, source: str | None = None) -> Reply:
        """Who answers there over TCP.

        Args:
            name: where the question comes from.
            address: whom it goes to.
            port: and where there.
            source: the address that it comes from; absent, the one that the way there chooses.
        """
        words = ["curl", "--silent", "--fail", "--max-time", str(_ANSWER_SECONDS), "--noproxy", "*"]
        words += ["--interface", source] if source else []
        done = self._try(name, *words, f"http://{address}:{port}/")
        if done.returncode in {_CURL_REFUSED, _CURL_TIMED_OUT}:
            return Reply(REFUSED if done.returncode == _CURL_REFUSED else SILENCE)
        if done.returncode != 0:
            return Reply(f"curl's exit code {done.returncode}")
        return Reply(*done.stdout.split())

    def exchange(self, name: str, address: str, port: int) -> Reply:
        """Who answers there over UDP."""
        # Not bash's own `read`: it reads byte by byte, and the rest of a datagram is lost with its first read.
        script = f"exec 3<>/dev/udp/{address}/{port}; echo hello >&3; timeout {_ANSWER_SECONDS} head -n 1 <&3"
        done = self._try(name, "bash", "-c", script)
        return Reply(*done.stdout.split()) if done.stdout.strip() else Reply(SILENCE)

    def is_healthy(self, name: str, port: int) -> bool:
        """Whether a program inside says at its `/healthz` that it is well."""
        words = ("curl", "--silent", "--fail", "--max-time", str(_ANSWER_SECONDS), "--noproxy", "*")
        return self._try(name, *words, f"http://127.0.0.1:{port}/healthz").returncode == 0

    def _try(self, name: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.entry(name), *words],
            env={"PATH": os.environ["PATH"]},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_SECONDS,
        )

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write(json.dumps(command) + "\n")
        self._keeper.stdin.flush()
        line = self._keeper.stdout.readline()
        if not line:
            raise NamespaceError("the process that keeps the namespaces has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NamespaceError(f"{command}: {answer['error']}")
        return answer
