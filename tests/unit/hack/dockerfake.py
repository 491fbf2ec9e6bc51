"""A `docker` command for tests: it keeps images as files, and notes what it is asked.

`build` makes an image of its arguments and its context: the context is copied to `context`, labels become files. A file
`fail-build` makes it fail with its content.
"""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """#!/bin/sh
here={directory}
echo "$*" >> $here/calls
name() {{ echo "$here/images/$(echo "$1" | tr :/ __)"; }}
case "$1 $2" in
"image inspect")
  image=$(name "$5"); [ -d "$image" ] || exit 1
  case $4 in
  *Labels*) cat "$image/label" 2>/dev/null || echo ;;
  *Size*) echo 3000000000 ;;
  *Id*) cat "$image/id" ;;
  esac ;;
"image rm" | "image prune") : ;;
build*)
  if [ -e $here/fail-build ]; then echo "Step 1/1 : FROM x"; cat $here/fail-build; exit 7; fi
  shift
  while [ $# -gt 1 ]; do
    case $1 in --tag) tag=$2 ;; --label) label=${{2#*=}} ;; esac
    shift
  done
  rm -rf $here/context; cp -r "$1" $here/context
  image=$(name "$tag"); mkdir -p "$image"; echo "$label" > "$image/label"
  echo "sha256:$label" > "$image/id" ;;
create*) echo container ;;
cp*) echo a tar ;;
rm*) : ;;
*) echo "unknown: $*" >&2; exit 9 ;;
esac
"""


class FakeDocker:
    """The command in a directory of its own.

    Args:
        directory: an empty directory.

    Attributes:
        environ: environment variables in which this is the `docker` command.
        context: what the last build was given.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "images").mkdir(parents=True)
        command = directory / "docker"
        command.write_text(_SCRIPT.format(directory=directory))
        command.chmod(0o755)
        self.environ = {"PATH": f"{directory}:/usr/bin:/bin", "HOME": str(directory)}
        self.context = directory / "context"

    def has(self, reference: str, identity: str) -> None:
        """Have an image."""
        image = self._directory / "images" / reference.replace(":", "_").replace("/", "_")
        image.mkdir(exist_ok=True)
        (image / "id").write_text(identity + "\n")

    def fail(self, message: str) -> None:
        """Fail at `build` from now on."""
        (self._directory / "fail-build").write_text(message)

    def calls(self, command: str) -> list[str]:
        """What it was asked so far that begins with a word."""
        path = self._directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(command)]
