"""Random lives of external addresses: none is held twice, each is counted, and each comes back (semantics 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from capox.rack import instance_states
from tests.contract.rack import instance_life as life
from tests.contract.rack import network_life as network
from tests.rack import RackUnderTest

T = TypeVar("T")

INSTANCES = st.sampled_from(("one", "two", "three"))
FLOATING = st.sampled_from(("a", "b", "c", "d"))
POOL = "tiny"
FIRST, LAST = "192.0.2.0", "192.0.2.5"
OFFSETS = st.integers(0, 6)

# What a request may meet in a world in which everything happens at any time; a 500 is never among it.
FORESEEN = {200, 201, 202, 204, 400, 404, 409, 503, 507}


class AddressesLive(RuleBasedStateMachine):
    """Requests about a few addresses and instances, some of which overlap in time."""

    @initialize()
    def open(self) -> None:
        """Begin with an empty rack whose default IPv4 pool has six addresses."""
        self.runner = asyncio.Runner()
        self.rack = RackUnderTest()
        self.rack.pool_v4.links = {self.rack.silo.id: False}
        self.pool = self.rack.add_pool(POOL, "v4", FIRST, LAST, {self.rack.silo.id: True})
        self.under_way: list[asyncio.Task[httpx.Response]] = []

    @rule(name=FLOATING)
    def create_floating_ip(self, name: str) -> None:
        """Take the lowest free address."""
        allocator = {"type": "auto", "pool_selector": network.AUTO_V4}
        self.ask("POST", "/v1/floating-ips", {"name": name, "description": "", "address_allocator": allocator})

    @rule(name=FLOATING, offset=OFFSETS)
    def create_floating_ip_exactly(self, name: str, offset: int) -> None:
        """Take a chosen address."""
        allocator = {"type": "explicit", "ip": f"192.0.2.{offset}"}
        self.ask("POST", "/v1/floating-ips", {"name": name, "description": "", "address_allocator": allocator})

    @rule(name=FLOATING)
    def delete_floating_ip(self, name: str) -> None:
        """Give an address back."""
        self.ask("DELETE", f"/v1/floating-ips/{name}")

    @rule(name=FLOATING, instance=INSTANCES, in_one_go=st.booleans())
    def attach(self, name: str, instance: str, *, in_one_go: bool) -> None:
        """Attach a floating IP, or begin to."""
        body = {"kind": "instance", "parent": instance}
        self.ask("POST", f"/v1/floating-ips/{name}/attach", body, in_one_go=in_one_go)

    @rule(name=FLOATING, in_one_go=st.booleans())
    def detach(self, name: str, *, in_one_go: bool) -> None:
        """Detach a floating IP, or begin to."""
        self.ask("POST", f"/v1/floating-ips/{name}/detach", in_one_go=in_one_go)

    @rule(instance=INSTANCES, in_one_go=st.booleans())
    def attach_ephemeral(self, instance: str, *, in_one_go: bool) -> None:
        """Attach an ephemeral IP, or begin to."""
        path = f"/v1/instances/{instance}/external-ips/ephemeral"
        self.ask("POST", path, {"pool_selector": network.AUTO_V4}, in_one_go=in_one_go)

    @rule(instance=INSTANCES, in_one_go=st.booleans())
    def detach_ephemeral(self, instance: str, *, in_one_go: bool) -> None:
        """Detach an ephemeral IP, or begin to."""
        self.ask("DELETE", f"/v1/instances/{instance}/external-ips/ephemeral", in_one_go=in_one_go)

    @rule(instance=INSTANCES, floating=st.none() | FLOATING, has_ephemeral=st.booleans(), start=st.booleans())
    def create_instance(self, instance: str, floating: str | None, *, has_ephemeral: bool, start: bool) -> None:
        """Make an instance, which takes a share of an address and maybe more."""
        external_ips: list[dict[str, Any]] = []
        if has_ephemeral:
            external_ips.append({"type": "ephemeral", "pool_selector": network.AUTO_V4})
        if floating is not None:
            external_ips.append({"type": "floating", "floating_ip": floating})
        body = {"name": instance, "network_interfaces": network.IPV4, "external_ips": external_ips, "start": start}
        self.ask("POST", "/v1/instances", life.MINIMAL | body)

    @rule(instance=INSTANCES, act=st.sampled_from(("start", "stop")))
    def power(self, instance: str, act: str) -> None:
        """Start or stop an instance."""
        self.ask("POST", f"/v1/instances/{instance}/{act}")

    @rule(instance=INSTANCES)
    def delete_instance(self, instance: str) -> None:
        """Delete an instance, whatever is going on with its addresses."""
        self.ask("DELETE", f"/v1/instances/{instance}")

    @rule(is_reachable=st.booleans())
    def cut_sleds_off(self, *, is_reachable: bool) -> None:
        """Let no sled answer, or all."""
        for sled in self.rack.state.sleds.values():
            if is_reachable:
                instance_states.restore_sled(self.rack.state, sled)
            else:
                instance_states.lose_sled(self.rack.state, sled)

    @rule(seconds=st.sampled_from((0.01, 0.3, 5.0)))
    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.rack.pass_time(seconds)
        self.run(self.let_them_work())

    @invariant()
    def every_address_is_held_once_and_counted(self) -> None:
        """Floating and ephemeral IPs have whole addresses, instances share others, and the pool knows them all."""
        state = self.rack.state
        whole = [floating.ip for floating in state.floating_ips]
        whole += [ephemeral.ip for held in state.ephemeral_ips_of.values() for ephemeral in held]
        shares = [(snat.ip, snat.first_port) for snat in state.snat_ips_of.values()]
        shared = {ip for ip, _ in shares}
        book = state.pool_addresses[self.pool.id]
        assert len(set(whole)) == len(whole)
        assert len(set(shares)) == len(shares)
        assert not shared & set(whole)
        assert book.taken_count == len(whole) + len(shared)
        assert all(book.is_taken(int(ip)) for ip in shared | set(whole))

    @invariant()
    def indexes_agree_with_the_records(self) -> None:
        """An instance has those floating IPs that say so, and only instances that exist have any."""
        state = self.rack.state
        said = {(floating.instance, floating.id) for floating in state.floating_ips if floating.instance is not None}
        indexed = {(instance, identity) for instance, held in state.floating_ips_of.items() for identity in held}
        existing = {instance.id for instance in state.instances}
        assert said == indexed
        assert {*state.floating_ips_of, *state.ephemeral_ips_of, *state.snat_ips_of} <= existing

    @invariant()
    def answers_keep_to_the_document(self) -> None:
        """And to what the world can answer."""
        assert self.rack.app.violations == []

    def teardown(self) -> None:
        """Let everything come to rest and delete it: every address comes back."""
        self.cut_sleds_off(is_reachable=True)
        for _ in range(10):
            self.pass_time(seconds=5.0)
        assert not self.under_way
        for instance in [instance.name for instance in self.rack.state.instances]:
            self.ask("POST", f"/v1/instances/{instance}/stop")
        self.pass_time(seconds=5.0)
        for instance in [instance.name for instance in self.rack.state.instances]:
            self.ask("DELETE", f"/v1/instances/{instance}")
        for floating in list(self.rack.state.floating_ips):
            assert (floating.instance, floating.change) == (None, None)
            self.ask("DELETE", f"/v1/floating-ips/{floating.name}")
        book = self.rack.state.pool_addresses[self.pool.id]
        assert (book.taken_count, book.peek()) == (0, int(self.pool.ranges[0][0]))
        assert len(self.rack.state.mac_addresses) == 0
        self.run(self.rack.http.aclose())
        self.runner.close()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, in_one_go: bool = True) -> None:
        """Send a request about the project `demo`, and let it come to its end or be under way."""

        async def send() -> httpx.Response:
            """Send it and wait for the answer."""
            headers = {"authorization": "Bearer oxide-token-admin"}
            return await self.rack.http.request(method, path, params={"project": "demo"}, headers=headers, json=body)

        async def begin() -> None:
            """Have it sent and let the rack work on it."""
            request = asyncio.ensure_future(send())
            if in_one_go:
                await life.finish(self.rack, request)
            self.under_way.append(request)
            await self.let_them_work()

        self.run(begin())

    async def let_them_work(self) -> None:
        """Let the requests under way do what they can do now, and check the answers that there are."""
        for _ in range(20):
            await asyncio.sleep(0)
        for request in [request for request in self.under_way if request.done()]:
            self.under_way.remove(request)
            assert request.result().status_code in FORESEEN, request.result().text

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        """Run something on the machine's event loop."""
        return self.runner.run(act)


TestAddressesLive = AddressesLive.TestCase
TestAddressesLive.settings = settings(max_examples=25, stateful_step_count=40)
