"""The few things that are asked of Docker, through its command line."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.nodeimage.errors import NodeImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO

    from hack.controlplane.progress import Stage

_TAIL_LINES: Final = 25
_TICK_SECONDS: Final = 1.0
_STAGE_AGE: Final = "168h"


class Docker:
    """A Docker engine.

    Args:
        host: its DOCKER_HOST.
        environ: environment variables for the command line.
    """

    def __init__(self, host: str, environ: Mapping[str, str]) -> None:
        # The older builder: it is in every engine, the newer one is a plug-in of the command line.
        self._environ = {**environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"}

    def label(self, reference: str, name: str) -> str | None:
        """A label of an image; None when there is no such image or label."""
        answer = self._ask("image", "inspect", "--format", f'{{{{ index .Config.Labels "{name}" }}}}', reference)
        return answer or None

    def image_id(self, reference: str) -> str | None:
        """`sha256:...` of an image; None when it is not there."""
        return self._ask("image", "inspect", "--format", "{{ .Id }}", reference) or None

    def size_bytes(self, reference: str) -> int:
        """How large an image is.

        Raises:
            NodeImageError: it is not there.
        """
        return int(self._run("image", "inspect", "--format", "{{ .Size }}", reference))

    def build(self, arguments: list[str], log: Path, stage: Stage) -> None:
        """`docker build`.

        Args:
            arguments: without `build` itself.
            log: takes all that it says.
            stage: is shown the step that runs.

        Raises:
            NodeImageError: it failed; the message has the end of what it said.
        """
        # With the host's network: an engine without a bridge has no other, and packages have to be fetched.
        command = ["docker", "build", "--network", "host", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=self._environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_TICK_SECONDS)
                        break
                    steps = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("Step ")]
                    stage.update(steps[-1] if steps else "sending files")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if process.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise NodeImageError(
                f"docker build failed (exit {process.returncode}). All of it is in {log}; its end:\n{tail}"
            )

    def import_tree(self, directory: Path, reference: str) -> None:
        """Make an image of a root file system in a directory.

        Raises:
            NodeImageError: it failed.
        """
        with subprocess.Popen(["tar", "-C", str(directory), "-c", "."], stdout=subprocess.PIPE) as tar:
            self._run("import", "-", reference, stdin=tar.stdout)
        if tar.returncode != 0:
            raise NodeImageError(f"tar of {directory} failed (exit {tar.returncode})")

    def export(self, reference: str, path: str, target: Path) -> None:
        """Write a directory of an image as a tar, with paths relative to it.

        Raises:
            NodeImageError: it failed.
        """
        container = self._run("create", reference, "/nothing")
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
                try:
                    self._run("cp", f"{container}:{path}/.", "-", stdout=file)
                    Path(file.name).rename(target)
                finally:
                    Path(file.name).unlink(missing_ok=True)
        finally:
            self._run("rm", "--force", "--volumes", container)

    def remove_image(self, identity: str) -> None:
        """Remove an image that no container and no tag needs any more; one that is needed stays."""
        self._ask("image", "rm", identity)

    def references(self, pattern: str) -> list[str]:
        """The images whose name and tag fit a pattern, the newest first."""
        arguments = ("--format", "{{ .Repository }}:{{ .Tag }}", "--filter", f"reference={pattern}")
        return self._ask("images", *arguments).split()

    def name_too(self, reference: str, other: str) -> None:
        """Give an image another name as well.

        Raises:
            NodeImageError: it is not there.
        """
        self._run("tag", reference, other)

    def remove_old_stages(self, label: str) -> None:
        """Remove what earlier builds have left of a stage; what is younger than a week may still save a build work."""
        self._ask("image", "prune", "--force", "--filter", f"label={label}", "--filter", f"until={_STAGE_AGE}")

    def _ask(self, *arguments: str) -> str:
        """The answer of a command, empty when it failed."""
        with self._started(arguments, subprocess.PIPE, None) as process:
            output, _ = process.communicate()
        return output.decode().strip() if process.returncode == 0 else ""

    def _run(self, *arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | int = subprocess.PIPE) -> str:
        with self._started(arguments, stdout, stdin) as process:
            output, complaint = process.communicate()
        if process.returncode != 0:
            raise NodeImageError(f"docker {' '.join(arguments)} failed: {complaint.decode(errors='replace').strip()}")
        return output.decode().strip() if output else ""

    @contextlib.contextmanager
    def _started(
        self, arguments: tuple[str, ...], stdout: IO[bytes] | int, stdin: IO[bytes] | None
    ) -> Iterator[subprocess.Popen[bytes]]:
        try:
            process = subprocess.Popen(
                ["docker", *arguments],
                env=self._environ,
                stdin=stdin if stdin is not None else subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
            )
        except FileNotFoundError:
            raise NodeImageError("the docker command is missing; install Docker's command line") from None
        with process:
            yield process
