"""Whether the demo's instances can be machines that boot: an engine, node images, and the person's consent."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.progress import Reporter
from hack.demo import question
from hack.docker.engine import DockerError, Engine, answering_host
from hack.image.errors import ImageError
from hack.nodeimage import debian, last_layer, register
from hack.nodeimage.build import Workshop
from hack.nodeimage.docker import Docker
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.register import RegisteredImage
from hack.nodeimage.releases import relinked, standard

__all__ = ["Machines", "NoMachinesError", "ask", "find", "start_engine"]

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
    """

    docker_host: str
    images: tuple[RegisteredImage, ...]
    manager: str


def start_engine(environ: Mapping[str, str], reporter: Reporter) -> tuple[str, bool]:
    """Find an engine, or start one of ours; what has to be installed for that is said before, and on a terminal asked.

    Returns:
        Its DOCKER_HOST, and whether it was started now.

    Raises:
        NoMachinesError: there is none to be had.
    """
    if platform.machine() != _ARCHITECTURE:
        raise NoMachinesError(
            f"node images are made for {_ARCHITECTURE}, and this computer is {platform.machine()}; use one that is"
        )
    engine = Engine(environ)
    was_running = engine.is_running
    found = answering_host(environ) or answering_host({**environ, "DOCKER_HOST": engine.host})
    if found is not None:
        return found, False
    if os.geteuid() == 0 and not all(shutil.which(program) for program in ("docker", "dockerd")):
        _ask_to_install("No Docker engine answers, so the distribution's Docker (package docker.io)", reporter)
    try:
        host = engine.ensure(reporter)
    except DockerError as error:
        raise NoMachinesError(str(error)) from None
    except BaseException:
        if not was_running:
            engine.stop()
        raise
    return host, engine.is_running and not was_running


def find(host: str, environ: Mapping[str, str], reporter: Reporter) -> Machines:
    """Find node images in an engine, and make what is missing.

    Args:
        host: the engine.
        environ: environment variables.
        reporter: where progress goes.

    Raises:
        NoMachinesError: there are none to be had.
    """
    try:
        images = _images(host, environ, reporter)
    except (ControlPlaneError, ImageError, NodeImageError) as error:
        raise NoMachinesError(f"node images cannot be made ({error}); `make node-image` shows it again") from None
    # The image itself says it: the note beside the images is that of whoever has refreshed them last.
    manager = Docker(host, environ).label(images[0].reference, last_layer.MANAGER_LABEL) or register.manager(environ)
    return Machines(host, tuple(images), manager)


def ask(changes: str, reporter: Reporter) -> None:
    """Say what is going to be changed on this computer, and on a terminal ask whether it may be.

    Args:
        changes: in the rack's words.
        reporter: where they go.

    Raises:
        NoMachinesError: it may not.
    """
    reporter.say(changes)
    if not question.is_person_there():
        reporter.say("`make demo-down` puts it back; `make demo GUESTS=none` changes nothing")
    if not question.may("`make demo-down` puts it back."):
        raise NoMachinesError("this computer was not to be changed")


def _ask_to_install(what: str, reporter: Reporter) -> None:
    """Say what is going to be installed, and on a terminal ask whether it may be.

    Raises:
        NoMachinesError: it may not.
    """
    reporter.say(
        f"{what} is going to be installed with apt-get. It stays installed; `make demo GUESTS=none` needs none"
    )
    if not question.may("`make demo-down` does not take it away."):
        raise NoMachinesError("nothing was to be installed on this computer")


def _images(host: str, environ: Mapping[str, str], reporter: Reporter) -> list[RegisteredImage]:
    """The node images, with capox as it is in this tree; made now where the engine lacks them.

    Raises:
        NoMachinesError: something would have to be installed, and was not to be.
    """
    is_first = not register.registered(environ)
    if not is_first:
        # It cannot where the image below the last layer is missing, as in another engine.
        with contextlib.suppress(NodeImageError):
            return last_layer.refreshed(host, environ, reporter)
    docker = Docker(host, environ)
    is_debootstrap_missing = debian.is_debootstrap_missing(docker, environ)
    reporter.say(NOTICE if is_first else NOTICE_AGAIN)
    if is_debootstrap_missing:
        _ask_to_install("Debian's debootstrap, which makes the floor of the images,", reporter)
    workshop = Workshop(docker, base=None, cache=register.directory(environ), environ=environ, reporter=reporter)
    made = workshop.make_from_modules([standard(), relinked()])
    described = [register.describe(built) for built in made]
    register.write(described, made[0].manager, environ)
    return described
