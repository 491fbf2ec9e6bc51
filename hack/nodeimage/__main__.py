"""The command line: `python -m hack.nodeimage build | refresh | list`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

import yaml

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.progress import reporter_for
from hack.docker.engine import DockerError, Engine
from hack.image.errors import ImageError
from hack.nodeimage import last_layer, register, releases
from hack.nodeimage.build import Workshop
from hack.nodeimage.docker import Docker
from hack.nodeimage.errors import NodeImageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MEBIBYTE: Final = 1 << 20
_SECOND: Final = {"none": (), "relinked": (releases.relinked,), "earlier": (releases.earlier,)}


def build(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make the images that are not there yet; quick when they are."""
    reporter = reporter_for()
    docker = Docker(Engine(environ).ensure(reporter), environ)
    workshop = Workshop(
        docker, base=options.base, cache=register.directory(environ), environ=environ, reporter=reporter
    )
    if options.packages:
        images = [workshop.make_from_packages(releases.packaged(options.kubernetes_version), options.packages)]
    else:
        images = workshop.make_from_modules([releases.standard(), *(make() for make in _SECOND[options.second])])
    described = [register.describe(built) for built in images]
    register.write(described, images[0].manager, environ)
    for built, image in zip(images, described, strict=True):
        state = "made" if built.is_new else "unchanged"
        print(f"{image.name:28} {state:10} {built.size_bytes // _MEBIBYTE:5} MiB  {image.id}  {image.reference}")
        print(f"  {image.description}")
    print(f"In each of them, for the provider's --ccm-image: {images[0].manager}")
    return 0


def show(_: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print what a rack's configuration needs to offer the images. The exit code is 3 when there is none."""
    images = register.registered(environ)
    if not images:
        print("No node image has been made. `make node-image` makes them.", file=sys.stderr)
        return 3
    print(yaml.safe_dump({"images": [image.rack_entry() for image in images]}, sort_keys=False, width=200), end="")
    print(f"# They hold, for the provider's --ccm-image: {register.manager(environ)}")
    return 0


def refresh(_: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Put capox as it is in this tree into the images that are there; quick, and nothing is compiled."""
    reporter = reporter_for()
    for image in last_layer.refreshed(Engine(environ).ensure(reporter), environ, reporter):
        print(f"{image.name:28} {image.id}  {image.reference}")
    return show(_, environ) if not register.registered(environ) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.nodeimage", description="Images that rack instances boot.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("build", help="make the images that are not there yet", description=build.__doc__)
    making.set_defaults(function=build)
    making.add_argument("--base", metavar="IMAGE", help="an image of Debian 12 (default: made by debootstrap)")
    making.add_argument(
        "--second",
        choices=sorted(_SECOND),
        default="relinked",
        help="a second image, for upgrades: the same code under the version of a next patch; a release of the minor "
        "version before, which takes as long to compile as the first one; or none (default: %(default)s)",
    )
    making.add_argument(
        "--packages",
        metavar="URL",
        help="build nothing: take Kubernetes from this Debian repository of its own packages, and the container images "
        "from their registry; one image of --kubernetes-version",
    )
    making.add_argument(
        "--kubernetes-version",
        metavar="VERSION",
        default=releases.standard().version,
        help="with --packages (default: %(default)s)",
    )
    refreshing = commands.add_parser(
        "refresh", help="put capox of this tree into the images that are there", description=refresh.__doc__
    )
    refreshing.set_defaults(function=refresh)
    listing = commands.add_parser("list", help="print them for a rack's configuration", description=show.__doc__)
    listing.set_defaults(function=show)
    return parser


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one command.

    Args:
        arguments: the command line without the program; None: that of this process.
        environ: environment variables.

    Returns:
        The exit code: 0; 1 after an error that has been printed; 130 after Ctrl-C; `list`, `refresh`: 3 when there is
        none.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.function(options, environ)
    except (ControlPlaneError, DockerError, ImageError, NodeImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. What was finished is kept; run the same command to go on.", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
