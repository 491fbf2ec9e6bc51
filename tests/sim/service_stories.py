"""What happens to Services in a simulated cluster: the same life for every seed, in weather that the seed makes."""

from __future__ import annotations

import random
from typing import Any

from capox.ccm.kinds import SERVICES
from capox.rack.faults import FaultRule
from tests.sim.service_invariants import ServiceWatchdog
from tests.sim.service_world import EXCLUDE, NAMESPACE, ServiceWorld
from tests.sim.store_client import SeededWeather
from tests.sim.world import Weather

CONVERGENCE_SECONDS = 900.0
"""How long, on virtual time, everything may take once faults are off; the longest pause fits in twice."""

DUAL: Any = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}


async def life_of_services(seed: int, *, weather: Weather, crashes: int) -> None:
    """Services come, change and go, nodes fail and return, the process is killed again and again.

    Raises:
        InvariantError: Something happened that must never happen.
        AssertionError: The world did not converge, or was not as before in the end.
    """
    story = ServiceStory(seed, weather, crashes)
    await story.begin()
    await story.create()
    await story.shake()
    await story.change()
    await story.rest()
    await story.delete()
    await story.world.end()


class ServiceStory:
    """The life of some Services.

    Args:
        seed: Of the world.
        weather: How bad things are while things change.
        crashes: How often the process is killed in each chapter.
    """

    def __init__(self, seed: int, weather: Weather, crashes: int) -> None:
        self._dice = random.Random(f"services {seed}")
        self._bad, self._crashes, self._clouds = weather, crashes, 0
        rate = weather.kube / 3
        self._kube = SeededWeather(
            random.Random(f"kube {seed}"), refused_rate=rate, lost_request_rate=rate, lost_answer_rate=rate
        )
        self._kube.is_fair = True
        self.world = ServiceWorld(seed, weather=self._kube)
        self.watchdog = ServiceWatchdog(self.world)
        self.world.on_tick = self.watchdog.look

    async def begin(self) -> None:
        """Four nodes, a floating IP that the user made, and one of somebody else."""
        await self.world.add_nodes(4)
        for name, ip in (("brought", "198.51.100.40"), ("strangers", "198.51.100.41")):
            body = {"name": name, "description": "by hand", "address_allocator": {"type": "explicit", "ip": ip}}
            made = await self.world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
            floating_ip = self.world.rack.state.floating_ips.by_id(made["id"])
            assert floating_ip is not None
            self.watchdog.keep_foreign(floating_ip)
        self.world.start()

    async def create(self) -> None:
        """Five Services; three of them want one port, one brings its address, one has two families."""
        self._cloud_over()
        for name in ("web", "api", "shop"):
            self.world.add_service(name, "tcp:443")
        self.world.add_service("mail", "tcp:25", annotations={"oxide.computer/floating-ip": "brought"})
        self.world.add_service("dns", "udp:53", "tcp:53", **DUAL)
        await self._suffer()
        await self._converge("web", "api", "shop", "mail", "dns")

    async def shake(self) -> None:
        """One holder stops, one is silent, one is excluded; a Service goes while all that happens."""
        world, holder = self.world, self.world.holder("web")
        assert holder is not None
        self._cloud_over()
        await world.ask_surely("POST", f"/v1/instances/{world.instance(holder).id}/stop")
        other = self._dice.choice([f"node-{number}" for number in range(1, 5) if f"node-{number}" != holder])
        world.set_ready(other, self._dice.choice(["Unknown", "False"]))
        await world.pass_time(self._dice.uniform(1, 30))
        world.delete_service("shop")
        await self._suffer()
        world.set_ready(holder, "Unknown")
        world.set_ready(other, "True")
        await self._converge("web", "api", "mail", "dns")
        self._clear_up()
        await world.ask_surely("POST", f"/v1/instances/{world.instance(holder).id}/start")
        await world.pass_time(6)
        world.set_ready(holder, "True")
        excluded = self._dice.choice([f"node-{number}" for number in range(1, 5)])
        self._cloud_over()
        world.label_node(excluded, EXCLUDE, "true")
        await self._suffer()
        await self._converge("web", "api", "mail", "dns")
        world.label_node(excluded, EXCLUDE, None)

    async def change(self) -> None:
        """A port list grows, an address is exchanged for another, another one comes from the user and goes back."""
        world = self.world
        self._cloud_over()
        world.change_service("web", spec={"ports": _ports(443, 8443)})
        world.annotate("api", "floating-ip", "198.51.100.50")
        world.annotate("mail", "floating-ip", None)
        world.add_service("late", "tcp:8443", annotations={"oxide.computer/floating-ip-reclaim": "Retain"})
        await self._suffer()
        await self._converge("web", "api", "mail", "dns", "late")
        assert str(world.floating_ip("api").ip) == "198.51.100.50"

    async def rest(self) -> None:
        """At rest nothing is written."""
        await self.world.pass_time(120)
        process = self.world.process
        assert process is not None
        writes = (self.world.writes.count, len([call for call in process.kube.calls if call.is_write]))
        await self.world.pass_time(500)
        after = (self.world.writes.count, len([call for call in process.kube.calls if call.is_write]))
        assert after == writes, "a write at rest (V1, S3)"

    async def delete(self) -> None:
        """Everything goes; what is left is what the user made, and what was to be kept."""
        world = self.world
        kept = world.floating_ip("late")
        self._cloud_over()
        for document in world.store.list(SERVICES, NAMESPACE):
            world.delete_service(document["metadata"]["name"])
        await self._suffer()
        self._clear_up()
        await world.until(lambda: not world.store.list(SERVICES, NAMESPACE), CONVERGENCE_SECONDS, "all are gone")
        left = {each.name: each.instance for each in world.rack.state.floating_ips}
        assert left == {"brought": None, "strangers": None, kept.name: None}

    async def _suffer(self) -> None:
        """Let time pass in bad weather, with crashes at moments that chance picks."""
        moments = sorted(self._dice.uniform(0.05, 40.0) for _ in range(self._crashes))
        passed = 0.0
        for moment in moments:
            await self.world.pass_time(moment - passed)
            passed = moment
            await self.world.crash()
        await self.world.pass_time(40.0 - passed)

    async def _converge(self, *names: str) -> None:
        """Faults off: exactly these are served."""
        self._clear_up()
        await self.world.until(
            lambda: all(self._is_served(name) for name in names), CONVERGENCE_SECONDS, f"{names} are served"
        )

    def _is_served(self, name: str) -> bool:
        world = self.world
        ingress = world.ingress(name)
        outside = [entry["ip"] for entry in ingress if entry["ipMode"] == "Proxy"]
        found = [each for each in world.rack.state.floating_ips if str(each.ip) in outside]
        expected = [{"ip": ip, "ipMode": "Proxy"} for ip in outside]
        for each in sorted(found, key=lambda floating_ip: outside.index(str(floating_ip.ip))):
            holder = world.holder_of(each)
            if holder is None or world.instance(holder).state != "running":
                return False
            address = world.private_addresses(holder)[0 if each.ip.version == 4 else 1]
            expected += [{"ip": address, "ipMode": "VIP"}]
        count = 2 if name == "dns" else 1
        own = world.floating_ips_of(name)
        return len(found) == len(outside) == count and ingress == expected and len(own) <= count

    def _cloud_over(self) -> None:
        self._kube.is_fair = False
        self._clouds += 1
        for number, kind in enumerate(("unavailable", "lost_reply", "lost_request", "internal_error_after")):
            seed = (self.world.seed * 100 + self._clouds) * 10 + number
            rule = {"kind": kind, "probability": self._bad.rack / 4, "seed": seed}
            self.world.rack.app.faults.add(FaultRule.model_validate(rule))

    def _clear_up(self) -> None:
        self._kube.is_fair = True
        self.world.rack.app.faults.clear()


def _ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"name": f"tcp-{number}", "protocol": "TCP", "port": number} for number in numbers]
