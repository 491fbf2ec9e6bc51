"""A program without some of what its main package imports.

Go registers plug-ins by imports for their effect alone, `import _ "path"`. A program stays whole without one of them,
and its module need not be there then. The main package is copied into a module of its own, which has the go.mod and
go.sum of the tools module, and those lines are left out.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hack.controlplane.errors import BuildError

if TYPE_CHECKING:
    from hack.controlplane.programs import Program


@dataclass(frozen=True)
class Main:
    """A main package as `go build` is told of it.

    Attributes:
        directory: where `go` is run.
        package: its import path, or `.`.
    """

    directory: Path
    package: str


def trimmed_main(program: Program, sources: Path, tools_module: Path, target: Path) -> Main:
    """Write the main package without the imports that a program leaves out.

    Args:
        program: which one.
        sources: directory of its module.
        tools_module: directory of the tools module that pins it.
        target: directory to make.

    Raises:
        BuildError: an import that is to be left out is not there; the pinned version has changed.
    """
    target.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(tools_module / name, target / name)
    package = sources / program.package.removeprefix(program.module).lstrip("/")
    missing = set(program.left_out)
    for path in sorted(package.glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        text = path.read_text()
        for left_out in program.left_out:
            text, count = re.subn(rf'^\s*_ "{re.escape(left_out)}"\n', "", text, flags=re.MULTILINE)
            if count:
                missing.discard(left_out)
        (target / path.name).write_text(text)
    if missing:
        raise BuildError(
            f"{program.name} {program.version} does not import {', '.join(sorted(missing))}, which is to be left out; "
            "change hack/controlplane/programs.py with its version"
        )
    return Main(target, ".")
