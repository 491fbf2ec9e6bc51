"""A whole life on the rack: one run that brings every operation to success, in the order in which a user would."""

from __future__ import annotations

import base64
import ipaddress
from typing import Any

from capox.rack import document, records
from capox.rack.call import HANDLERS
from capox.rack.state import Timing
from tests.rack import GIB, RackUnderTest

# Nothing takes time, so that requests are answered at once and states change when the time is made to pass.
INSTANT = Timing(instance_create=0, disk_create=0, disk_delete=0, address_change=0, sled_timeout=0)

BLANK: dict[str, Any] = {"type": "distributed", "disk_source": {"type": "blank", "block_size": 512}}
FINALIZED: dict[str, Any] = {"type": "distributed", "disk_source": {"type": "importing_blocks", "block_size": 512}}

NOWHERE = "00000000-0000-4000-8000-000000000000"

SUBNETS = ipaddress.ip_network("203.0.113.0/24")
SLICE: dict[str, Any] = {"type": "auto", "prefix_length": 28, "pool_selector": {"type": "auto", "ip_version": "v4"}}


class Life:
    """Calls operations of a rack by their operationId.

    Args:
        rack: the rack, with its client open.
    """

    def __init__(self, rack: RackUnderTest) -> None:
        self.rack = rack
        self._operations = document.load().operations

    async def do(self, operation_id: str, body: Any = None, *, user: str | None = "admin", **values: Any) -> Any:
        """Call an operation, which has to succeed with the status that the document gives; returns the body."""
        operation = self._operations[operation_id]
        method, path, query = self._request(operation_id, values)
        return await self.rack.must(operation.success_status, method, path, body, user=user, **query)

    async def knock(self, operation_id: str) -> int:
        """Call an operation without credentials, about what is not there; returns the status."""
        operation = self._operations[operation_id]
        variables = {parameter.name: NOWHERE for parameter in operation.in_place("path")}
        body: dict[str, Any] | None = {} if operation.request_schema is not None else None
        method, path, query = self._request(operation_id, {**variables, "project": NOWHERE})
        return (await self.rack.ask(method, path, body, user=None, **query)).status_code

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each implemented operation was answered by 2xx, and how often by 4xx."""
        found = dict.fromkeys(sorted(HANDLERS), (0, 0))
        for entry in self.rack.app.log.entries():
            if entry.operation in found and entry.status is not None:
                good, bad = found[entry.operation]
                found[entry.operation] = (good + (entry.status < 300), bad + (400 <= entry.status < 500))
        return found

    def _request(self, operation_id: str, values: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        operation = self._operations[operation_id]
        variables = {parameter.name for parameter in operation.in_place("path")}
        path = operation.path.format(**{name: values[name] for name in variables})
        return operation.method, path, {name: value for name, value in values.items() if name not in variables}


def named(name: str, **fields: Any) -> dict[str, Any]:
    """A body with a name, a description and more."""
    return {"name": name, "description": "", **fields}


def furnish(rack: RackUnderTest) -> None:
    """Give the rack what only its operator can: a pool of external subnets."""
    rack.state.subnet_pools.insert(
        records.SubnetPool(
            **rack.state.identity("routed", ""), version="v4", networks=[SUBNETS], links={rack.silo.id: True}
        )
    )


async def settle_in(life: Life) -> dict[str, tuple[str, str]]:
    """Put one of each resource into the project `demo`; returns name and id of each by the API's parameter for it."""
    where: dict[str, Any] = {"project": "demo"}
    allocator = {"type": "auto", "pool_selector": {"type": "explicit", "pool": "public-v4"}}
    key = await life.do("current_user_ssh_key_create", named("laptop", public_key="ssh-ed25519 AAAA a@b"))
    disk = await life.do("disk_create", named("data", size=2 * GIB, disk_backend=BLANK), **where)
    snapshot = await life.do("snapshot_create", named("copy", disk="data"), **where)
    door = await life.do("floating_ip_create", named("door", address_allocator=allocator), **where)
    prefix = await life.do("external_subnet_create", named("prefix", allocator=SLICE), **where)
    group = await life.do("anti_affinity_group_create", named("apart", policy="allow", failure_domain="sled"), **where)
    boot: dict[str, Any] = named("boot", type="create", size=2 * GIB, disk_backend=BLANK)
    body = named("node", hostname="node", ncpus=2, memory=2 * GIB, boot_disk=boot, anti_affinity_groups=["apart"])
    node = await life.do("instance_create", body | {"start": False}, **where)
    (nic,) = (await life.do("instance_network_interface_list", instance="node", **where))["items"]
    vpc = await life.do("vpc_view", vpc="default", **where)
    subnet = await life.do("vpc_subnet_view", subnet="default", vpc="default", **where)
    router = await life.do("vpc_router_view", router="system", vpc="default", **where)
    route = await life.do("vpc_router_route_view", route="default-v4", router="system", vpc="default", **where)
    gateway = await life.do("internet_gateway_view", gateway="default", vpc="default", **where)
    pool = await life.do("ip_pool_view", pool="public-v4")
    found = {
        "anti_affinity_group": group,
        "disk": disk,
        "external_subnet": prefix,
        "floating_ip": door,
        "gateway": gateway,
        "image": life.rack.image,
        "instance": node,
        "interface": nic,
        "pool": pool,
        "project": life.rack.project,
        "route": route,
        "router": router,
        "snapshot": snapshot,
        "ssh_key": key,
        "subnet": subnet,
        "vpc": vpc,
    }
    return {
        parameter: (each["name"], each["id"]) if isinstance(each, dict) else (each.name, each.id)
        for parameter, each in found.items()
    }


async def live(life: Life) -> None:
    """Bring every operation to success."""
    for part in (_account, _network, _storage, _instance, _addresses, _groups, _farewell):
        await part(life)


async def _account(life: Life) -> None:
    await life.do("ping", user=None)
    await life.do("current_user_view")
    await life.do("current_user_ssh_key_create", named("laptop", public_key="ssh-ed25519 AAAA a@b"))
    await life.do("current_user_ssh_key_create", named("old", public_key="ssh-ed25519 BBBB a@b"))
    await life.do("current_user_ssh_key_view", ssh_key="laptop")
    await life.do("current_user_ssh_key_list")
    await life.do("current_user_ssh_key_delete", ssh_key="old")
    # Of a user who is there no longer than this.
    leaving = life.rack.add_user("leaving", life.rack.silo, "viewer")
    (token,) = (await life.do("current_user_access_token_list", user="leaving"))["items"]
    await life.do("current_user_access_token_delete", token_id=token["id"], user="leaving")
    life.rack.state.users.delete(leaving)
    await life.do("project_create", named("life"))
    await life.do("project_update", {"description": "changed"}, project="life")
    await life.do("project_view", project="life")
    await life.do("project_list")
    await life.do("utilization_view")


async def _network(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    await life.do("vpc_create", named("net", dns_name="net"), **where)
    await life.do("vpc_view", vpc="net", **where)
    await life.do("vpc_list", **where)
    await life.do("vpc_update", {"description": "changed"}, vpc="net", **where)
    within = {"vpc": "net", **where}
    await life.do("vpc_subnet_create", named("more", ipv4_block="10.1.0.0/24"), **within)
    await life.do("vpc_subnet_view", subnet="more", **within)
    await life.do("vpc_subnet_list", **within)
    await life.do("vpc_subnet_update", {"description": "changed"}, subnet="more", **within)
    rule = named(
        "allow-api",
        action="allow",
        direction="inbound",
        filters={"ports": ["6443"], "protocols": [{"type": "tcp"}, {"type": "icmp", "value": None}]},
        priority=100,
        status="enabled",
        targets=[{"type": "vpc", "value": "net"}],
    )
    await life.do("vpc_firewall_rules_update", {"rules": [rule]}, **within)
    await life.do("vpc_firewall_rules_view", **within)
    await life.do("vpc_router_list", **within)
    await life.do("vpc_router_view", router="system", **within)
    await life.do("vpc_router_route_list", router="system", **within)
    await life.do("vpc_router_route_view", route="default-v4", router="system", **within)
    await life.do("internet_gateway_list", **within)
    await life.do("internet_gateway_view", gateway="default", **within)
    await life.do("internet_gateway_ip_pool_list", gateway="default", **within)
    await life.do("ip_pool_list")
    await life.do("ip_pool_view", pool="public-v4")
    await life.do("subnet_pool_list")
    await life.do("subnet_pool_view", pool="routed")


async def _storage(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    await life.do("disk_create", named("data", size=2 * GIB, disk_backend=BLANK), **where)
    await life.do("disk_view", disk="data", **where)
    await life.do("disk_list", **where)
    await life.do("disk_create", named("import", size=GIB, disk_backend=FINALIZED), **where)
    await life.do("disk_bulk_write_import_start", disk="import", **where)
    block = {"offset": 0, "base64_encoded_data": base64.b64encode(bytes(512)).decode()}
    await life.do("disk_bulk_write_import", block, disk="import", **where)
    await life.do("disk_bulk_write_import_stop", disk="import", **where)
    await life.do("disk_finalize_import", {"snapshot_name": "imported"}, disk="import", **where)
    await life.do("snapshot_view", snapshot="imported", **where)
    snapshot = await life.do("snapshot_create", named("second", disk="data"), **where)
    await life.do("snapshot_list", **where)
    source = {"type": "snapshot", "id": snapshot["id"]}
    await life.do("image_create", named("mine", os="linux", version="1", source=source), **where)
    await life.do("image_view", image="mine", **where)
    await life.do("image_list", **where)
    await life.do("image_promote", image="mine", **where)
    await life.do("image_demote", image="mine", **where)
    await life.do("image_delete", image="mine", **where)
    await life.do("snapshot_delete", snapshot="imported", **where)
    await life.do("disk_delete", disk="import", **where)


async def _instance(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    node: dict[str, Any] = {"instance": "node", **where}
    source = {"type": "image", "image_id": life.rack.image.id}
    boot = named("boot", type="create", size=4 * GIB, disk_backend={"type": "distributed", "disk_source": source})
    body: dict[str, Any] = named("node", hostname="node", ncpus=2, memory=4 * GIB, boot_disk=boot)
    await life.do("instance_create", body, **where)
    life.rack.pass_time(1)
    assert (await life.do("instance_view", **node))["run_state"] == "running"
    await life.do("instance_list", **where)
    await life.do("instance_ssh_public_key_list", **node)
    await life.do("instance_serial_console", from_start=0, **node)
    await life.do("instance_reboot", **node)
    life.rack.pass_time(1)
    await life.do("instance_stop", **node)
    life.rack.pass_time(1)
    await life.do("instance_disk_attach", {"disk": "data"}, **node)
    await life.do("instance_disk_list", **node)
    await life.do("instance_disk_detach", {"disk": "data"}, **node)
    change = {"ncpus": 4, "memory": 8 * GIB, "boot_disk": "boot", "auto_restart_policy": "never"}
    await life.do("instance_update", change | {"cpu_platform": None, "enable_jumbo_frames": False}, **node)
    interface = named("extra", vpc_name="default", subnet_name="wide")
    await life.do("vpc_subnet_create", named("wide", ipv4_block="10.2.0.0/24"), vpc="default", **where)
    await life.do("instance_network_interface_create", interface, **node)
    await life.do("instance_network_interface_view", interface="extra", **node)
    await life.do("instance_network_interface_list", **node)
    await life.do("vpc_subnet_list_network_interfaces", subnet="wide", vpc="default", **where)
    await life.do("instance_network_interface_update", {"transit_ips": ["10.9.0.0/16"]}, interface="extra", **node)
    await life.do("instance_network_interface_delete", interface="extra", **node)
    await life.do("instance_start", **node)
    life.rack.pass_time(1)


async def _addresses(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    node: dict[str, Any] = {"instance": "node", **where}
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    door = {"floating_ip": "door", **where}
    await life.do("floating_ip_create", named("door", address_allocator=allocator), **where)
    await life.do("floating_ip_view", **door)
    await life.do("floating_ip_list", **where)
    await life.do("floating_ip_update", {"description": "changed"}, **door)
    await life.do("floating_ip_attach", {"kind": "instance", "parent": "node"}, **door)
    await life.do("instance_external_ip_list", **node)
    await life.do("floating_ip_detach", **door)
    await life.do("floating_ip_delete", **door)
    await life.do("instance_ephemeral_ip_attach", {"pool_selector": allocator["pool_selector"]}, **node)
    await life.do("instance_ephemeral_ip_detach", **node)
    prefix = {"external_subnet": "prefix", **where}
    await life.do("external_subnet_create", named("prefix", allocator=SLICE), **where)
    await life.do("external_subnet_view", **prefix)
    await life.do("external_subnet_list", **where)
    await life.do("external_subnet_update", {"description": "changed"}, **prefix)
    await life.do("external_subnet_attach", {"instance": "node"}, **prefix)
    await life.do("instance_external_subnet_list", **node)
    await life.do("external_subnet_detach", **prefix)
    await life.do("external_subnet_delete", **prefix)


async def _groups(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    node: dict[str, Any] = {"instance": "node", **where}
    apart: dict[str, Any] = {"anti_affinity_group": "apart", **where}
    await life.do("instance_stop", **node)
    life.rack.pass_time(1)
    await life.do("anti_affinity_group_create", named("apart", policy="fail", failure_domain="sled"), **where)
    await life.do("anti_affinity_group_view", **apart)
    await life.do("anti_affinity_group_list", **where)
    await life.do("anti_affinity_group_update", {"description": "changed"}, **apart)
    await life.do("anti_affinity_group_member_instance_add", **apart, instance="node")
    await life.do("anti_affinity_group_member_instance_view", **apart, instance="node")
    await life.do("anti_affinity_group_member_list", **apart)
    await life.do("instance_anti_affinity_group_list", **node)
    await life.do("anti_affinity_group_member_instance_delete", **apart, instance="node")
    await life.do("anti_affinity_group_delete", **apart)


async def _farewell(life: Life) -> None:
    where: dict[str, Any] = {"project": "life"}
    await life.do("instance_delete", instance="node", **where)
    for disk in ("boot", "data"):
        await life.do("disk_delete", disk=disk, **where)
    await life.do("snapshot_delete", snapshot="second", **where)
    for vpc, subnets in (("net", ("default", "more")), ("default", ("default", "wide"))):
        for subnet in subnets:
            await life.do("vpc_subnet_delete", subnet=subnet, vpc=vpc, **where)
        await life.do("vpc_delete", vpc=vpc, **where)
    await life.do("project_delete", project="life")
    await life.do("current_user_ssh_key_delete", ssh_key="laptop")
