"""The racks that the controllers work on: one client a credential, one shared observation a project.

A project's `Watch` is what keeps reads from growing with the fleet: it reads the project's lists at one pace, fast
while somebody waits for a change and slow at rest, and wakes only those objects whose part of the picture has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import structlog

from capox.kube.workqueue import Request
from capox.oxide.client import OxideClient
from capox.oxide.clock import Clock
from capox.oxide.errors import OxideError
from capox.oxide.inventory import ProjectInventory
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot
from capox.oxide.token_bucket import TokenBuckets
from capox.provider.credentials import Credentials
from capox.provider.egress import EgressAddresses
from capox.provider.group_seats import Seats

__all__ = ["Interest", "Project", "Racks", "Sight", "Watch"]

_SUBNET_KEPT_SECONDS: Final = 600.0
"""How long a subnet's id is believed; a name can come to mean another subnet."""

UNUSED_SECONDS: Final = 3600.0
"""After how long without a use a project, and a client that serves no other, are given up; no pass lasts that long."""

Sight = tuple[object, ...]
"""What an object saw of its part of the picture; two equal sights mean that nothing has changed for it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interest:
    """What an object waits for.

    Attributes:
        look: Gives the object's part of the picture.
        sight: What it saw last.
        is_in_transition: Whether a change is expected soon, so that the lists are read fast.
        wake: Called once when the sight has changed; the interest is over then.
        prepare: Reads, before that, what the object will look at beside the lists; it is given the moment that the
            instances were read at. All who are woken by one reading share what it reads, and no worker has to wait.
    """

    look: Callable[[InstanceSnapshot, FloatingIpSnapshot], Sight]
    sight: Sight
    is_in_transition: bool
    wake: Callable[[], None]
    prepare: Callable[[Moment], Awaitable[None]] | None = None


class Watch:
    """Reads a project's lists and wakes those whose sight has changed.

    Args:
        inventory: The lists.
        clock: The time that the pace goes by.
    """

    def __init__(self, inventory: ProjectInventory, clock: Clock) -> None:
        self._inventory = inventory
        self._clock = clock
        self._interests: dict[tuple[str, Request], Interest] = {}
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def expect(self, controller: str, request: Request, interest: Interest) -> None:
        """Wake an object when its part of the picture is another than this; replaces what it expected before."""
        if interest.is_in_transition or not self._interests:
            self._hurry.set()
        self._interests[controller, request] = interest
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, controller: str, request: Request) -> None:
        """Expect nothing for an object any more."""
        self._interests.pop((controller, request), None)

    async def aclose(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._pause()
            try:
                instances = await self._inventory.instances.recent(TRANSITION_SECONDS)
                floating_ips = await self._floating_ips()
            except OxideError as error:
                structlog.get_logger().warning("Reading the project failed", error=str(error))
                continue
            changed = [
                (key, interest)
                for key, interest in self._interests.items()
                if interest.look(instances, floating_ips) != interest.sight
            ]
            await asyncio.gather(*(_prepare(interest, instances.began) for _, interest in changed))
            for key, interest in changed:
                if self._interests.get(key) is interest:
                    del self._interests[key]
                    interest.wake()

    async def _pause(self) -> None:
        """Sleep for as long as the pace says; somebody who begins to wait cuts the long sleep short."""
        self._hurry.clear()
        if not self._interests:
            # Nobody looks through these credentials any more; they may have been rotated, and refused by now.
            await self._hurry.wait()
            self._hurry.clear()
        if any(interest.is_in_transition for interest in self._interests.values()):
            await self._clock.sleep(TRANSITION_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                await self._hurry.wait()
                await self._clock.sleep(TRANSITION_SECONDS)

    async def _floating_ips(self) -> FloatingIpSnapshot:
        """Floating IPs change when we change them; between our own acts the pace at rest is enough."""
        return await self._inventory.floating_ips.recent(REST_SECONDS)


class Project:
    """A project of a rack, seen with one set of credentials.

    Whoever changes a VPC's firewall holds `firewall_lock` from the reading of the rules to their writing: all rules are
    written at once, and what another cluster's pass wrote in between would be lost.

    Args:
        client: The client that has the credentials.
        name: The project's name or id.
        clock: The time that everything goes by.
    """

    def __init__(self, client: OxideClient, name: str, clock: Clock) -> None:
        self.client = client
        self.name = name
        self.inventory = ProjectInventory(client, name, clock=clock)
        self.watch = Watch(self.inventory, clock)
        self.seats = Seats(clock)
        self.firewall_lock = asyncio.Lock()
        self.egress = EgressAddresses(client, clock)
        self._clock = clock
        self._subnets: dict[tuple[str, str], tuple[UUID, float]] = {}
        self._subnet_turn = asyncio.Lock()

    async def subnet_id(self, vpc: str, subnet: str) -> UUID:
        """The id of a subnet by name.

        Raises:
            OxideError: It could not be read.
        """
        # One at a time: whoever asks while it is being looked up finds it known then.
        async with self._subnet_turn:
            known = self._subnets.get((vpc, subnet))
            now = self._clock.monotonic()
            if known is not None and now - known[1] < _SUBNET_KEPT_SECONDS:
                return known[0]
            found = await self.client.vpc_subnet_view(subnet, vpc=vpc, project=self.name)
            self._subnets[vpc, subnet] = (found.id, now)
            return found.id

    async def aclose(self) -> None:
        """Stop observing."""
        await self.watch.aclose()
        await self.inventory.aclose()


class Racks:
    """The source of projects by credentials.

    Args:
        buckets: The token buckets, one a rack.
        clock: The time that everything goes by.
        connect: Makes a client; another one for tests that run within one process.
    """

    def __init__(
        self,
        buckets: TokenBuckets,
        clock: Clock,
        connect: Callable[[Credentials, TokenBuckets, Clock], OxideClient] | None = None,
    ) -> None:
        self._buckets = buckets
        self._clock = clock
        self._connect = connect or _connect
        self._clients: dict[str, OxideClient] = {}
        self._projects: dict[tuple[str, str], Project] = {}
        self._used_at: dict[tuple[str, str], float] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._expecting: dict[tuple[str, Request], Project] = {}

    def project(self, credentials: Credentials, name: str) -> Project:
        """The project of this name or id as these credentials see it.

        Raises:
            ValueError: The credentials hold an address, a token or a certificate that cannot be one.
        """
        key = _digest(credentials)
        if (key, name) not in self._projects:
            self._give_up_unused()
            if key not in self._clients:
                self._clients[key] = self._connect(credentials, self._buckets, self._clock)
            self._projects[key, name] = Project(self._clients[key], name, self._clock)
        self._used_at[key, name] = self._clock.monotonic()
        return self._projects[key, name]

    def expect(self, project: Project, controller: str, request: Request, interest: Interest) -> None:
        """Wake an object when its part of a project's picture changes.

        What it expected of another project is over: of the same one with older credentials, above all, which would be
        asked for ever although nobody may ask with them any more.
        """
        if self._expecting.get((controller, request)) is not project:
            self.forget(controller, request)
        self._expecting[controller, request] = project
        project.watch.expect(controller, request, interest)

    def forget(self, controller: str, request: Request) -> None:
        """Expect nothing for an object any more."""
        project = self._expecting.pop((controller, request), None)
        if project is not None:
            project.watch.forget(controller, request)

    async def aclose(self) -> None:
        """Stop observing and close all connections."""
        await asyncio.gather(*self._closing)
        for project in self._projects.values():
            await project.aclose()
        for client in self._clients.values():
            await client.aclose()

    def _give_up_unused(self) -> None:
        """Close what was left behind when tokens were rotated and projects emptied.

        Done when something new is opened, so that what is open never grows for ever.
        """
        expecting = set(self._expecting.values())
        now_seconds = self._clock.monotonic()
        for key, used_seconds in list(self._used_at.items()):
            if now_seconds - used_seconds >= UNUSED_SECONDS and self._projects[key] not in expecting:
                del self._used_at[key]
                project = self._projects.pop(key)
                is_last = all(digest != key[0] for digest, _ in self._projects)
                client = self._clients.pop(key[0]) if is_last else None
                task = asyncio.get_running_loop().create_task(_close(project, client))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


async def _close(project: Project, client: OxideClient | None) -> None:
    await project.aclose()
    if client is not None:
        await client.aclose()


async def _prepare(interest: Interest, began: Moment) -> None:
    """Read what an object will look at. One that cannot be read is told when the object itself asks for it."""
    if interest.prepare is not None:
        with contextlib.suppress(OxideError):
            await interest.prepare(began)


def _connect(credentials: Credentials, buckets: TokenBuckets, clock: Clock) -> OxideClient:
    return OxideClient(
        host=credentials.host,
        token=credentials.token,
        ca=credentials.ca,
        bucket=buckets.of(credentials.host),
        clock=clock,
    )


def _digest(credentials: Credentials) -> str:
    """A key that two equal sets of credentials share, and from which none can be read."""
    parts = (credentials.host, credentials.token.get_secret_value(), credentials.ca or "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
