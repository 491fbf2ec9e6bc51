"""The `docker` command as this package uses it: one local engine, nothing secret among the words of a command.

What is secret goes through standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

# What the client may look at; tokens that are in the environment are none of its business.
_VARIABLES = frozenset({"DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "HOME", "PATH", "XDG_RUNTIME_DIR"})
_LOCAL_SCHEME = "unix://"
_CHUNK_BYTES = 65_536
_LINE_BYTES = 1024 * 1024


class DockerError(Exception):
    """Docker did not do what it was asked to; the message says what and, in Docker's words, why."""


class NoSuchThingError(DockerError):
    """Docker knows no such container, volume or image."""


class Docker:
    """One engine.

    Args:
        environment: the variables by which `docker` finds it.
        program: the client.
    """

    def __init__(self, environment: Mapping[str, str], program: str = "docker") -> None:
        self._environment = {name: value for name, value in environment.items() if name in _VARIABLES}
        self._program = program

    async def require_local(self) -> None:
        """Make sure that an engine answers and that it is one of this computer.

        Raises:
            DockerError: there is none, or it is elsewhere.
        """
        host = self._environment.get("DOCKER_HOST")
        if not host:
            host = await self.text("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
        if not host.startswith(_LOCAL_SCHEME):
            raise DockerError(
                f"docker speaks to {host}; guests need an engine of this computer, reached by {_LOCAL_SCHEME}/..."
            )
        await self.text("version", "--format", "{{.Server.Version}}")

    async def run(self, *words: str, stdin: bytes = b"") -> bytes:
        """Run a command of `docker` and give what it writes.

        Raises:
            DockerError: it failed.
        """
        process = await self.begin(*words)
        try:
            output, complaint = await process.communicate(stdin)
        except asyncio.CancelledError:
            await self.end(process)
            raise
        if process.returncode != 0:
            raise _error(words, complaint)
        return output

    async def text(self, *words: str, stdin: bytes = b"") -> str:
        """As `run`, for one text.

        Raises:
            DockerError: it failed.
        """
        return (await self.run(*words, stdin=stdin)).decode(errors="replace").strip()

    async def inspect(self, kind: str, name: str) -> Any:
        """All that Docker knows of a container, a volume or an image.

        Raises:
            NoSuchThingError: it does not know it.
            DockerError: it does not answer.
        """
        return json.loads(await self.run(kind, "inspect", name))[0]

    async def follow(self, *words: str) -> AsyncIterator[bytes]:
        """What a command of `docker` writes, as it comes; how the command ends is not told."""
        process = await self.begin(*words)
        assert process.stdout is not None
        try:
            while chunk := await process.stdout.read(_CHUNK_BYTES):
                yield chunk
        except BaseException:
            await self.end(process)
            raise
        await process.communicate()

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        """Begin a command of `docker` with pipes to all that it reads and writes; `end` is its end.

        Raises:
            DockerError: there is no such program.
        """
        try:
            return await asyncio.create_subprocess_exec(
                self._program,
                *words,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                # Ctrl-C is for the rack, which still has to take away what it made.
                start_new_session=True,
            )
        except OSError as error:
            raise DockerError(f"{self._program} cannot be run: {error.strerror}. Is Docker installed?") from None

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """Make an end of a command."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        # Read to the end, so that its pipes are closed too.
        await process.communicate()


def _error(words: tuple[str, ...], complaint: bytes) -> DockerError:
    lines = complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"]
    kind = NoSuchThingError if any("no such" in line.lower() for line in lines) else DockerError
    return kind(f"docker {' '.join(words[:2])}: {lines[-1]}")
