"""Guests as Docker containers.

A boot disk with an image that names a guest image becomes a container as soon as an instance starts from it: the
container's file system is the disk. It is stopped and started with the instance, outlives it as disks do, and goes when
the disk is deleted. An instance without such a disk runs as if nothing were on its disk.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import json
import os
import weakref
from collections.abc import Sequence
from typing import Any, Final

import structlog

from capox.rack import instance_states, records, storage
from capox.rack.guests import container, seed, wiring
from capox.rack.guests.acts import Acts
from capox.rack.guests.docker_cli import Docker, DockerError, NoSuchThingError
from capox.rack.guests.fabric import Fabric
from capox.rack.guests.interface import Then
from capox.rack.state import Rack

# What a guest writes changes most is on a volume, because overlay file systems do not lie on one another.
_VARIABLE: Final = "/var"
_DATA: Final = "/mnt"
_LOST_SECONDS: Final = 1.0
_CONTAINERS: Final = ("container", "ls", "--all", "--quiet")

_logger = structlog.get_logger()


@dataclasses.dataclass
class _Machine:
    """The container of a boot disk.

    Attributes:
        disk: the disk's id.
        acts: what is being done with it.
        made: what the container was made as; None when there is none.
        committed: the image that holds the disk's content since it was given to another instance.
        ports: the NICs that are plugged.
        ending: whether its end, when it comes, was brought about here.
        watch: reads its console until its end.
    """

    disk: str
    acts: Acts
    made: container.Machine | None = None
    committed: str | None = None
    ports: Sequence[wiring.Port] = ()
    ending: bool = True
    watch: asyncio.Task[None] | None = None


class DockerGuests:
    """The backend.

    Args:
        rack: whose instances.
        docker: the engine.
        labels: of the rack.
        fabric: its networks, open.
    """

    def __init__(self, rack: Rack, docker: Docker, labels: container.Labels, fabric: Fabric) -> None:
        self._rack = rack
        self._docker = docker
        self._labels = labels
        self._fabric = fabric
        self._fabric_lock = asyncio.Lock()
        # By the id of the boot disk, and which of them an instance runs from.
        self._machines: dict[str, _Machine] = {}
        self._machine_of: dict[str, _Machine] = {}
        self._volumes: set[str] = set()
        self._doomed: set[str] = set()
        # Whatever is still at work is to be stopped in the end, also for disks that are gone.
        self._all_acts: weakref.WeakSet[Acts] = weakref.WeakSet()
        self._cpus = os.cpu_count() or 1

    def start(self, instance: records.Instance) -> None:
        """Make a container of its boot disk, or take the one that is there, and start it."""
        instance.console.restart()
        disk, image = self._boot_source(instance)
        if disk is None or image is None:
            reason = "no disk to boot from" if disk is None else f"no guest image for disk {disk.name}"
            instance.console.write(f"Nothing runs here: {reason}\r\n".encode())
            self._machine_of.pop(instance.id, None)
            return
        machine = self._machines.get(disk.id)
        if machine is None:
            machine = self._machines[disk.id] = _Machine(disk.id, self._acts(disk.id))
        self._machine_of[instance.id] = machine
        machine.acts.add(lambda: self._boot(machine, instance, image))

    def stop(self, instance: records.Instance) -> None:
        """End its container, at once."""
        machine = self._machine_of.get(instance.id)
        if machine is not None:
            machine.acts.add(lambda: self._power_off(machine))

    def reset(self, instance: records.Instance) -> None:
        """End its container and start it."""
        machine = self._machine_of.get(instance.id)
        if machine is not None and machine.made is not None:
            image = machine.made.image
            machine.acts.add(lambda: self._power_off(machine))
            machine.acts.add(lambda: self._boot(machine, instance, image))

    def kill(self, instance: records.Instance) -> None:
        """End its container as if from outside."""
        self.stop(instance)

    def delete(self, disk: records.Disk) -> None:
        """Remove its container and its volume."""
        machine = self._machines.pop(disk.id, None)
        if machine is not None:
            self._machine_of = {key: kept for key, kept in self._machine_of.items() if kept is not machine}
            machine.acts.add(lambda: self._remove(machine))
        elif (volume := self._volume(disk.id)) in self._volumes:
            acts = self._acts(disk.id)
            self._doomed.add(volume)
            acts.add(self._sweep)

    def console(self, instance: records.Instance, moment: datetime.datetime) -> None:
        """The guest writes to its console itself."""

    def when_settled(self, instance: records.Instance, moment: datetime.datetime, then: Then) -> None:
        """Wait for the acts of the instance's container."""
        del moment
        machine = self._machine_of.get(instance.id)
        if machine is None:
            then(self._rack.now())
        else:
            machine.acts.when_idle(lambda: then(self._rack.now()))

    async def addresses(self) -> None:
        """Bring the rack's networks to what it says.

        Raises:
            DockerError: it cannot be done.
        """
        async with self._fabric_lock:
            await self._fabric.apply(wiring.wire(self._rack))

    async def close(self) -> None:
        """Leave nothing of any guest."""
        for acts in list(self._all_acts):
            await acts.stop()
        watches = [machine.watch for machine in self._machines.values() if machine.watch is not None]
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await _remove(self._docker, (*_CONTAINERS, "--filter", "label=capox.instance"), self._labels)

    def _acts(self, disk: str) -> Acts:
        acts = Acts(lambda error: self._on_failure(disk, error))
        self._all_acts.add(acts)
        return acts

    def _boot_source(self, instance: records.Instance) -> tuple[records.Disk | None, str | None]:
        """The disk to boot from, and the guest image of the image that it was made from."""
        disks = storage.attached_disks(self._rack, instance)
        chosen = [disk for disk in disks if disk.id == instance.boot_disk] or [disk for disk in disks if disk.image]
        if not chosen:
            return None, None
        image = self._rack.images.by_id(chosen[0].image) if chosen[0].image is not None else None
        return chosen[0], None if image is None else image.guest

    async def _boot(self, machine: _Machine, instance: records.Instance, image: str) -> None:
        ports = wiring.ports_of(self._rack, instance)
        await self._make(machine, await self._wanted(machine, instance, image, is_on_network=bool(ports)))
        assert machine.made is not None, "it has just been made"
        name = machine.made.name
        await self._docker.run(
            "cp", "-", f"{name}:/", stdin=seed.archive(instance, seed.public_keys(self._rack, instance))
        )
        machine.ending = False
        await self._docker.run("start", name)
        state = (await self._docker.inspect("container", name))["State"]
        machine.watch = asyncio.create_task(self._watch(machine, instance, name, state["StartedAt"]))
        if ports:
            async with self._fabric_lock:
                machine.ports = ports
                await self._fabric.plug(ports, wiring.wire(self._rack), state["Pid"])
        _logger.info("Booting guest", instance=instance.id, name=instance.name, container=name)

    async def _wanted(
        self, machine: _Machine, instance: records.Instance, image: str, *, is_on_network: bool
    ) -> container.Machine:
        known = (await self._docker.inspect("image", image))["Config"]
        volumes = [(self._volume(machine.disk), _VARIABLE)]
        volumes += [
            (self._volume(disk.id), f"{_DATA}/{disk.name}")
            for disk in storage.attached_disks(self._rack, instance)
            if disk.id != machine.disk
        ]
        return container.Machine(
            instance=instance.id,
            name=self._labels.name(instance.name, machine.disk[:8]),
            hostname=instance.hostname,
            image=image,
            start=(*(known["Entrypoint"] or ()), *(known["Cmd"] or ())),
            volumes=tuple(volumes),
            memory_bytes=instance.memory_bytes,
            cpus=min(instance.ncpus, self._cpus),
            dns=str(self._fabric.host_address),
            is_on_network=is_on_network,
        )

    async def _make(self, machine: _Machine, wanted: container.Machine) -> None:
        """Make the container, unless it is there as it should be; what its disk holds stays."""
        if machine.made == wanted:
            return
        for volume, _ in wanted.volumes:
            if volume not in self._volumes:
                await self._docker.run("volume", "create", *self._labels.words, volume)
                self._volumes.add(volume)
        if machine.made is not None:
            machine.committed = self._labels.name("disk", machine.disk)
            label = f"LABEL capox.rack={self._labels.rack}"
            await self._docker.run("commit", "--change", label, machine.made.name, machine.committed)
            await self._docker.run("rm", "--force", machine.made.name)
        made = dataclasses.replace(wanted, image=machine.committed or wanted.image)
        await self._docker.run(*made.words(self._labels))
        machine.made = wanted

    async def _power_off(self, machine: _Machine) -> None:
        machine.ending = True
        if machine.made is not None:
            try:
                if (await self._docker.inspect("container", machine.made.name))["State"]["Running"]:
                    await self._docker.run("kill", machine.made.name)
                    await self._docker.run("wait", machine.made.name)
            except NoSuchThingError:
                _logger.warning("Missing the container of a guest", container=machine.made.name)
        if machine.ports:
            async with self._fabric_lock:
                await self._fabric.unplug(machine.ports)
                machine.ports = ()
        if machine.watch is not None:
            await machine.watch
            machine.watch = None

    async def _remove(self, machine: _Machine) -> None:
        await self._power_off(machine)
        if machine.made is not None:
            await self._docker.run("rm", "--force", machine.made.name)
        if machine.committed is not None:
            await self._docker.run("image", "rm", "--force", machine.committed)
        self._doomed.add(self._volume(machine.disk))
        await self._sweep()

    async def _sweep(self) -> None:
        """Remove the volumes of deleted disks that no container holds any more."""
        for volume in sorted(self._doomed & self._volumes):
            try:
                await self._docker.run("volume", "rm", volume)
            except DockerError as error:
                _logger.debug("Keeping a volume", volume=volume, error=str(error))
            else:
                self._doomed.discard(volume)
                self._volumes.discard(volume)

    async def _watch(self, machine: _Machine, instance: records.Instance, name: str, since: str) -> None:
        """Copy what a guest writes until its end, and tell of an end that nobody here has brought about."""
        words = ["logs", "--follow", "--since", since, name]
        while True:
            async for chunk in self._docker.follow(*words):
                instance.console.write(chunk)
            state = await self._state(name)
            if not state.get("Running", False):
                break
            words = ["logs", "--follow", "--tail", "0", name]
        if not machine.ending:
            machine.ending = True
            self._on_end(instance, container.ending(state["ExitCode"]) if state else "crash")

    async def _state(self, name: str) -> dict[str, Any]:
        """The state of a container, when the engine answers; empty when there is no such container."""
        while True:
            try:
                state: dict[str, Any] = (await self._docker.inspect("container", name))["State"]
            except NoSuchThingError:
                return {}
            except (DockerError, json.JSONDecodeError) as error:
                # An engine that is away is a sled that does not answer: nothing is known of its guests.
                _logger.warning("Asking the engine again", container=name, error=str(error))
                await asyncio.sleep(_LOST_SECONDS)
            else:
                return state

    def _on_end(self, instance: records.Instance, how: container.Ending) -> None:
        """Show the end of a guest as a real rack would."""
        _logger.info("Losing guest", instance=instance.id, name=instance.name, how=how)
        self._rack.settle()
        if instance.sled is None:
            return
        if how == "restart" and instance.state in {"starting", "rebooting"}:
            # Faster than the rack, which has not seen it run yet: it is still on its way there.
            self.reset(instance)
        elif instance.state == "running" and not instance.is_vmm_lost and how == "restart":
            instance_states.reboot_guest(self._rack, instance)
        elif instance.state == "running" and not instance.is_vmm_lost and how == "power_off":
            instance_states.power_off_guest(self._rack, instance)
        else:
            instance_states.crash_guest(self._rack, instance)

    def _on_failure(self, disk: str, error: Exception) -> None:
        """An act has failed: the instance that was to run from the disk has no guest."""
        if not isinstance(error, DockerError):
            _logger.error("Failing by a mistake of the rack", disk=disk, exc_info=error)
        else:
            _logger.error("Failing to bring a guest to its state", disk=disk, error=str(error))
        for identity, machine in self._machine_of.items():
            instance = self._rack.instances.by_id(identity)
            if machine.disk == disk and instance is not None and instance.sled is not None:
                self._rack.settle()
                instance_states.crash_guest(self._rack, instance)

    def _volume(self, disk: str) -> str:
        return self._labels.name("disk", disk)


async def remove_all(docker: Docker, labels: container.Labels) -> None:
    """Remove every container, volume and image that has a rack's label, and nothing else.

    Raises:
        DockerError: something stays.
    """
    await _remove(docker, _CONTAINERS, labels)
    await _remove(docker, ("volume", "ls", "--quiet"), labels)
    await _remove(docker, ("image", "ls", "--quiet"), labels)


async def _remove(docker: Docker, listing: Sequence[str], labels: container.Labels) -> None:
    found = (await docker.text(*listing, *labels.filter)).split()
    if found:
        await docker.run(listing[0], "rm", "--force", *dict.fromkeys(found))
