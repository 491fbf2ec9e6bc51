"""The state of a rack: its tables, its time, and the invariants that hold between them.

Everything here is synchronous and does no I/O. The operations of the API (`operations`) read and change this state;
time changes it through the
agenda. `settle` has to be called before anybody looks.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import itertools
import random
import uuid
from collections.abc import Callable
from typing import Any

from capox.rack import records
from capox.rack.addresses import LowestFree, PortShares
from capox.rack.clock import Agenda, Clock
from capox.rack.document import Document
from capox.rack.guests.interface import Guests
from capox.rack.guests.nothing import NoGuests
from capox.rack.table import Listing, Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take, in seconds.

    A real rack's figures are in the explanation of the rack; the defaults are quick and never zero.

    Attributes:
        instance_create: the create request itself, during which the instance can be seen in state `creating`.
        instance_start: from `starting` to `running`.
        instance_stop: from `stopping` to `stopped`.
        instance_reboot: from `rebooting` to `running`.
        disk_create: the create request of one disk.
        disk_delete: the delete request of one disk.
        address_change: attach and detach requests of external addresses.
        failure_notice: from a lost sled or guest until its instances show `failed`.
        auto_restart: from `failed` to the automatic start.
        auto_restart_cooldown: between two automatic starts of one instance.
        sled_timeout: how long a request waits for a sled that does not answer.
    """

    instance_create: float = 0.05
    instance_start: float = 0.5
    instance_stop: float = 0.5
    instance_reboot: float = 0.5
    disk_create: float = 0.02
    disk_delete: float = 0.02
    address_change: float = 0.02
    failure_notice: float = 0.5
    auto_restart: float = 1.0
    auto_restart_cooldown: float = 300.0
    sled_timeout: float = 1.0


class Rack:
    """Everything that the rack knows.

    Args:
        document: the OpenAPI document that it speaks.
        clock: its time.
        randomness: where ids, MAC addresses and prefixes come from; a seeded one makes two runs alike.
        timing: how long things take.
    """

    def __init__(self, *, document: Document, clock: Clock, randomness: random.Random, timing: Timing) -> None:
        self.document = document
        self.clock = clock
        self.randomness = randomness
        self.timing = timing
        self.latest_version = document.version
        self.agenda = Agenda()
        # What runs inside the instances.
        self.guests: Guests = NoGuests()

        self.silos: Table[records.Silo] = Table("silo")
        self.users: Table[records.User] = Table("silo-user")
        self.tokens: dict[str, records.Token] = {}
        self.ssh_keys: Table[records.SshKey] = Table("ssh-key")
        self.projects: Table[records.Project] = Table("project")
        self.instances: Table[records.Instance] = Table("instance")
        self.disks: Table[records.Disk] = Table("disk")
        self.snapshots: Table[records.Snapshot] = Table("snapshot")
        self.images: Table[records.Image] = Table("image")
        self.vpcs: Table[records.Vpc] = Table("vpc")
        self.subnets: Table[records.VpcSubnet] = Table("vpc-subnet")
        self.routers: Table[records.VpcRouter] = Table("vpc-router")
        self.routes: Table[records.RouterRoute] = Table("router-route")
        self.gateways: Table[records.InternetGateway] = Table("internet-gateway")
        self.gateway_ip_pools: Table[records.InternetGatewayIpPool] = Table("internet-gateway-ip-pool")
        self.network_interfaces: Table[records.NetworkInterface] = Table("instance-network-interface")
        self.ip_pools: Table[records.IpPool] = Table("ip-pool")
        self.floating_ips: Table[records.FloatingIp] = Table("floating-ip")
        self.anti_affinity_groups: Table[records.AntiAffinityGroup] = Table("anti-affinity-group")
        self.subnet_pools: Table[records.SubnetPool] = Table("subnet-pool")
        self.external_subnets: Table[records.ExternalSubnet] = Table("external-subnet")
        self.sleds: dict[str, records.Sled] = {}

        # Room for distributed disks and snapshots, whatever the quotas say, and what they have taken of it.
        self.storage_capacity_bytes: int | None = None
        self.storage_allocated_bytes = 0
        # The largest physical disk of a sled, which no local disk can exceed.
        self.physical_disk_bytes: int | None = None

        # What belongs to an instance, by the instance's id, so that no look-up walks a whole project.
        self.disks_of: dict[str, dict[str, records.Disk]] = {}
        self.floating_ips_of: dict[str, dict[str, records.FloatingIp]] = {}
        self.ephemeral_ips_of: dict[str, list[records.EphemeralIp]] = {}
        self.snat_ips_of: dict[str, records.SnatIp] = {}
        self.groups_of: dict[str, dict[str, records.AntiAffinityGroup]] = {}
        self.external_subnets_of: dict[str, dict[str, records.ExternalSubnet]] = {}
        # The NICs of a subnet, by the subnet's id, and the MAC addresses of all NICs as numbers.
        self.network_interfaces_in: dict[str, Listing[records.NetworkInterface]] = {}
        self.mac_addresses: set[int] = set()

        # Addresses in use: of an IP pool by the pool's id, of a subnet by the subnet's id and the family, of a prefix
        # of a subnet pool by the prefix's id; and the ports of the addresses of an IP pool that instances share.
        self.pool_addresses: dict[str, LowestFree] = {}
        self.subnet_addresses: dict[tuple[str, records.IpVersion], LowestFree] = {}
        self.subnet_pool_addresses: dict[str, LowestFree] = {}
        self.snat_shares: dict[str, PortShares] = {}
        # Numbers the attaches and detaches of external addresses; see `records.FloatingIp.change`.
        self.address_changes = itertools.count(1)

    def now(self) -> datetime.datetime:
        """The rack's wall clock."""
        return self.clock.now()

    def settle(self) -> None:
        """Do everything that is due by now."""
        self.agenda.run_until(self.clock.now())

    def after(self, seconds: float, act: Callable[[datetime.datetime], None]) -> None:
        """Enter an act on the agenda; it is given the time at which it was due."""
        self.agenda.enter(self.clock.now() + datetime.timedelta(seconds=seconds), act)

    def new_id(self) -> str:
        """A fresh UUID, version 4."""
        return str(uuid.UUID(int=self.randomness.getrandbits(128), version=4))

    def identity(self, name: str, description: str) -> dict[str, Any]:
        """The fields that every new named record starts with."""
        moment = self.now()
        return {
            "id": self.new_id(),
            "name": name,
            "description": description,
            "time_created": moment,
            "time_modified": moment,
        }

    def add_ip_pool(self, pool: records.IpPool) -> records.IpPool:
        """Add a pool and the addresses that it hands out."""
        self.ip_pools.insert(pool)
        addresses = LowestFree([(int(first), int(last)) for first, last in pool.ranges])
        self.pool_addresses[pool.id] = addresses
        self.snat_shares[pool.id] = PortShares(addresses)
        return pool

    def add_subnet(self, subnet: records.VpcSubnet) -> records.VpcSubnet:
        """Add a subnet and the addresses that its NICs get: all but the first five and the last (semantics 7.3)."""
        self.subnets.insert(subnet)
        self.network_interfaces_in[subnet.id] = Listing()
        v4, v6 = subnet.ipv4_block, subnet.ipv6_block
        self.subnet_addresses[subnet.id, "v4"] = LowestFree([(int(v4[5]), int(v4[-2]))])
        self.subnet_addresses[subnet.id, "v6"] = LowestFree([(int(v6[5]), int(v6[-1]) - 1)])
        return subnet

    def remove_subnet(self, subnet: records.VpcSubnet) -> None:
        """Take a subnet away, with its address book."""
        self.subnets.delete(subnet)
        del self.network_interfaces_in[subnet.id]
        del self.subnet_addresses[subnet.id, "v4"]
        del self.subnet_addresses[subnet.id, "v6"]


def address(number: int, version: records.IpVersion) -> records.IpAddress:
    """The address with this number."""
    return ipaddress.IPv4Address(number) if version == "v4" else ipaddress.IPv6Address(number)
