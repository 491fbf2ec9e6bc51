"""Random walks over the rack's operations: its books stay right, and in the end everything can be taken away."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capox.rack import instance_states, inventory
from tests.contract import rack_invariants, rack_life
from tests.contract.rack_life import BLANK, SLICE
from tests.rack import GIB, RackUnderTest

# Few names, so that steps meet.
NAMES = st.sampled_from(["a", "b"])
V4 = {"type": "auto", "ip_version": "v4"}
V6 = {"type": "auto", "ip_version": "v6"}
WHERE = "?project=demo"
ALLOCATORS = [{"type": "auto", "pool_selector": selector} for selector in (V4, V6)]
POLICIES = st.sampled_from(["allow", "fail"])

NEW_DISKS = st.builds(
    lambda name, gib: {"type": "create", "name": name, "description": "", "size": gib * GIB, "disk_backend": BLANK},
    NAMES,
    st.sampled_from([1, 2]),
)
OLD_DISKS = st.builds(lambda name: {"type": "attach", "name": name}, NAMES)
EXTERNAL = st.one_of(
    st.builds(lambda name: {"type": "floating", "floating_ip": name}, NAMES),
    st.sampled_from([{"type": "ephemeral", "pool_selector": selector} for selector in (V4, V6)]),
)
ATTACHMENTS = st.sampled_from(
    [{"type": kind} for kind in ("none", "default_ipv4", "default_ipv6", "default_dual_stack")]
)
INSTANCES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "description": st.just(""),
        "hostname": st.just("node"),
        # Large enough that the rack runs out of room.
        "ncpus": st.sampled_from([1, 40, 64]),
        "memory": st.sampled_from([GIB, 200 * GIB]),
        "network_interfaces": ATTACHMENTS,
    },
    optional={
        "start": st.booleans(),
        "boot_disk": st.one_of(st.none(), NEW_DISKS, OLD_DISKS),
        "disks": st.lists(st.one_of(NEW_DISKS, OLD_DISKS), max_size=2),
        "external_ips": st.lists(EXTERNAL, max_size=2),
        "anti_affinity_groups": st.lists(NAMES, max_size=2),
    },
)
CHANGES = st.fixed_dictionaries(
    {
        "ncpus": st.sampled_from([1, 64]),
        "memory": st.just(GIB),
        "boot_disk": st.one_of(st.none(), NAMES),
        "auto_restart_policy": st.sampled_from([None, "never"]),
        "cpu_platform": st.none(),
        "enable_jumbo_frames": st.just(value=False),
    }
)

Step = tuple[str, str, Any]


def named(names: st.SearchStrategy[str], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with a name, a description and more."""
    return st.fixed_dictionaries({"name": names, "description": st.just(""), **fields})


def fixed(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies of these fields."""
    return st.fixed_dictionaries(fields)


def step(
    method: str, path: str, body: st.SearchStrategy[Any] | None = None, names: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[Step]:
    """Requests to a path, `{}` being one of the names."""
    filled = names.map(path.format)
    return st.tuples(st.just(method), filled, body if body is not None else st.none())


POWER = [step("POST", f"/v1/instances/{{}}/{act}{WHERE}") for act in ("start", "start", "stop", "reboot")]
CREATE = [
    step("POST", f"/v1/instances{WHERE}", INSTANCES),
    step("POST", f"/v1/disks{WHERE}", named(NAMES, size=st.just(GIB), disk_backend=st.just(BLANK))),
    step("POST", f"/v1/snapshots{WHERE}", named(NAMES, disk=NAMES)),
    step("POST", f"/v1/floating-ips{WHERE}", named(NAMES, address_allocator=st.sampled_from(ALLOCATORS))),
    step("POST", f"/v1/external-subnets{WHERE}", named(NAMES, allocator=st.just(SLICE))),
    step("POST", f"/v1/anti-affinity-groups{WHERE}", named(NAMES, policy=POLICIES, failure_domain=st.just("sled"))),
]
JOIN = [
    step("POST", f"/v1/instances/{{}}/disks/attach{WHERE}", fixed(disk=NAMES)),
    step("POST", f"/v1/floating-ips/{{}}/attach{WHERE}", fixed(kind=st.just("instance"), parent=NAMES)),
    step("POST", f"/v1/external-subnets/{{}}/attach{WHERE}", fixed(instance=NAMES)),
    step("POST", f"/v1/instances/{{}}/external-ips/ephemeral{WHERE}", fixed(pool_selector=st.just(V4))),
    step("POST", f"/v1/anti-affinity-groups/{{0}}/members/instance/{{0}}{WHERE}"),
    step(
        "POST",
        f"/v1/network-interfaces{WHERE}&instance={{}}",
        named(NAMES, vpc_name=st.just("default"), subnet_name=st.sampled_from(["default", "wide"])),
    ),
    step("PUT", f"/v1/instances/{{}}{WHERE}", CHANGES),
]
PART = [
    step("POST", f"/v1/instances/{{}}/disks/detach{WHERE}", fixed(disk=NAMES)),
    step("POST", f"/v1/floating-ips/{{}}/detach{WHERE}"),
    step("POST", f"/v1/external-subnets/{{}}/detach{WHERE}"),
    step("DELETE", f"/v1/instances/{{}}/external-ips/ephemeral{WHERE}"),
    step("DELETE", f"/v1/anti-affinity-groups/{{0}}/members/instance/{{0}}{WHERE}"),
    step("DELETE", f"/v1/network-interfaces/net0{WHERE}&instance={{}}"),
]
DELETE = [
    step("DELETE", f"/v1/{collection}/{{}}{WHERE}")
    for collection in ("instances", "disks", "snapshots", "floating-ips", "external-subnets", "anti-affinity-groups")
]
STEPS: st.SearchStrategy[Step] = st.one_of([*POWER, *POWER, *CREATE, *JOIN, *JOIN, *PART, *DELETE])
CONTROL = st.sampled_from(["fail", "crash", "lose", "restore", "reboot"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    walk=st.lists(
        st.tuples(STEPS, st.sampled_from([0.0, 0.0, 0.3, 2.0]), st.none() | CONTROL), min_size=10, max_size=40
    )
)
async def test_books_stay_right(walk: list[tuple[Step, float, str | None]]) -> None:
    """After every step of a random walk the rack's books agree with its records, and no answer leaves the document."""
    async with RackUnderTest() as rack:
        await put_together(rack)
        for (method, path, body), seconds, misfortune in walk:
            answer = await rack.ask(method, path, body)
            assert answer.status_code not in {404, 405} or "error_code" in answer.json(), f"{method} {path}"
            assert answer.status_code != 500, answer.text
            if misfortune is not None:
                strike(rack, misfortune)
            rack.pass_time(seconds)
            assert rack_invariants.broken(rack.state) == [], f"after {method} {path} {body}"
            assert rack.app.violations == []
            inventory.dump(rack.state)
        await take_all_away(rack)


async def put_together(rack: RackUnderTest) -> None:
    """Two of most things, so that the first steps already meet something."""
    rack_life.furnish(rack)
    wide = {"name": "wide", "description": "", "ipv4_block": "10.0.0.0/24"}
    await rack.must(201, "POST", "/v1/vpc-subnets?project=demo&vpc=default", wide)
    for name in ("a", "b"):
        identity = {"name": name, "description": ""}
        machine = {"hostname": "node", "ncpus": 40, "memory": GIB, "network_interfaces": {"type": "default_ipv4"}}
        for collection, fields in (
            ("anti-affinity-groups", {"policy": "fail", "failure_domain": "sled"}),
            ("disks", {"size": GIB, "disk_backend": BLANK}),
            ("floating-ips", {"address_allocator": ALLOCATORS[0]}),
            ("external-subnets", {"allocator": SLICE}),
            ("instances", {**machine, "start": False, "anti_affinity_groups": [name]}),
        ):
            await rack.must(201, "POST", f"/v1/{collection}{WHERE}", identity | fields)


def strike(rack: RackUnderTest, misfortune: str) -> None:
    """Let something happen to the first instance, or to the first sled."""
    sled = next(iter(rack.state.sleds.values()))
    running = [instance for instance in rack.state.instances if instance.sled is not None]
    match misfortune:
        case "fail" if running:
            instance_states.fail(rack.state, running[0])
        case "crash" if running:
            instance_states.crash_guest(rack.state, running[0])
        case "lose":
            instance_states.lose_sled(rack.state, sled)
        case "restore":
            instance_states.restore_sled(rack.state, sled)
        case "reboot":
            instance_states.restore_sled(rack.state, sled, rebooted=True)


async def take_all_away(rack: RackUnderTest) -> None:
    """Stop and delete everything; afterwards every address, every share and every byte has been given back."""
    for sled in rack.state.sleds.values():
        instance_states.restore_sled(rack.state, sled)
    for instance in rack.state.instances:
        rack.pass_time(10)
        await rack.must(202, "POST", f"/v1/instances/{instance.id}/stop")
        rack.pass_time(10)
        await rack.must(204, "DELETE", f"/v1/instances/{instance.id}")
    for collection, table in (
        ("disks", rack.state.disks),
        ("snapshots", rack.state.snapshots),
        ("floating-ips", rack.state.floating_ips),
        ("external-subnets", rack.state.external_subnets),
        ("anti-affinity-groups", rack.state.anti_affinity_groups),
    ):
        for record in table:
            await rack.must(204, "DELETE", f"/v1/{collection}/{record.id}")
    rack.pass_time(3600)
    assert rack_invariants.broken(rack.state) == []
    assert [pool.taken_count for pool in rack.state.pool_addresses.values()] == [0, 0]
    assert (rack.silo.provisioned_cpus, rack.silo.provisioned_storage_bytes) == (0, 0)
    assert len(rack.state.agenda) == 0
