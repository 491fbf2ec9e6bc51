"""Seeing, reconfiguring and deleting instances (semantics 1.6, 2.2, 3.2, 3.4, 4.6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


async def test_view_has_every_key(client: RackUnderTest) -> None:
    """3.4: keys of absent options are there and null; addresses, disks, keys and user data are not shown."""
    shown = await life.create(client, description="a node", user_data="c2VjcmV0")

    assert shown == {
        "id": life.record(client).id,
        "name": "node",
        "description": "a node",
        "time_created": "2026-09-01T12:00:00.000000Z",
        "time_modified": "2026-09-01T12:00:00.000000Z",
        "project_id": client.project.id,
        "ncpus": 2,
        "memory": 4 * GIB,
        "hostname": "node",
        "boot_disk_id": None,
        "run_state": "stopped",
        "time_run_state_updated": shown["time_run_state_updated"],
        "time_last_auto_restarted": None,
        "auto_restart_enabled": True,
        "auto_restart_policy": None,
        "auto_restart_cooldown_expiration": None,
        "cpu_platform": None,
        "enable_jumbo_frames": False,
    }
    assert await life.view(client) == shown


async def test_id_stands_alone_and_a_name_needs_its_project(client: RackUnderTest) -> None:
    """1.6: an id with a project, and a name without one, are refused with the texts of instances."""
    identity = (await life.create(client))["id"]
    await client.must(200, "GET", f"/v1/instances/{identity}")
    await client.must(200, "GET", f"/v1/instances/{identity.upper()}")

    both = await client.refused(400, "GET", life.path(identity))
    neither = await client.refused(400, "GET", "/v1/instances/node")

    assert both["message"] == "when providing instance as an ID project should not be specified"
    assert neither["message"] == "instance should either be UUID or project should be specified"
    assert both["error_code"] == neither["error_code"] == "InvalidRequest"


async def test_unknown_instances(client: RackUnderTest) -> None:
    """1.6: the 404 says what was looked for; an unknown project is named instead of the instance."""
    for where, message in (
        (life.path("nobody"), 'not found: instance with name "nobody"'),
        (f"/v1/instances/{UNKNOWN_ID}", f'not found: instance with id "{UNKNOWN_ID}"'),
        ("/v1/instances/node?project=nowhere", 'not found: project with name "nowhere"'),
    ):
        error = await client.refused(404, "GET", where)
        assert (error["error_code"], error["message"]) == ("ObjectNotFound", message)


async def test_list_needs_a_project(client: RackUnderTest) -> None:
    """1.6: the list of instances is a project's; without one the query cannot be parsed."""
    await life.create(client)
    names = [item["name"] for item in (await client.must(200, "GET", life.INSTANCES))["items"]]
    assert names == ["node"]
    by_id = await client.must(200, "GET", f"/v1/instances?project={client.project.id}")
    assert [item["name"] for item in by_id["items"]] == names

    error = await client.refused(400, "GET", "/v1/instances")

    assert "error_code" not in error
    assert error["message"] == "unable to parse query string: missing field `project`"


async def test_instances_of_another_silo_do_not_exist(client: RackUnderTest) -> None:
    """1.1: what the caller may not see is answered by 404; who may only see gets 403 for a change."""
    identity = (await life.create(client))["id"]
    await client.refused(404, "GET", f"/v1/instances/{identity}", user="stranger")
    await client.refused(404, "GET", life.INSTANCES, user="nobody")
    await client.must(200, "GET", life.path(), user="viewer")

    for method, where, body in (
        ("POST", life.INSTANCES, life.MINIMAL | {"name": "more"}),
        ("PUT", life.path(), life.UNCHANGED),
        ("DELETE", life.path(), None),
    ):
        await client.refused(403, method, where, body, user="viewer")


async def test_update_changes_everything_at_once(client: RackUnderTest) -> None:
    """2.2: size, platform, boot disk and policy of a stopped instance; null takes the options back."""
    await life.create(client, disks=[life.blank_disk("data")])
    changed = {"ncpus": 8, "memory": 16 * GIB, "cpu_platform": "amd_turin", "auto_restart_policy": "never"}

    shown = await client.must(200, "PUT", life.path(), life.UNCHANGED | changed | {"boot_disk": "data"})

    disk = await client.must(200, "GET", "/v1/disks/data?project=demo")
    assert shown["boot_disk_id"] == disk["id"]
    assert changed.items() <= shown.items()
    assert await life.view(client) == shown
    assert (await client.must(200, "PUT", life.path(), life.UNCHANGED | {"boot_disk": disk["id"]}))["boot_disk_id"]
    shown = await client.must(200, "PUT", life.path(), life.UNCHANGED)
    assert [shown[key] for key in ("boot_disk_id", "cpu_platform", "auto_restart_policy")] == [None] * 3


@pytest.mark.parametrize("key", sorted(life.UNCHANGED))
async def test_update_requires_every_key(client: RackUnderTest, key: str) -> None:
    """2.2: an absent key is a parse error, so nobody takes an option back by leaving it out."""
    await life.create(client)
    body = {name: value for name, value in life.UNCHANGED.items() if name != key}

    error = await client.refused(400, "PUT", life.path(), body)

    assert "error_code" not in error
    assert f"missing field `{key}`" in error["message"]


async def test_update_of_a_running_instance_with_what_it_has(client: RackUnderTest) -> None:
    """3.2: unchanged values are fine while it runs, and the policy can be changed beside them."""
    await life.create_running(client, boot_disk=life.blank_disk("root"))

    body = life.UNCHANGED | {"boot_disk": "root", "auto_restart_policy": "never"}
    shown = await client.must(200, "PUT", life.path(), body)

    assert (shown["run_state"], shown["auto_restart_policy"]) == ("running", "never")


@pytest.mark.parametrize(
    ("state", "change", "message"),
    [
        ("running", {"ncpus": 4}, "instance must be stopped to change CPU or memory"),
        ("running", {"boot_disk": None}, "instance must be stopped to set boot disk"),
        ("running", {"boot_disk": "loose"}, "boot disk must be attached"),
        ("stopped", {"boot_disk": "loose"}, "boot disk must be attached"),
    ],
)
async def test_one_refused_part_refuses_all(
    client: RackUnderTest, state: str, change: dict[str, Any], message: str
) -> None:
    """3.2: an update is one transaction: nothing of it happens when one part is refused with 409."""
    await life.create_in(client, state, boot_disk=life.blank_disk("root"))
    loose = {key: value for key, value in life.blank_disk("loose").items() if key != "type"}
    await client.must(201, "POST", "/v1/disks?project=demo", loose)
    before = await life.view(client)

    body = life.UNCHANGED | {"boot_disk": "root", "auto_restart_policy": "never"} | change
    error = await client.refused(409, "PUT", life.path(), body)

    assert (error["error_code"], error["message"]) == ("Conflict", message)
    assert await life.view(client) == before


async def test_update_looks_at_sizes_before_the_state(client: RackUnderTest) -> None:
    """2.2: limits hold for updates too; an unknown boot disk is a 404."""
    await life.create_running(client)
    error = await client.refused(400, "PUT", life.path(), life.UNCHANGED | {"ncpus": 255})
    assert error["message"] == "cannot have more than 254 vCPUs per instance"
    error = await client.refused(400, "PUT", life.path(), life.UNCHANGED | {"enable_jumbo_frames": True})
    assert error["error_code"] == "InvalidRequest"

    error = await client.refused(404, "PUT", life.path(), life.UNCHANGED | {"boot_disk": "none"})

    assert error["message"] == 'not found: disk with name "none"'


async def test_update_of_jumbo_frames_is_refused(client: RackUnderTest) -> None:
    """2.2: without the fleet's opt-in large frames cannot be asked for, neither at first nor later."""
    await life.create(client)

    for error in (
        await client.refused(400, "PUT", life.path(), life.UNCHANGED | {"enable_jumbo_frames": True}),
        await life.refuse_create(client, 400, name="other", enable_jumbo_frames=True),
    ):
        assert error["error_code"] == "InvalidRequest"
        assert "enable_jumbo_frames" in error["message"]


async def test_delete_keeps_disks_and_floating_ips(client: RackUnderTest) -> None:
    """4.6: all disks, the boot disk too, and floating IPs stay, detached; NICs and other addresses go."""
    fip = {"name": "vip", "description": "", "address_allocator": {"type": "explicit", "ip": "198.51.100.9"}}
    await client.must(201, "POST", "/v1/floating-ips?project=demo", fip)
    await life.create(
        client,
        boot_disk=life.blank_disk("root"),
        disks=[life.blank_disk("data")],
        network_interfaces={"type": "default_ipv4"},
        external_ips=[
            {"type": "ephemeral", "pool_selector": {"type": "auto", "ip_version": "v4"}},
            {"type": "floating", "floating_ip": "vip"},
        ],
    )
    identity = life.record(client).id
    assert len((await client.must(200, "GET", life.path(act="external-ips")))["items"]) == 3

    await client.must(204, "DELETE", life.path())

    error = await client.refused(404, "DELETE", life.path())
    assert error["message"] == 'not found: instance with name "node"'
    for name in ("root", "data"):
        disk = await client.must(200, "GET", f"/v1/disks/{name}?project=demo")
        assert disk["state"] == {"state": "detached"}
    assert (await client.must(200, "GET", "/v1/floating-ips/vip?project=demo"))["instance_id"] is None
    state = client.state
    assert len(state.network_interfaces) == 0
    assert not state.ephemeral_ips_of.get(identity)
    assert identity not in state.snat_ips_of
    # The floating IP is the only address still in use.
    assert state.pool_addresses[client.pool_v4.id].taken_count == 1


async def test_recreation_meets_the_disks_left_behind(client: RackUnderTest) -> None:
    """4.6: the boot disk of a deleted instance is in the way of the next one of the same name."""
    await life.create(client, boot_disk=life.blank_disk("root"))
    await client.must(204, "DELETE", life.path())

    error = await life.refuse_create(client, 400, boot_disk=life.blank_disk("root"))
    assert (error["error_code"], error["message"]) == ("ObjectAlreadyExists", 'already exists: disk "root"')

    await life.create(client, boot_disk={"type": "attach", "name": "root"})


async def test_delete_ends_memberships(client: RackUnderTest) -> None:
    """4.6: a deleted instance is in no anti-affinity group any more."""
    group = {"name": "workers", "description": "", "policy": "allow", "failure_domain": "sled"}
    await client.must(201, "POST", "/v1/anti-affinity-groups?project=demo", group)
    await life.create(client, anti_affinity_groups=["workers"])

    await client.must(204, "DELETE", life.path())

    members = await client.must(200, "GET", "/v1/anti-affinity-groups/workers/members?project=demo")
    assert members["items"] == []
    assert client.state.groups_of == {}
