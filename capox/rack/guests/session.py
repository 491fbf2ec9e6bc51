"""Guests from the beginning of a rack to its end: what has to be there before the first, and what is put back after."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import structlog

from capox.rack import config
from capox.rack.guests import container, host
from capox.rack.guests.docker import DockerGuests, remove_all
from capox.rack.guests.docker_cli import Docker, DockerError, NoSuchThingError
from capox.rack.guests.fabric import Fabric, networks_of
from capox.rack.guests.host_record import RecordError
from capox.rack.guests.wiring import Network
from capox.rack.state import Rack

_logger = structlog.get_logger()


class GuestError(Exception):
    """The rack cannot have guests as it was asked to; the message says why and what to do."""


def pools_of(chosen: config.Config) -> list[Network]:
    """The networks of a configuration's external addresses."""
    ranges = [(part.first, part.last) for pool in chosen.ip_pools if pool.type == "unicast" for part in pool.ranges]
    return networks_of(ranges)


def questions(chosen: config.Config) -> list[str]:
    """What guests as configured change on this computer, a line each."""
    labels = container.Labels(rack=chosen.guests.name)
    return host.questions(labels.device, chosen.guests.uplink, pools_of(chosen), os.cpu_count() or 1)


@contextlib.asynccontextmanager
async def open_guests(
    rack: Rack, chosen: config.Config, variables: Mapping[str, str], shared_directory: Path
) -> AsyncIterator[str | None]:
    """Let a rack have guests within the context, as its configuration says.

    Args:
        rack: the rack.
        chosen: its configuration.
        variables: the environment, for `docker`.
        shared_directory: where all racks of this computer note what its settings were.

    Yields:
        The address of this computer that guests reach too; None without guests.

    Raises:
        GuestError: it cannot be.
    """
    if chosen.guests.backend == "none":
        yield None
        return
    labels = container.Labels(rack=chosen.guests.name)
    docker = Docker(variables)
    settings = host.HostSettings(shared_directory)
    with _alone(chosen.guests.name):
        try:
            await docker.require_local()
            # Left by a rack of the same name that was killed.
            await remove_all(docker, labels)
            image = await _check_images(docker, chosen)
            fabric = Fabric(docker, labels, image, chosen.guests.uplink, pools_of(chosen))
            # What comes later goes first, and whatever goes wrong with one the others are done all the same.
            async with contextlib.AsyncExitStack() as after:
                after.push_async_callback(remove_all, docker, labels)
                await fabric.open()
                after.push_async_callback(fabric.close)
                guests = DockerGuests(rack, docker, labels, fabric)
                after.push_async_callback(settings.restore, fabric.host_shell)
                await settings.apply(fabric.host_shell, os.cpu_count() or 1)
                after.push_async_callback(guests.close)
                rack.guests = guests
                yield str(fabric.host_address)
        except (DockerError, RecordError) as error:
            raise GuestError(f"guests: {error}") from None


async def _check_images(docker: Docker, chosen: config.Config) -> str:
    """Make sure that every guest image is here.

    Returns:
        The one whose programs make the rack's networks.

    Raises:
        GuestError: there is none at all, or one is not here.
    """
    wanted = [chosen.guests.image, *(image.guest for silo in chosen.silos for image in silo.images)]
    images = [image for image in dict.fromkeys(wanted) if image is not None]
    if not images:
        raise GuestError("guests: no image names a guest image; give one with --guest-image, or `guest` of an image")
    for image in images:
        try:
            await docker.inspect("image", image)
        except NoSuchThingError:
            raise GuestError(f"guests: image {image} is not on this computer; build or pull it first") from None
    return images[0]


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Keep off a second rack with guests of one name on this computer, whoever runs it: it would remove the first's.

    The name is held as an abstract socket, which nobody can leave behind.

    Raises:
        GuestError: the other one runs.
    """
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0capox-rack-guests-{name}")
        except OSError:
            raise GuestError(f"guests: another rack has guests under the name {name}; give this one another") from None
        yield
