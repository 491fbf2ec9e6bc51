"""A rack for tests: a small, fixed set-up, a clock on command, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import random
from typing import Any, Self

import httpx

from capox.rack import access, app, clock, document, records, state
from capox.rack.operations import projects

GIB = 1024**3

START = datetime.datetime(2026, 9, 1, 12, 0, tzinfo=datetime.UTC)


class RackUnderTest:
    """A rack with a silo `lab`, its project `demo`, two default pools, four sleds, a silo image and users of each role.

    The users are `admin`, `collaborator`, `limited_collaborator`, `viewer` (roles on the silo), `nobody` (no role), and
    `stranger` (admin of another silo). Each one's token is `oxide-token-` and the user's name.

    Attributes:
        state: the rack's state, for setting up and for looking at the world.
        clock: its time, which passes on command.
        app: the application.
        http: a client as `admin`.
    """

    def __init__(self, timing: state.Timing | None = None, passing: clock.Clock | None = None) -> None:
        """Furnish it. Its time passes on command, or, where a passing clock is given, with that."""
        self.clock = clock.CommandedClock(START)
        self.state = state.Rack(
            document=document.load(),
            clock=passing or self.clock,
            randomness=random.Random(20260901),
            timing=timing or state.Timing(),
        )
        self.app = app.RackApp(self.state)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://rack")
        self._furnish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.http.aclose()

    def _furnish(self) -> None:
        self.silo = self.add_silo("lab")
        for role in ("admin", "collaborator", "limited_collaborator", "viewer"):
            self.add_user(role, self.silo, role)
        self.add_user("nobody", self.silo, None)
        self.other_silo = self.add_silo("other")
        self.add_user("stranger", self.other_silo, "admin")
        links = {self.silo.id: True, self.other_silo.id: True}
        self.pool_v4 = self.add_pool("public-v4", "v4", "198.51.100.0", "198.51.100.63", links)
        self.pool_v6 = self.add_pool("public-v6", "v6", "2001:db8::", "2001:db8::3f", links)
        for number in range(4):
            self.add_sled(f"sled{number}", cpus=64, memory_gib=256)
        self.project = projects.add_project(self.state, self.silo, "demo", "")
        self.image = self.state.images.insert(
            records.Image(
                **self.state.identity("debian", ""),
                silo=self.silo.id,
                project=None,
                os="debian",
                version="13",
                size_bytes=2 * GIB,
                block_size_bytes=512,
            )
        )

    def add_silo(
        self, name: str, *, cpus: int = 1000, memory_gib: int = 4000, storage_gib: int = 100_000
    ) -> records.Silo:
        """A silo with quotas."""
        return self.state.silos.insert(
            records.Silo(
                **self.state.identity(name, ""),
                quota_cpus=cpus,
                quota_memory_bytes=memory_gib * GIB,
                quota_storage_bytes=storage_gib * GIB,
            )
        )

    def add_user(self, name: str, silo: records.Silo, role: records.Role | None) -> records.User:
        """A user whose token is `oxide-token-` and the name."""
        user = records.User(**self.state.identity(name, ""), silo=silo.id, role=role, fleet_viewer=False)
        self.state.users.insert(user)
        digest = access.hash_token(f"oxide-token-{name}")
        self.state.tokens[digest] = records.Token(
            id=self.state.new_id(), user=user.id, sha256=digest, time_created=START, time_expires=None
        )
        return user

    def add_pool(
        self, name: str, version: records.IpVersion, first: str, last: str, links: dict[str, bool]
    ) -> records.IpPool:
        """An IP pool of one range; `links` maps silo ids to whether it is their default."""
        pool = records.IpPool(
            **self.state.identity(name, ""),
            version=version,
            ranges=[(ipaddress.ip_address(first), ipaddress.ip_address(last))],
            links=links,
        )
        return self.state.add_ip_pool(pool)

    def add_sled(self, name: str, *, cpus: int, memory_gib: int, platform: str = "amd_milan") -> records.Sled:
        """A sled."""
        sled = records.Sled(
            id=self.state.new_id(), name=name, cpus=cpus, memory_bytes=memory_gib * GIB, cpu_platform=platform
        )
        self.state.sleds[sled.id] = sled
        return sled

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "admin",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx.Response:
        """Send one request and let the rack's time pass until it is answered. `user=None` sends no credentials."""
        sent = dict(headers or {})
        if user is not None:
            sent.setdefault("authorization", f"Bearer oxide-token-{user}")
        arguments: dict[str, Any] = {"headers": sent}
        if query:
            # httpx would drop a query that the path has for one that is given beside it.
            arguments["params"] = dict(httpx.URL(path).params) | query
        if body is not None:
            arguments["json"] = body
        request = asyncio.ensure_future(self.http.request(method, path, **arguments))
        while not request.done():
            await asyncio.sleep(0)
            if not request.done() and self.clock.has_sleepers:
                self.clock.advance(0.01)
        return request.result()

    async def must(self, status: int, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request that has to be answered by this status; returns the JSON body (None when it is empty)."""
        answer = await self.ask(method, path, body, **options)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def refused(self, status: int, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """Send a request that has to be refused by this status; returns the error's body."""
        error: dict[str, Any] = await self.must(status, method, path, body, **options)
        assert error["request_id"]
        return error

    async def waits_for_time(self) -> None:
        """Return when a request that was sent waits for time to pass."""
        for _ in range(1000):
            await asyncio.sleep(0)
            if self.clock.has_sleepers:
                return
        raise AssertionError("no request waits for time to pass")

    def pass_time(self, seconds: float) -> None:
        """Let time pass and everything happen that is due by then."""
        self.clock.advance(seconds)
        self.state.settle()
