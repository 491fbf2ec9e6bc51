"""The rack's networks: a container that holds the way to the host, and in it one network namespace for each VPC.

    host -- edge -- VPC -- NIC of a guest

A guest's NIC is one end of a pair whose other end is in its VPC's namespace, so guests meet nowhere but there: whatever
they send passes the VPC's rules. The pool's addresses are routed from the host to the edge, and from there to the VPC
that has them. On the host there is one interface, which goes when the container goes, and its routes with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from capox.rack.guests import container, netfilter
from capox.rack.guests.docker_cli import Docker, DockerError, NoSuchThingError
from capox.rack.guests.shell import Shell
from capox.rack.guests.wiring import Address, Network, Port, VpcWiring, Wiring

# The gateway of every subnet has the same MAC address, as on a real rack.
_GATEWAY_MAC = "a8:40:25:ff:77:77"
_LINKS = ipaddress.IPv4Network("169.254.0.0/17")
_FIRST_TABLE = 1000
_FORWARDING = (
    "for path in /proc/sys/net/ipv4/conf/*; do echo 0 >$path/rp_filter; echo 0 >$path/send_redirects; done; "
    "echo 1 >/proc/sys/net/ipv4/ip_forward"
)

_logger = structlog.get_logger()


@dataclasses.dataclass
class _Vpc:
    """A VPC's namespace, and what was last brought into it."""

    number: int
    wiring: VpcWiring | None = None

    @property
    def namespace(self) -> str:
        return f"vpc{self.number}"

    @property
    def device(self) -> str:
        return f"{netfilter.LINK_PREFIX}{self.number}"

    @property
    def edge_end(self) -> Address:
        return _LINKS[2 * self.number]

    @property
    def vpc_end(self) -> Address:
        return _LINKS[2 * self.number + 1]

    @property
    def table(self) -> int:
        return _FIRST_TABLE + self.number


class Fabric:
    """The networks of one rack. Its acts are to be done one at a time.

    Args:
        docker: the engine.
        labels: of the rack.
        image: what has the programs ip, nft, conntrack and nsenter.
        uplink: the host and the edge have the two addresses of this network.
        pools: the networks of the external addresses.
    """

    def __init__(
        self, docker: Docker, labels: container.Labels, image: str, uplink: Network, pools: Sequence[Network]
    ) -> None:
        self._docker = docker
        self._labels = labels
        self._image = image
        self._uplink = uplink
        self._pools = list(pools)
        self._shell = Shell(docker, labels.name(container.EDGE))
        self._vpcs: dict[str, _Vpc] = {}
        self._holders: dict[Address, tuple[str, Address]] = {}
        self._numbers = iter(range(1, _LINKS.num_addresses // 2))

    @property
    def host_address(self) -> Address:
        """The host's address, which guests reach too."""
        return self._uplink[1]

    async def open(self) -> None:
        """Start the container, and connect it with the host.

        Raises:
            DockerError: it cannot be; the networks are in use, a program is missing, the engine is not of this host.
        """
        await self._docker.run(*container.edge_words(self._labels, self._image))
        try:
            await self._check()
            await self._connect_host()
        except DockerError:
            await self.close()
            raise

    async def close(self) -> None:
        """Take everything away, on the host too."""
        await self._shell.close()
        with contextlib.suppress(NoSuchThingError):
            await self._docker.run("rm", "--force", "--volumes", self._labels.name(container.EDGE))
        self._vpcs.clear()
        self._holders.clear()

    async def shell(self, script: str) -> str:
        """Run a script in the container, with the host's processes in sight.

        Raises:
            DockerError: a command of it failed.
        """
        return await self._shell.run(script)

    async def host_shell(self, script: str) -> str:
        """Run a script with the host's network, whose settings are apart; also when the container is not there.

        Somebody may have removed it by hand, and what was changed on the host has to be put back all the same.

        Raises:
            DockerError: a command of it failed.
        """
        within = f"nsenter -t {os.getpid()} -n /bin/sh -eu <<'END'\n{script}END\n"
        try:
            is_there = (await self._docker.inspect("container", self._labels.name(container.EDGE)))["State"]["Running"]
        except NoSuchThingError:
            is_there = False
        if is_there:
            return await self.shell(within)
        return await self._docker.text(*container.single_words(self._labels, self._image), stdin=within.encode())

    async def plug(self, ports: Sequence[Port], wiring: Wiring, pid: int) -> None:
        """Give a guest its NICs; addresses and rules hold before its first packet.

        Args:
            ports: the NICs, all of one VPC.
            wiring: as it is now.
            pid: a process of the guest.

        Raises:
            DockerError: it cannot be done.
        """
        vpc = await self._vpc(ports[0].vpc)
        await self.apply(wiring)
        await self.shell("".join(_plugging(vpc.namespace, port, pid) for port in ports))

    async def unplug(self, ports: Sequence[Port]) -> None:
        """Take a guest's NICs away. Its own network can stay for minutes, for connections that nobody ends.

        Args:
            ports: the NICs as they were plugged, all of one VPC.

        Raises:
            DockerError: it cannot be done.
        """
        vpc = self._vpcs.get(ports[0].vpc)
        if vpc is not None:
            lines = [f"ip -n {vpc.namespace} link del {port.device} 2>/dev/null || true" for port in ports]
            await self.shell("\n".join(lines))

    async def apply(self, wiring: Wiring) -> None:
        """Bring addresses, translations and rules of all VPCs with guests to what the rack says.

        Raises:
            DockerError: it cannot be done.
        """
        gone = self._holders.keys() - wiring.holders.keys()
        for identity, vpc in list(self._vpcs.items()):
            if identity in wiring.vpcs:
                await self._bring(vpc, wiring.vpcs[identity])
        moved = {external for external, holder in wiring.holders.items() if self._holders.get(external) != holder}
        script = [f"ip route del {external}/32 || true\n" for external in sorted(gone)]
        for external in sorted(moved):
            vpc_of = self._vpcs.get(wiring.holders[external][0])
            if vpc_of is None:
                # Nothing of the VPC has ever run, so nobody answers there.
                script.append(f"ip route del {external}/32 2>/dev/null || true\n")
            else:
                script.append(f"ip route replace {external}/32 via {vpc_of.vpc_end} dev {vpc_of.device}\n")
        script += [
            self._forgetting(external) for external in sorted(gone | {each for each in moved if each in self._holders})
        ]
        if script:
            await self.shell("".join(script))
        self._holders = {external: holder for external, holder in wiring.holders.items() if holder[0] in self._vpcs}
        for identity in self._vpcs.keys() - wiring.vpcs.keys():
            await self._drop(identity)

    async def _check(self) -> None:
        missing = await self.shell(
            "for program in ip nft conntrack nsenter; do command -v $program >/dev/null || echo $program; done"
        )
        if missing:
            raise DockerError(f"image {self._image} lacks {', '.join(missing.split())}, which the rack's networks need")
        here = _network_namespace()
        there = await self.shell(f"readlink /proc/{os.getpid()}/ns/net 2>/dev/null || true")
        if here != there:
            raise DockerError("the engine does not see this computer's processes; guests need one that runs right here")
        taken = await self.shell(f"nsenter -t {os.getpid()} -n ip -4 -o route show table all")
        for block in [self._uplink, *self._pools]:
            for line in taken.splitlines():
                if (found := _destination(line)) is not None and found.overlaps(block):
                    raise DockerError(f"network {block} meets the route of this computer to {found}; choose another")

    async def _connect_host(self) -> None:
        """Route the pools to the edge, and from there nowhere until somebody has an address."""
        pid, device = os.getpid(), self._labels.device
        host, edge = self._uplink[1], self._uplink[2]
        lines = [
            _FORWARDING,
            f"ip link add {device} type veth peer name host0",
            "ip link set lo up",
            f"ip address add {edge}/{self._uplink.prefixlen} dev host0",
            "ip link set host0 up",
            f"ip link set {device} netns {pid}",
            f"nsenter -t {pid} -n ip address add {host}/{self._uplink.prefixlen} dev {device}",
            f"nsenter -t {pid} -n ip link set {device} up",
            f"ip route add default via {host}",
        ]
        for pool in self._pools:
            lines.append(f"ip route add unreachable {pool}")
            lines.append(f"nsenter -t {pid} -n ip route add {pool} via {edge} dev {device}")
        await self.shell("\n".join(lines))

    async def _vpc(self, identity: str) -> _Vpc:
        if identity in self._vpcs:
            return self._vpcs[identity]
        vpc = _Vpc(next(self._numbers))
        inside = f"ip netns exec {vpc.namespace}"
        lines = [
            f"ip netns add {vpc.namespace}",
            f"ip link add {vpc.device} type veth peer name {netfilter.UPLINK} netns {vpc.namespace}",
            f"{inside} /bin/sh -euc '{_FORWARDING}'",
            f"ip -n {vpc.namespace} link set lo up",
            f"ip -n {vpc.namespace} address add {vpc.vpc_end}/31 dev {netfilter.UPLINK}",
            f"ip -n {vpc.namespace} link set {netfilter.UPLINK} up",
            f"ip address add {vpc.edge_end}/31 dev {vpc.device}",
            f"ip link set {vpc.device} up",
            f"ip -n {vpc.namespace} route add default via {vpc.edge_end}",
            f"ip route add default via {vpc.vpc_end} dev {vpc.device} table {vpc.table}",
            f"ip rule add fwmark {vpc.number} lookup {vpc.table}",
        ]
        await self.shell("\n".join(lines))
        self._vpcs[identity] = vpc
        await self._write_edge()
        return vpc

    async def _drop(self, identity: str) -> None:
        vpc = self._vpcs.pop(identity)
        await self._write_edge()
        await self.shell(f"ip rule del fwmark {vpc.number} lookup {vpc.table}\nip netns del {vpc.namespace}\n")

    async def _write_edge(self) -> None:
        await self._load("nft", netfilter.edge_table(vpc.number for vpc in self._vpcs.values()))

    async def _bring(self, vpc: _Vpc, wiring: VpcWiring) -> None:
        """Write a VPC's rules and its own addresses, if they have changed."""
        if vpc.wiring == wiring:
            return
        known = vpc.wiring
        await self._load(f"ip netns exec {vpc.namespace} nft", netfilter.vpc_table(wiring))
        script = []
        for kind, now, before in (
            ("address {act} {what}/32 dev lo", wiring.gateways, known.gateways if known else ()),
            ("route {act} unreachable {what}", wiring.blocks, known.blocks if known else ()),
        ):
            # What was begun and failed half way is done again, so nothing minds being done twice.
            script += [f"{kind.format(act='del', what=what)} || true" for what in before if what not in now]
            script += [kind.format(act="replace", what=what) for what in now if what not in before]
        if known is not None:
            script += _cutting(vpc.namespace, known, wiring)
        lines = [line if line.startswith("ip ") else f"ip -n {vpc.namespace} {line}" for line in script]
        if lines:
            await self.shell("\n".join(lines))
        vpc.wiring = wiring

    async def _load(self, nft: str, table: str) -> None:
        """Give a table to nft."""
        await self.shell(f"{nft} -f - <<'END'\n{table}END\n")

    def _forgetting(self, external: Address) -> str:
        """Connections by an address that was moved or taken end, at the edge and where it was.

        A real rack's translation does so too; otherwise they would go on with the old holder.
        """
        lines = _conntrack("", external)
        before = self._holders.get(external)
        if before is not None and before[0] in self._vpcs:
            lines += _conntrack(f"ip netns exec {self._vpcs[before[0]].namespace} ", external)
        return "".join(f"{line}\n" for line in lines)


def _network_namespace() -> str:
    """What tells this process's network namespace from others."""
    return str(Path("/proc/self/ns/net").readlink())


def _plugging(namespace: str, port: Port, pid: int) -> str:
    """The commands that give a guest one NIC; the default route comes last, the guest may wait for it."""
    inside, device = f"nsenter -t {pid} -n ip", f"eth{port.slot}"
    lines = [
        # A guest that died by itself may have left it.
        f"ip -n {namespace} link del {port.device} 2>/dev/null || true",
        # The peer is made under a name that no other one has, and gets its own where no other one is.
        f"ip link add {port.device} netns {namespace} address {_GATEWAY_MAC} type veth peer name p{port.device[1:]}",
        f"ip -n {namespace} link set {port.device} up",
        # Replaced: another guest that had the address before may have left it too.
        f"ip -n {namespace} route replace {port.address}/32 dev {port.device} src {port.gateway}",
        f"ip link set p{port.device[1:]} netns {pid} name {device} address {port.mac}",
        f"{inside} link set lo up",
        f"{inside} address add {port.address}/32 dev {device}",
        f"{inside} link set {device} up",
        f"{inside} route add {port.gateway}/32 dev {device} scope link",
    ]
    if port.is_primary:
        lines.append(f"{inside} route add default via {port.gateway} dev {device}")
    return "".join(f"{line}\n" for line in lines)


def _cutting(namespace: str, before: VpcWiring, now: VpcWiring) -> list[str]:
    """Connections under an address that a guest is not seen as any more end."""
    kept = dict(now.egress)
    return [
        _deleting(f"ip netns exec {namespace} ", f"--orig-src {private} --reply-dst {seen.address}")
        for private, seen in before.egress
        if kept.get(private) != seen
    ]


def _conntrack(inside: str, external: Address) -> list[str]:
    """Connections to an address, and those that are seen as coming from it, end."""
    return [_deleting(inside, f"--orig-dst {external}"), _deleting(inside, f"--reply-dst {external}")]


def _deleting(inside: str, which: str) -> str:
    # That nothing is found is an error to conntrack, and none to us.
    return f"{inside}conntrack -D {which} >/dev/null 2>&1 || true"


def _destination(route: str) -> Network | None:
    """The network that a line of `ip route show` leads to; None for the default route and what is not a network."""
    words = route.split()
    if words and words[0] in {"local", "broadcast", "unreachable", "blackhole", "unicast"}:
        words = words[1:]
    try:
        return ipaddress.IPv4Network(words[0])
    except (ValueError, IndexError):
        return None


def networks_of(ranges: Iterable[tuple[object, object]]) -> list[Network]:
    """The networks that cover ranges of addresses, those of IPv6 left out."""
    found: list[Network] = []
    for first, last in ranges:
        if isinstance(first, Address) and isinstance(last, Address):
            found += ipaddress.summarize_address_range(first, last)
    return list(ipaddress.collapse_addresses(found))
