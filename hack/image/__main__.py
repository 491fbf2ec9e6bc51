"""The command line: `python -m hack.image --base BASE.tar`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane.paths import REPOSITORY
from hack.controlplane.progress import reporter_for
from hack.image.archive import parse_reference
from hack.image.build import Built, Inputs, build_image
from hack.image.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME: Final = "cluster-api-provider-oxide-controller"
_MEBIBYTE: Final = 1 << 20
_WHICH_BASE: Final = """A base image is needed: Linux on amd64 with Python 3.11 or newer. One of

  --base BASE.tar   an image that was saved, or a root file system in a tar. With Docker:
                      docker pull --platform linux/amd64 python:3.12-slim
                      docker save -o base.tar python:3.12-slim
  --base-dir DIR    a root file system in a directory. On Debian and Ubuntu, as root:
                      debootstrap --variant=minbase --include=python3,ca-certificates bookworm DIR

With make: make image BASE=base.tar, or make image BASE_DIR=DIR"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.image", description="Make the manager's container image, as an archive to load or push."
    )
    parser.add_argument(
        "--base", type=Path, metavar="TAR", help="the base image: OCI layout, docker save, or root file system"
    )
    parser.add_argument(
        "--base-dir", type=Path, metavar="DIR", help="the base image: a root file system in a directory"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build") / f"{NAME}.tar", help="the archive (default: %(default)s)"
    )
    parser.add_argument("--tag", action="append", help=f"name and tag, may be repeated (default: {NAME}:dev)")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="take the wheels from here, download none")
    parser.add_argument("--own-wheel", type=Path, metavar="WHEEL", help="capox's wheel (default: built from this tree)")
    parser.add_argument(
        "--lock",
        type=Path,
        default=REPOSITORY / "requirements" / "runtime.lock",
        help="which packages (default: runtime.lock)",
    )
    return parser


def epoch_seconds(environ: Mapping[str, str]) -> int:
    """The time that the image is dated to: SOURCE_DATE_EPOCH, else that of the last commit, else 1970.

    Raises:
        ImageError: SOURCE_DATE_EPOCH is no number of seconds.
    """
    given = environ.get("SOURCE_DATE_EPOCH")
    if given:
        if not given.isdigit():
            raise ImageError(f"SOURCE_DATE_EPOCH={given}: a whole number of seconds since 1970 is expected")
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return 0
    return int(answer.stdout) if answer.returncode == 0 and answer.stdout.strip().isdigit() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the image that the arguments describe.

    Args:
        arguments: those of the process when absent.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    if (options.base is None) == (options.base_dir is None):
        print(_WHICH_BASE, file=sys.stderr)
        return 2
    try:
        inputs = Inputs(
            archive=options.base,
            directory=options.base_dir,
            lock=options.lock,
            wheels=options.wheels,
            own_wheel=options.own_wheel,
            repository=REPOSITORY,
            references=[parse_reference(tag) for tag in options.tag or [f"{NAME}:dev"]],
            epoch_seconds=epoch_seconds(os.environ),
        )
        built = build_image(inputs, options.output, reporter_for())
    except (ImageError, OSError) as error:
        print(f"make image: {error}", file=sys.stderr)
        return 1
    _report(inputs, options.output, built)
    return 0


def _report(inputs: Inputs, output: Path, built: Built) -> None:
    python = built.interpreter
    if not python.has_certificates:
        print("Note: the base image has no public certificate authorities; racks need `oxide-ca` in their Secret.")
    parts = {
        f"base, Python {python.version[0]}.{python.version[1]}": sum(layer.size_bytes for layer in built.parent_layers),
        "packages": built.dependencies.size_bytes,
        "capox": built.own.size_bytes,
    }
    sizes = ", ".join(f"{name} {size / _MEBIBYTE:.1f}" for name, size in parts.items())
    print(f"{output}: {built.written.size_bytes / _MEBIBYTE:.1f} MiB ({sizes})")
    print(f"digest {built.written.manifest_digest}")
    for reference in inputs.references:
        print(f"  {reference}")
    print(f"Load it:  docker load -i {output}")
    print(f"          ctr -n k8s.io images import {output}")
    print(f"          kind load image-archive {output}")
    print(f"Push it:  skopeo copy oci-archive:{output} docker://REGISTRY/NAME:TAG")


if __name__ == "__main__":
    sys.exit(main())
