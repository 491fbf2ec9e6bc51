"""Whether the demo's instances can be machines that boot: an engine, node images, and the person's consent."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.progress import Reporter
from hack.docker.engine import DockerError, Engine
from hack.image.errors import ImageError
from hack.nodeimage import last_layer, register
from hack.nodeimage.build import Workshop
from hack.nodeimage.docker import Docker
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.register import RegisteredImage
from hack.nodeimage.releases import relinked, standard

__all__ = ["Machines", "NoMachinesError", "ask", "find"]

_ARCHITECTURE: Final = "x86_64"
NOTICE: Final = """\
There are no node images yet, so they are made now, once: what is on a machine is compiled, which takes a quarter of an
hour on two idle cores. Ctrl-C keeps what is done; `make demo GUESTS=none` goes without machines."""


NOTICE_AGAIN: Final = (
    "The engine lacks what the node images are made of. They are made again; what was compiled is kept."
)


class NoMachinesError(Exception):
    """Instances cannot be machines here. The message is one sentence: why, and what to do about it."""


@dataclass(frozen=True)
class Machines:
    """What the rack's instances are to be.

    Attributes:
        docker_host: the engine.
        images: node images, the first of which is booted.
        manager: the name of capox's own image on them, which cloud controller managers run.
        is_engine_ours: whether the engine was started for this demo.
    """

    docker_host: str
    images: tuple[RegisteredImage, ...]
    manager: str
    is_engine_ours: bool = False


def find(environ: Mapping[str, str], reporter: Reporter) -> Machines:
    """Find an engine and node images, starting and making what is missing.

    Raises:
        NoMachinesError: there are none to be had.
    """
    if platform.machine() != _ARCHITECTURE:
        raise NoMachinesError(
            f"node images are made for {_ARCHITECTURE}, and this computer is {platform.machine()}; use one that is"
        )
    engine = Engine(environ)
    was_running = engine.is_running
    try:
        host = engine.ensure(reporter)
    except DockerError as error:
        raise NoMachinesError(str(error)) from None
    is_ours = engine.is_running and not was_running
    try:
        images = _images(host, environ, reporter)
    except (ControlPlaneError, ImageError, NodeImageError) as error:
        if is_ours:
            engine.stop()
        raise NoMachinesError(f"node images cannot be made ({error}); `make node-image` shows it again") from None
    # The image itself says it: the note beside the images is that of whoever has refreshed them last.
    manager = Docker(host, environ).label(images[0].reference, last_layer.MANAGER_LABEL) or register.manager(environ)
    return Machines(host, tuple(images), manager, is_engine_ours=is_ours)


def ask(changes: str, reporter: Reporter) -> None:
    """Say what is going to be changed on this computer, and on a terminal ask whether it may be.

    Args:
        changes: in the rack's words.
        reporter: where they go.

    Raises:
        NoMachinesError: it may not.
    """
    reporter.say(changes)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        reporter.say("`make demo-down` puts it back; `make demo GUESTS=none` changes nothing")
    elif input("`make demo-down` puts it back. Go on? [Y/n] ").strip().lower() not in {"", "y", "yes"}:
        raise NoMachinesError("this computer was not to be changed")


def _images(host: str, environ: Mapping[str, str], reporter: Reporter) -> list[RegisteredImage]:
    """The node images, with capox as it is in this tree; made now where the engine lacks them."""
    is_first = not register.registered(environ)
    if not is_first:
        # It cannot where the image below the last layer is missing, as in another engine.
        with contextlib.suppress(NodeImageError):
            return last_layer.refreshed(host, environ, reporter)
    reporter.say(NOTICE if is_first else NOTICE_AGAIN)
    docker = Docker(host, environ)
    workshop = Workshop(docker, base=None, cache=register.directory(environ), environ=environ, reporter=reporter)
    made = workshop.make_from_modules([standard(), relinked()])
    described = [register.describe(built) for built in made]
    register.write(described, made[0].manager, environ)
    return described
