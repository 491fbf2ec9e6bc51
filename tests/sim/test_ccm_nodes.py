"""How Nodes begin and what they are told afterwards (CCM test groups 1 to 3)."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import SecretStr

from capox.ccm.kinds import NODES
from capox.ccm.node import NodeOptions
from capox.ccm.node_marks import PROVIDED_NODE_IP, UNINITIALIZED_TAINT
from capox.kube.errors import Unavailable
from capox.ownership import OwnerMark, format_mark
from tests.sim.loop import simulated
from tests.sim.node_world import UNINITIALIZED, NodeWorld
from tests.sim.store_client import Call

PAIRS = (
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
)


class Meddler:
    """Weather in which somebody else writes the Node right before each of the first patches of it."""

    def __init__(self, times: int) -> None:
        self.world: NodeWorld | None = None
        self._left = times

    async def before(self, call: Call) -> None:
        """Add a taint as the controller manager does."""
        if call.verb == "patch" and call.kind == "nodes" and not call.subresource and self._left and self.world:
            self._left -= 1
            document = self.world.node(call.name)
            assert document is not None
            taints = [*document["spec"]["taints"], {"key": f"example.com/late-{self._left}", "effect": "NoSchedule"}]
            self.world.store.patch(NODES, "", call.name, {"spec": {"taints": taints}})

    async def after(self, call: Call) -> None:
        """Nothing happens."""


class NoLists:
    """Weather in which lists fail until it clears up."""

    def __init__(self) -> None:
        self.is_clear = False

    async def before(self, call: Call) -> None:
        """Refuse a list."""
        if call.verb == "list" and not self.is_clear:
            raise Unavailable(503, "", "the simulated API refuses a list")

    async def after(self, call: Call) -> None:
        """Nothing happens."""


@simulated
async def test_nothing_is_decided_before_all_nodes_are_known() -> None:
    """R9, group 13: a watch has told of one Node, and the list has failed so far: who else is there is not known."""
    weather = NoLists()
    world = NodeWorld(weather=weather)
    await world.add_instance("node-1")
    world.register("node-1")
    await world.pass_time(60)
    assert world.writes() == []
    assert world.calls() == []

    weather.is_clear = True
    await world.until(lambda: not world.is_tainted("node-1"), 30, "it is initialised")
    await world.end()


@simulated
async def test_a_node_begins_with_everything_in_one_write() -> None:
    """N1, N3: addresses first; then providerID, both pairs of labels and the taint's end are one write; then Synced."""
    world = NodeWorld(options=NodeOptions(region="berlin", zone="rack-1"))
    instance_id = await world.add_instance("node-1")
    world.register("node-1", taints=(UNINITIALIZED, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}))
    await world.until(lambda: not world.is_tainted("node-1"), 10, "it is initialised")

    document = world.node("node-1")
    assert document is not None
    assert document["spec"]["providerID"] == f"oxide://{instance_id}"
    assert [document["metadata"]["labels"][name] for pair in PAIRS for name in pair] == [
        *("2-4", "2-4"),
        *("berlin", "berlin"),
        *("rack-1", "rack-1"),
    ]
    assert world.taints("node-1") == ["node.kubernetes.io/not-ready"]
    internal = [("InternalIP", address) for address in world.private_addresses("node-1")]
    assert world.addresses("node-1") == [*internal, ("Hostname", "node-1")]
    assert world.writes() == [("patch", "status", "node-1"), ("patch", "", "node-1")]
    assert world.told.reasons("node-1") == ["Synced"]
    assert world.process is not None
    name = "node_controller_cloud_provider_taint_removal_delay_seconds_count"
    assert world.process.registry.value(name) == 1
    for change in world.changes["node-1"]:
        spec = change.document["spec"]
        is_tainted = any(taint["key"] == UNINITIALIZED_TAINT for taint in spec["taints"])
        assert is_tainted is ("providerID" not in spec)
    await world.end()


@simulated
async def test_a_rack_that_fails_keeps_the_taint() -> None:
    """N4, group 1: while the rack fails the Node waits with a Warning; then one write does all."""
    world = NodeWorld()
    await world.add_instance("node-1")
    world.fault("internal_error", operation="instance_list", times=12)
    world.register("node-1")
    await world.pass_time(3)
    assert world.is_tainted("node-1")
    assert world.writes() == []
    await world.until(lambda: not world.is_tainted("node-1"), 60, "it is initialised")

    assert world.told.reasons("node-1") == ["InstanceLookupFailed", "Synced"]
    assert [write for write in world.writes() if not write[1]] == [("patch", "", "node-1")]
    await world.end()


@simulated
async def test_a_taint_that_came_meanwhile_survives() -> None:
    """N1: whoever writes the Node at the same moment is not overwritten; the write is made anew from what is there."""
    meddler = Meddler(3)
    world = NodeWorld(weather=meddler)
    meddler.world = world
    await world.join("node-1")

    assert world.taints("node-1") == ["example.com/late-2", "example.com/late-1", "example.com/late-0"]
    await world.end()


@simulated
async def test_a_provider_id_is_never_changed() -> None:
    """N2, N10, N11, group 2: one that is there stays, a foreign one keeps the Node from being touched at all."""
    world = NodeWorld()
    first = await world.add_instance("first")
    world.register("node-1", provider_id=f"oxide://{first}")
    world.register("node-2", provider_id="aws:///eu-central-1a/i-0123456789")
    world.register("node-3", provider_id="oxide://")
    in_capitals = f"oxide://{(await world.add_instance('node-4')).upper()}"
    world.register("node-4", provider_id=in_capitals)
    await world.until(lambda: not world.is_tainted("node-1"), 10, "the first is initialised")
    await world.pass_time(200)

    assert world.told.reasons("node-1") == ["Synced", "InstanceMismatch"]
    assert world.told.reasons("node-4") == ["Synced", "InstanceMismatch"]
    document = world.node("node-4")
    assert document is not None
    assert document["spec"]["providerID"] == in_capitals
    for name in ("node-2", "node-3"):
        assert world.told.reasons(name) == ["ForeignProviderID"]
        assert len(world.changes[name]) == 1
    await world.end()


@simulated
async def test_a_node_is_found_by_name_hostname_or_address() -> None:
    """1.6: the name decides, else a hostname or an address that only one instance has; what is ambiguous waits."""
    world = NodeWorld()
    await world.add_instance("by-name", hostname="elsewhere")
    by_hostname = await world.add_instance("something", hostname="by-hostname")
    by_address = await world.add_instance("odd-one", hostname="odd")
    for name in ("twin-a", "twin-b"):
        await world.add_instance(name, hostname="twin")
    address = world.private_addresses("odd-one")[0]
    for name in ("by-name", "by-hostname", "twin", "nobody"):
        world.register(name)
    world.register("by-address", annotations={PROVIDED_NODE_IP: address})
    await world.pass_time(20)

    found = {name: (world.node(name) or {})["spec"].get("providerID") for name in ("by-hostname", "by-address")}
    assert found == {"by-hostname": f"oxide://{by_hostname}", "by-address": f"oxide://{by_address}"}
    assert not world.is_tainted("by-name")
    assert world.told.reasons("twin") == ["InstanceAmbiguous"]
    assert world.told.reasons("nobody") == ["InstanceNotFound"]
    assert world.is_tainted("twin")
    await world.end()


@simulated
async def test_an_instance_of_another_node_is_not_taken() -> None:
    """1.6: a Node without providerID does not become an instance that another Node already is."""
    world = NodeWorld()
    instance_id = await world.add_instance("shared")
    world.register("first", provider_id=f"oxide://{instance_id}", taints=())
    await world.pass_time(1)
    world.register("shared")
    await world.pass_time(10)

    assert world.is_tainted("shared")
    assert world.told.reasons("shared") == ["InstanceAmbiguous"]
    await world.end()


@simulated
async def test_an_instance_made_again_is_told_of() -> None:
    """N12: a Ready Node whose instance is gone while another has its name gets a Warning, and is not touched."""
    world = NodeWorld()
    await world.join("node-1")
    await world.stop_instance("node-1")
    await world.ask(204, "DELETE", "/v1/instances/node-1?project=demo")
    await world.add_instance("node-1")
    before = world.node("node-1")
    await world.pass_time(700)

    assert "InstanceReplaced" in world.told.reasons("node-1")
    assert world.node("node-1") == before
    await world.end()


@simulated
async def test_addresses_at_rest_cost_no_write() -> None:
    """N6, group 3: a dual-stack Node is looked at ten times and never written; reads do not grow with the Nodes."""
    world = NodeWorld()
    for number in range(12):
        await world.join(f"node-{number}")
    await world.pass_time(300)
    writes, began = world.writes(), len(world.calls())
    await world.pass_time(3000)

    assert world.writes() == writes
    operations = [call.operation for call in world.calls()[began:]]
    lists = [each for each in operations if each in ("instance_list", "floating_ip_list")]
    assert "instance_network_interface_list" not in operations
    assert len(operations) - len(lists) <= 5 * 11
    assert len(operations) / 50 <= 4, operations
    await world.end()


@simulated
async def test_addresses_follow_the_instance() -> None:
    """N8, 1.4: ephemeral and foreign floating IPs come and go; one that a controller moves about is never shown."""
    world = NodeWorld()
    await world.join("node-1")
    mark = OwnerMark(kind="Service", namespace="default", name="web", uid="1", cluster_id="c")
    for name, description in (("mine", "by hand"), ("moved", format_mark(mark))):
        body = {"name": name, "description": description, "address_allocator": _allocator()}
        await world.ask(201, "POST", "/v1/floating-ips?project=demo", body)
        attach = {"kind": "instance", "parent": "node-1"}
        await world.ask(202, "POST", f"/v1/floating-ips/{name}/attach?project=demo", attach)
    ephemeral = await world.ask(
        202,
        "POST",
        "/v1/instances/node-1/external-ips/ephemeral?project=demo",
        {"pool_selector": {"type": "auto", "ip_version": "v4"}},
    )
    mine = next(str(each.ip) for each in world.rack.state.floating_ips if each.name == "mine")
    expected = [("ExternalIP", address) for address in (ephemeral["ip"], mine)]
    await world.until(
        lambda: [each for each in world.addresses("node-1") if each[0] == "ExternalIP"] == expected,
        700,
        f"{expected} are shown",
    )
    assert [each for each in world.addresses("node-1") if each[0] != "ExternalIP"] == [
        *(("InternalIP", address) for address in world.private_addresses("node-1")),
        ("Hostname", "node-1"),
    ]

    await world.ask(202, "POST", "/v1/floating-ips/mine/detach?project=demo")
    await world.until(lambda: ("ExternalIP", mine) not in world.addresses("node-1"), 700, "it is shown no more")
    await world.end()


@pytest.mark.parametrize(
    "operation", ["instance_external_ip_list", "instance_network_interface_list", "floating_ip_list"]
)
def test_a_partial_answer_writes_nothing(operation: str) -> None:
    """N5, group 3: as long as one of the lists cannot be read a Node stays as it is."""

    @simulated
    async def story() -> None:
        """Tell the test's story."""
        world = NodeWorld()
        await world.join("node-1")
        await world.add_instance("node-2")
        before = world.node("node-1")
        # Until the lists that were read are too old to serve.
        await world.pass_time(70)
        world.fault("unavailable", operation=operation)
        world.register("node-2")
        # Stopped and started again, so that its interfaces are read anew.
        await world.stop_instance("node-1")
        await world.start_instance("node-1")
        await world.pass_time(1000)

        assert world.node("node-1") == before
        assert world.is_tainted("node-2")
        assert len(world.changes["node-2"]) == 1
        assert "InstanceLookupFailed" in world.told.reasons("node-2")
        await world.end()

    story()


@simulated
async def test_a_node_ip_that_the_instance_does_not_have_keeps_the_taint() -> None:
    """1.5, 1.2: a mismatch is told and the taint stays; when it fits, the order is the kubelet's."""
    world = NodeWorld()
    await world.add_instance("node-1")
    v4, v6 = world.private_addresses("node-1")
    world.register("node-1", annotations={PROVIDED_NODE_IP: "192.0.2.77"})
    await world.pass_time(30)
    assert world.is_tainted("node-1")
    assert world.told.reasons("node-1") == ["NodeIPMismatch"]
    assert len(world.changes["node-1"]) == 1

    world.store.patch(NODES, "", "node-1", {"metadata": {"annotations": {PROVIDED_NODE_IP: f"{v6},{v4}"}}})
    await world.until(lambda: not world.is_tainted("node-1"), 90, "it is initialised")
    assert world.addresses("node-1") == [("InternalIP", v6), ("InternalIP", v4), ("Hostname", "node-1")]
    await world.end()


@simulated
async def test_a_label_follows_its_older_name() -> None:
    """1.3: where the two names of a label differ, the older one's value is taken; a resized instance changes both."""
    world = NodeWorld()
    await world.join("node-1")
    zone, old_zone = PAIRS[2]
    world.store.patch(NODES, "", "node-1", {"metadata": {"labels": {old_zone: "north", zone: "south"}}})
    await world.pass_time(2)
    document = world.node("node-1")
    assert document is not None
    assert document["metadata"]["labels"][zone] == "north"

    await world.stop_instance("node-1")
    world.instance("node-1").ncpus = 8
    await world.start_instance("node-1")
    await world.pass_time(400)
    document = world.node("node-1")
    assert document is not None
    assert [document["metadata"]["labels"][name] for name in PAIRS[0]] == ["8-4", "8-4"]
    await world.end()


@simulated
async def test_wrong_credentials_are_told_and_taken_when_they_are_right() -> None:
    """R3: with a refused token nothing is touched and the rack is asked once a minute; a new one is taken at once."""
    world = NodeWorld()
    await world.add_instance("node-1")
    right = world.credentials
    world.credentials = dataclasses.replace(right, token=SecretStr("oxide-token-wrong"))
    for number in range(5):
        world.register(f"node-{number}")
    await world.pass_time(120)
    assert world.is_tainted("node-1")
    assert world.writes() == []
    assert len(world.calls("current_user_view")) <= 4
    assert trouble_of(world)

    world.credentials = right
    world.store.patch(NODES, "", "node-1", {"metadata": {"annotations": {"a": "b"}}})
    await world.until(lambda: not world.is_tainted("node-1"), 10, "it is initialised")
    assert trouble_of(world) is None
    await world.end()


@simulated
async def test_nothing_is_written_without_the_lease() -> None:
    """R1: a process that has lost its Lease without knowing writes nothing."""
    world = NodeWorld()
    assert world.process is not None
    world.process.is_leading = False
    await world.add_instance("node-1")
    world.register("node-1")
    await world.pass_time(60)

    assert world.writes() == []
    assert len(world.changes["node-1"]) == 1
    await world.end()


def trouble_of(world: NodeWorld) -> str | None:
    """Why the process cannot work with the rack; None when it can."""
    assert world.process is not None
    return world.process.rack.trouble


def _allocator() -> dict[str, object]:
    return {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
