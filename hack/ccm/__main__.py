"""The command line: `python -m hack.ccm` makes package data and chart anew, `--check` fails when they are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hack.ccm.chart import DIRECTORY, chart_files
from hack.ccm.manifests import PACKAGE_DATA, package_data
from hack.controlplane.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "python -m hack.ccm"


def generated_files() -> dict[str, str]:
    """Everything that is made of config/ccm, by its path in the repository."""
    return {PACKAGE_DATA: package_data(), **chart_files()}


def stale_files(root: Path) -> list[str]:
    """The paths that are not what config/ccm says, or should not be there."""
    files = generated_files()
    stale = {path for path, text in files.items() if not (root / path).is_file() or (root / path).read_text() != text}
    there = {str(path.relative_to(root)) for path in (root / DIRECTORY).rglob("*") if path.is_file()}
    return sorted(stale | (there - files.keys()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator.

    Returns:
        The exit status: 0, or 1 when `--check` found stale files.
    """
    parser = argparse.ArgumentParser(prog=COMMAND, description="Make what is made of config/ccm.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is stale")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="root of the repository (default: %(default)s)")
    options = parser.parse_args(arguments)
    stale, files = stale_files(options.root), generated_files()
    if options.check:
        if stale:
            print(f"not what config/ccm says: {', '.join(stale)}\nrun `{COMMAND}` and commit", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        target = options.root / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path])
        else:
            target.unlink()
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
