"""A `docker` command for tests: it keeps images as files, and notes what it is asked.

`build` makes an image of its arguments and its context, which it keeps; labels become files. A file
`fail-build` makes it fail with its content.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_SCRIPT = """#!/bin/sh
here={directory}
echo "$*" >> $here/calls
name() {{ echo "$here/images/$(echo "$1" | tr :/ __)"; }}
case "$1 $2" in
"image inspect")
  image=$(name "$5"); [ -d "$image" ] || exit 1
  case $4 in
  *Labels*) label=$(echo "$4" | cut -d '"' -f 2); cat "$image/label-$label" 2>/dev/null || echo ;;
  *Size*) echo 3000000000 ;;
  *Id*) cat "$image/id" ;;
  esac ;;
"image rm") rm -rf "$(name "$3")" ;;
"image prune") : ;;
tag*) other=$(name "$3"); rm -rf "$other"; cp -r "$(name "$2")" "$other" ;;
images*) pattern=${{5#reference=}}; for image in $(ls -dt $(name "$pattern")); do cat "$image/name"; done 2>/dev/null ;;
build*)
  if [ -e $here/fail-build ]; then echo "Step 1/1 : FROM x"; cat $here/fail-build; exit 7; fi
  shift
  rm -rf $here/labels; mkdir $here/labels
  while [ $# -gt 1 ]; do
    case $1 in --tag) tag=$2 ;; --label) echo "${{2#*=}}" > "$here/labels/label-${{2%%=*}}" ;; esac
    shift
  done
  image=$(name "$tag"); mkdir -p "$image"; cp $here/labels/* "$image" 2>/dev/null
  rm -rf "$image/context"; cp -r "$1" "$image/context"
  echo "$tag" > "$image/name"
  echo "sha256:$(cat $here/labels/* 2>/dev/null | cksum)" > "$image/id" ;;
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
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "images").mkdir(parents=True)
        command = directory / "docker"
        command.write_text(_SCRIPT.format(directory=directory))
        command.chmod(0o755)
        self.environ = {"PATH": f"{directory}:/usr/bin:/bin", "HOME": str(directory)}

    def has(self, reference: str, identity: str) -> None:
        """Have an image."""
        image = self._image(reference)
        image.mkdir(exist_ok=True)
        (image / "id").write_text(identity + "\n")

    def context(self, reference: str) -> Path:
        """What the build of an image was given."""
        return self._image(reference) / "context"

    def relabel(self, reference: str, name: str, value: str) -> None:
        """Have another value for a label of an image."""
        (self._image(reference) / f"label-{name}").write_text(f"{value}\n")

    def forget(self, reference: str) -> None:
        """Have an image no more."""
        shutil.rmtree(self._image(reference))

    def _image(self, reference: str) -> Path:
        return self._directory / "images" / reference.replace(":", "_").replace("/", "_")

    def fail(self, message: str) -> None:
        """Fail at `build` from now on."""
        (self._directory / "fail-build").write_text(message)

    def calls(self, command: str) -> list[str]:
        """What it was asked so far that begins with a word."""
        path = self._directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(command)]
