"""The command line: `python -m hack.release --version v0.1.0 --image registry/name:v0.1.0`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hack.release.assemble import IMAGE_IN_CONFIG, ReleaseError, assemble, find_kubectl

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the release together that the arguments describe.

    Args:
        arguments: those of the process when absent.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hack.release", description="Put together what clusterctl installs."
    )
    parser.add_argument("--version", required=True, help="such as v0.1.0; its series must be in config/metadata.yaml")
    name = IMAGE_IN_CONFIG.partition(":")[0]
    parser.add_argument("--image", help=f"the manager's image, with its registry (default: {name}:VERSION)")
    parser.add_argument("--output", type=Path, default=Path("build/release"), help="where to (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        release = assemble(
            options.output,
            version=options.version,
            image=options.image or f"{name}:{options.version}",
            kubectl=find_kubectl(),
        )
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    print(f"{release.directory}")
    for path in sorted(release.directory.iterdir()):
        print(f"  {path.name}")
    print(f"Install it: clusterctl init --infrastructure oxide:{release.version} --config {release.configuration}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
