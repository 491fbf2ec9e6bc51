"""A `go` command for tests: it answers `env`, lists two packages, and "builds" a shell script that says what it is.

What it is asked is noted in `calls`, one line a call. Files beside it change what it does: `env.json` is its answer to
`go env`, `fail-list` and `fail-build` make that command fail with their content.
"""

from __future__ import annotations

import json
from pathlib import Path

_SCRIPT = """#!/bin/sh
here={directory}
echo "$* GOFLAGS=$GOFLAGS CGO_ENABLED=$CGO_ENABLED" >> $here/calls
if [ -e $here/fail-$1 ]; then cat $here/fail-$1 >&2; exit 1; fi
case "$1" in
env) cat $here/env.json ;;
list) echo "go: downloading example.org/a v1.0.0" >&2; printf 'example.org/a\\nexample.org/b\\n' ;;
build)
  while [ "$1" != -o ]; do shift; done
  echo example.org/a >&2
  printf '#!/bin/sh\\necho built %s\\n' "$3" > "$2"
  chmod +x "$2" ;;
esac
"""


class FakeGo:
    """The command in a directory of its own, and a home for caches.

    Args:
        directory: an empty directory.
        version: what `go env GOVERSION` says.

    Attributes:
        environ: environment variables in which this is the only `go`.
        cache: our cache directory in that environment.
    """

    def __init__(self, directory: Path, version: str = "go1.26.8") -> None:
        self._directory = directory / "bin"
        self._directory.mkdir(parents=True)
        command = self._directory / "go"
        command.write_text(_SCRIPT.format(directory=self._directory))
        command.chmod(0o755)
        home = directory / "home"
        home.mkdir()
        self.environ = {"PATH": f"{self._directory}:/usr/bin:/bin", "HOME": str(home), "GOFLAGS": "-mod=vendor"}
        self.cache = home / ".cache" / "capox"
        self._home = home
        self.is_version(version)

    def is_version(self, version: str) -> None:
        """Be another version from now on."""
        values = {
            "GOVERSION": version,
            "GOOS": "linux",
            "GOARCH": "amd64",
            "GOAMD64": "v1",
            "GOARM64": "",
            "GOEXPERIMENT": "",
            "GOCACHE": str(self._home / "go-build"),
            "GOMODCACHE": str(self._home / "go-mod"),
        }
        (self._directory / "env.json").write_text(json.dumps(values))

    def fail(self, command: str, message: str) -> None:
        """Fail at `list`, `build` or `env` from now on."""
        (self._directory / f"fail-{command}").write_text(message)

    def install(self, name: str, script: str) -> None:
        """Put another command on PATH."""
        path = self._directory / name
        path.write_text(script)
        path.chmod(0o755)

    def calls(self, command: str) -> list[str]:
        """Calls of a subcommand so far."""
        path = self._directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(f"{command} ")]
