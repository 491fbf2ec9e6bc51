"""The firewall of a cluster's VPC, in the simulated world."""

from __future__ import annotations

import base64
from typing import Any

from capox.kube.kind import SECRETS
from capox.ownership import OwnerMark, format_mark
from capox.provider import names
from capox.provider.kinds import OXIDE_CLUSTERS
from tests.sim.cluster_api import CREDENTIALS, NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import World

CONTROL_PLANE, WORKER = (names.instance_name(NAMESPACE, machine) for machine in ("web-cp-0", "web-w-0"))
BORN_WITH = ["allow-icmp", "allow-internal-inbound", "allow-ssh"]


def rules(world: World) -> dict[str, Any]:
    """The rules of the VPC by name."""
    (vpc,) = world.rack.state.vpcs
    return {rule["name"]: rule for rule in vpc.firewall_rules}


def condition(world: World) -> dict[str, str]:
    """The condition FirewallReady."""
    (cluster,) = world.store.list(OXIDE_CLUSTERS, NAMESPACE)
    conditions = (cluster.get("status") or {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "FirewallReady"), {})


def targets(rule: Any) -> set[str]:
    """The names of the instances that a rule protects."""
    assert {target["type"] for target in rule["targets"]} == {"instance"}
    return {target["value"] for target in rule["targets"]}


def hosts(world: World) -> set[str]:
    """From where the API server is reached."""
    return {host["value"] for host in rules(world)["capi-fw-team-web-api-0"]["filters"]["hosts"]}


def collaborate(world: World) -> None:
    """Give the provider the credentials of somebody who may change networks."""
    token = base64.b64encode(b"oxide-token-collaborator").decode()
    world.store.patch(SECRETS, NAMESPACE, CREDENTIALS, {"data": {"oxide-token": token}})


@simulated
async def test_rules_follow_the_cluster() -> None:
    """They come with the instances, open a load balancer's ports, are repaired, and go; others' rules stay."""
    world = World(0)
    world.clear_up()
    collaborate(world)
    core, image = world.cluster_api, {"imageID": world.rack.image.id}
    firewall = {"mode": "Managed", "apiServerSources": ["192.0.2.0/24"]}
    core.add_cluster("web", ipType="v4", firewall=firewall)
    core.add_machine("web", "web-cp-0", image, is_control_plane=True)
    core.add_machine("web", "web-w-0", image)
    await world.until(lambda: "capi-fw-team-web-api-0" in rules(world), 120, "the API server's rule is there")
    await world.until(lambda: condition(world).get("status") == "True", 60, "the condition says so")
    api = rules(world)["capi-fw-team-web-api-0"]
    assert targets(api) == {CONTROL_PLANE}
    assert api["filters"]["ports"] == ["6443"]
    # And what the instances' own connections come from: a shared address, and soon the endpoint's floating IP.
    await world.until(lambda: len(hosts(world)) == 3, 60, "the instances' own addresses are let in")
    assert "192.0.2.0/24" in hosts(world)
    assert {str(each.ip) for each in world.rack.state.floating_ips} <= hosts(world)

    (cluster,) = world.store.list(OXIDE_CLUSTERS, NAMESPACE)
    mark = OwnerMark(
        kind="Service",
        namespace="default",
        name="shop",
        uid="a-uid",
        cluster_id=cluster["spec"]["clusterID"],
        further={"ports": "tcp:80,udp:53"},
    )
    allocator = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    body = {"name": "shop", "description": format_mark(mark), "address_allocator": allocator}
    await world.rack.must(201, "POST", "/v1/floating-ips", body, project="demo")
    await world.until(lambda: "capi-fw-team-web-udp-0" in rules(world), 60, "the load balancer's ports are open")
    assert targets(rules(world)["capi-fw-team-web-tcp-0"]) == {CONTROL_PLANE, WORKER}
    core.add_machine("web", "web-w-1", image)
    await world.until(lambda: len(targets(rules(world)["capi-fw-team-web-tcp-0"])) == 3, 60, "for the new machine too")

    (vpc,) = world.rack.state.vpcs
    vpc.firewall_rules = [rule for rule in vpc.firewall_rules if rule["name"] != "capi-fw-team-web-api-0"]
    await world.until(lambda: "capi-fw-team-web-api-0" in rules(world), 150, "what was taken away is there again")

    core.delete_cluster("web")
    await world.until(lambda: not world.store.list(OXIDE_CLUSTERS, NAMESPACE), 300, "the cluster is gone")
    assert sorted(rules(world)) == BORN_WITH
    await world.end()


@simulated
async def test_credentials_without_the_right_are_told() -> None:
    """A user who may not change networks: the condition says what is needed, and the cluster works all the same."""
    world = World(0)
    world.clear_up()
    core = world.cluster_api
    core.add_cluster("web", ipType="v4", firewall={"mode": "Managed"})
    core.add_machine("web", "web-cp-0", {"imageID": world.rack.image.id}, is_control_plane=True)

    await world.until(lambda: "collaborator" in condition(world).get("message", ""), 150, "the condition says so")
    await world.until(lambda: world.running() == [CONTROL_PLANE], 60, "the machine runs")
    core.delete_cluster("web")
    await world.until(lambda: not world.store.list(OXIDE_CLUSTERS, NAMESPACE), 300, "the cluster is gone")
    await world.end()


@simulated
async def test_unmanaged_firewall_is_only_looked_at() -> None:
    """Nothing is written; the condition names what is missing, as long as it is, within a sync period of 10 minutes."""
    world = World(0)
    world.clear_up()
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.until(lambda: "TCP port 6443" in condition(world).get("message", ""), 60, "the missing rule is named")
    assert sorted(rules(world)) == BORN_WITH

    (vpc,) = world.rack.state.vpcs
    ssh = rules(world)["allow-ssh"]
    vpc.firewall_rules.append(ssh | {"name": "allow-api", "filters": ssh["filters"] | {"ports": ["6443"]}})
    world.watchdog.expect_firewall()
    await world.until(lambda: condition(world).get("status") == "True", 700, "the condition is True")
    assert sorted(rules(world)) == ["allow-api", *BORN_WITH]
    vpc.firewall_rules.pop()
    world.watchdog.expect_firewall()
    await world.until(lambda: condition(world).get("status") == "False", 700, "the rule is missed again")
    await world.end()
