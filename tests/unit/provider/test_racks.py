"""Projects are observed for as long as somebody looks, and with nobody's old credentials. On virtual time."""

from __future__ import annotations

import asyncio

from pydantic import SecretStr

from capox.kube.workqueue import Request
from capox.oxide.client import OxideClient
from capox.oxide.clock import Clock, LoopClock
from capox.oxide.errors import OxideError, ServiceUnavailable
from capox.oxide.shared_list import Moment
from capox.oxide.token_bucket import TokenBuckets
from capox.provider.credentials import Credentials
from capox.provider.racks import Interest, Project, Racks
from tests.sim.loop import simulated
from tests.unit.oxide.scripted import Reply, ScriptedRack

MACHINE = Request("default", "web-0")
INTEREST = Interest(look=lambda *_: (), sight=(), is_in_transition=True, wake=lambda: None)
"""Of somebody who waits for a change that does not come."""


class TwoTokens:
    """A rack of which each token's requests are seen apart."""

    def __init__(self) -> None:
        self.rack_of = {token: ScriptedRack(Reply(body={"items": []})) for token in ("old", "new")}
        buckets = TokenBuckets(rate_per_second=100, burst=100)
        self.racks = Racks(buckets, LoopClock(), self._connect)

    def project(self, token: str) -> Project:
        """The project as a token's owner sees it."""
        return self.racks.project(Credentials(host="http://rack.example", token=SecretStr(token)), "demo")

    def asked(self, token: str) -> int:
        """How many requests there were with a token."""
        return len(self.rack_of[token].asked)

    def _connect(self, credentials: Credentials, buckets: TokenBuckets, clock: Clock) -> OxideClient:
        del buckets
        return self.rack_of[credentials.token.get_secret_value()].client(clock=clock)


@simulated
async def test_rotation_ends_the_use_of_the_old_token() -> None:
    """An object that has begun to look with new credentials is not looked for with the old ones any more."""
    world = TwoTokens()
    world.racks.expect(world.project("old"), "oxidemachine", MACHINE, INTEREST)
    await asyncio.sleep(10)
    assert world.asked("old") > 0

    world.racks.expect(world.project("new"), "oxidemachine", MACHINE, INTEREST)
    await asyncio.sleep(5)
    before = world.asked("old")
    await asyncio.sleep(600)
    assert world.asked("old") == before
    assert world.asked("new") > 100
    await world.racks.aclose()


@simulated
async def test_a_project_without_objects_is_not_read() -> None:
    """When the last object is gone the lists rest; the next object has them read again."""
    world = TwoTokens()
    project = world.project("old")
    world.racks.expect(project, "oxidemachine", MACHINE, INTEREST)
    await asyncio.sleep(10)
    world.racks.forget("oxidemachine", MACHINE)
    await asyncio.sleep(5)
    before = world.asked("old")
    await asyncio.sleep(3600)
    assert world.asked("old") == before

    world.racks.expect(project, "oxidemachine", MACHINE, INTEREST)
    await asyncio.sleep(10)
    assert world.asked("old") > before
    await world.racks.aclose()


@simulated
async def test_what_a_woken_object_will_look_at_is_read_before() -> None:
    """It is read after the instances, and an object whose reading fails is woken all the same."""
    world = TwoTokens()
    happened: list[str] = []

    def interest(name: str, error: OxideError | None) -> Interest:
        """Of somebody for whom something has changed already."""

        async def prepare(began: Moment) -> None:
            """Take a while, or fail."""
            assert began < Moment.now(LoopClock())
            await asyncio.sleep(1)
            happened.append(f"{name} is prepared")
            if error is not None:
                raise error

        return Interest(lambda *_: (), ("other",), True, lambda: happened.append(f"{name} is woken"), prepare)

    busy = ServiceUnavailable("no", operation="vpc_subnet_list_network_interfaces", status=503)
    for name, error in (("web-0", None), ("web-1", busy)):
        world.racks.expect(world.project("old"), "oxidemachine", Request("default", name), interest(name, error))
    await asyncio.sleep(10)

    assert happened == ["web-0 is prepared", "web-1 is prepared", "web-0 is woken", "web-1 is woken"]
    await world.racks.aclose()
