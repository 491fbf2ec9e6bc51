"""A shell in a container that is kept open: a `docker exec` for each script would take longer than the script."""

from __future__ import annotations

import asyncio
import contextlib

from capox.rack.guests.docker_cli import Docker, DockerError

_ENDED = "capox-ended"
_COMPLAINT = "/tmp/complaint"  # noqa: S108 -- of the container, where nobody else is
# Of a script, its last command and what that said.
_COMPLAINT_LINES = 2


class Shell:
    """Runs scripts in a container, one at a time.

    Args:
        docker: the engine.
        container: the container's name.
    """

    def __init__(self, docker: Docker, container: str) -> None:
        self._docker = docker
        self._container = container
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, script: str) -> str:
        """Run a script, which ends at the first command that fails, and give what it writes.

        Raises:
            DockerError: a command failed, or the container is gone.
        """
        async with self._lock:
            try:
                return await self._run(script)
            except asyncio.CancelledError:
                # What is still to come would be taken for the answer to the next script.
                await self._end()
                raise

    async def close(self) -> None:
        """Let go of the container."""
        async with self._lock:
            await self._end()

    async def _run(self, script: str) -> str:
        wrapped = f"/bin/sh -eux 2>{_COMPLAINT} <<'CAPOX-SCRIPT'\n{script}\nCAPOX-SCRIPT\necho {_ENDED} $?\n"
        output, code = await self._exchange(wrapped)
        if code != "0":
            complaint, _ = await self._exchange(f"cat {_COMPLAINT}\necho {_ENDED} $?\n")
            lines = complaint.strip().splitlines() or ["it said nothing"]
            raise DockerError(f"in container {self._container}: {' / '.join(lines[-_COMPLAINT_LINES:])}")
        return output.strip()

    async def _exchange(self, text: str) -> tuple[str, str]:
        """Give the shell a text; returns what it writes until its mark, and what stands behind that."""
        if self._process is None or self._process.returncode is not None:
            self._process = await self._docker.begin("exec", "--interactive", self._container, "/bin/sh")
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(text.encode())
            await process.stdin.drain()
        lines: list[str] = []
        while line := (await process.stdout.readline()).decode(errors="replace"):
            if line.startswith(f"{_ENDED} "):
                return "".join(lines), line.split()[1]
            lines.append(line)
        await self._end()
        raise DockerError(f"container {self._container} of the rack's networks is gone")

    async def _end(self) -> None:
        if self._process is not None:
            await self._docker.end(self._process)
            self._process = None
