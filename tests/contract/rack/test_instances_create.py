"""Making instances: defaults, limits and the order in which they are looked at (semantics 2.1, 2.2, 3.1, 4.1)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.contract.rack import instance_life as life
from tests.rack import GIB, RackUnderTest

TOO_LONG = "d" * 513
AUTO_V4 = {"type": "ephemeral", "pool_selector": {"type": "auto", "ip_version": "v4"}}


async def test_started_by_default(client: RackUnderTest) -> None:
    """3.1: the answer is 201 with `starting`, and `running` follows by itself; with `start: false` it is `stopped`."""
    body = {key: value for key, value in life.MINIMAL.items() if key != "start"}
    assert (await client.must(201, "POST", life.INSTANCES, body))["run_state"] == "starting"
    client.pass_time(1)
    assert await life.run_state(client) == "running"

    assert (await life.create(client, name="other"))["run_state"] == "stopped"


async def test_dual_stack_interface_by_default(client: RackUnderTest) -> None:
    """2.2: without a word about interfaces an instance has one with both families, and so a SNAT address."""
    body = {key: value for key, value in life.MINIMAL.items() if key != "network_interfaces"}
    await client.must(201, "POST", life.INSTANCES, body)

    interfaces = await client.must(200, "GET", "/v1/network-interfaces?instance=node&project=demo")
    assert [nic["ip_stack"]["type"] for nic in interfaces["items"]] == ["dual_stack"]
    addresses = await client.must(200, "GET", life.path(act="external-ips"))
    assert [address["kind"] for address in addresses["items"]] == ["snat"]


async def test_no_interface_no_address(client: RackUnderTest) -> None:
    """4.3: without an interface an instance has no SNAT address, and cannot be given an external one."""
    await life.create(client)
    assert (await client.must(200, "GET", life.path(act="external-ips")))["items"] == []

    await life.refuse_create(client, 400, name="other", external_ips=[AUTO_V4])


async def test_name_taken(client: RackUnderTest) -> None:
    """4.2: a creation is not idempotent: the second one is a 400 ObjectAlreadyExists, and the first stays as it is."""
    before = await life.create(client)

    error = await life.refuse_create(client, 400, ncpus=8)

    assert (error["error_code"], error["message"]) == ("ObjectAlreadyExists", 'already exists: instance "node"')
    assert await life.view(client) == before


async def test_name_is_free_after_a_delete(client: RackUnderTest) -> None:
    """2.1: names are unique among what exists, so one is free again right after the delete."""
    first = await life.create(client)
    await client.must(204, "DELETE", life.path())

    assert (await life.create(client))["id"] != first["id"]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"ncpus": 255}, "InvalidRequest", "cannot have more than 254 vCPUs per instance"),
        ({"memory": 0}, "InvalidValue", 'unsupported value for "size": memory must be at least 1 GiB'),
        ({"memory": GIB - 1}, "InvalidValue", 'unsupported value for "size": memory must be at least 1 GiB'),
        ({"memory": GIB + 1}, "InvalidValue", 'unsupported value for "size": memory must be divisible by 1 GiB'),
        (
            {"memory": 1537 * GIB},
            "InvalidValue",
            'unsupported value for "size": memory must be less than or equal to 1536 GiB',
        ),
    ],
)
async def test_limits_of_size(client: RackUnderTest, changes: dict[str, Any], code: str, message: str) -> None:
    """2.2: at most 254 vCPUs, and memory in whole GiB from 1 to 1536."""
    error = await life.refuse_create(client, 400, **changes)

    assert (error["error_code"], error["message"]) == (code, message)


@pytest.mark.parametrize("changes", [{"ncpus": 0}, {"ncpus": 254}, {"memory": GIB}, {"memory": 1536 * GIB}])
async def test_limits_are_included(client: RackUnderTest, changes: dict[str, int]) -> None:
    """2.2: the limits themselves are accepted, and nobody asks for a vCPU at all."""
    assert changes.items() <= (await life.create(client, **changes)).items()


@pytest.mark.parametrize("ncpus", [-1, 1.5, "2", None, 65536])
async def test_cpus_that_are_no_number_of_cpus(client: RackUnderTest, ncpus: object) -> None:
    """2.2: what is no 16-bit number is a parse error without an error code."""
    error = await life.refuse_create(client, 400, ncpus=ncpus)

    assert "error_code" not in error
    assert error["message"].startswith("unable to parse JSON body: ncpus: ")


async def test_limit_of_disks(client: RackUnderTest) -> None:
    """2.2: twelve disks with the boot disk; an instance with twelve can be made."""
    disks = [life.blank_disk(f"disk{number}") for number in range(12)]
    error = await life.refuse_create(client, 400, boot_disk=life.blank_disk("root"), disks=disks)
    assert (error["error_code"], error["message"]) == ("InvalidRequest", "cannot attach more than 12 disks to instance")

    await life.create(client, boot_disk=life.blank_disk("root"), disks=disks[1:])

    assert len((await client.must(200, "GET", life.path(act="disks")))["items"]) == 12


async def test_limit_of_external_ips(client: RackUnderTest) -> None:
    """2.2: no more than 32 external IPs are looked at."""
    wanted = [{"type": "floating", "floating_ip": f"vip{number}"} for number in range(33)]

    error = await life.refuse_create(client, 400, external_ips=wanted)

    assert error["message"] == "An instance may not have more than 32 external IP addresses"


async def test_multicast_groups(client: RackUnderTest) -> None:
    """2.2: on a rack without multicast groups are counted and otherwise passed over."""
    groups = [{"group": f"group{number}"} for number in range(33)]

    error = await life.refuse_create(client, 400, multicast_groups=groups)

    assert error["error_code"] == "InvalidRequest"
    assert "32" in error["message"]
    await life.create(client, multicast_groups=groups[:32])


async def test_ssh_keys_are_the_callers(client: RackUnderTest) -> None:
    """2.2: by default all keys of the caller, none for an empty list, else those named; others' keys are 404."""
    keys = {}
    for user in ("admin", "collaborator"):
        for name in ("laptop", "desk"):
            body = {"name": name, "description": "", "public_key": f"ssh-ed25519 {user}-{name}"}
            keys[user, name] = (await client.must(201, "POST", "/v1/me/ssh-keys", body, user=user))["id"]

    await life.create(client, name="all")
    await life.create(client, name="none", ssh_public_keys=[])
    await life.create(client, name="some", ssh_public_keys=["desk", keys["admin", "desk"].upper()])

    assert set(life.record(client, "all").ssh_keys) == {keys["admin", "laptop"], keys["admin", "desk"]}
    assert life.record(client, "none").ssh_keys == ()
    assert life.record(client, "some").ssh_keys == (keys["admin", "desk"],)
    error = await life.refuse_create(client, 404, ssh_public_keys=["lost"])
    assert error["message"] == 'not found: ssh-key with name "lost"'
    await life.refuse_create(client, 404, ssh_public_keys=[keys["collaborator", "desk"]])


async def test_limit_of_ssh_keys(client: RackUnderTest) -> None:
    """2.2: a hundred keys can be asked for by name, not more."""
    for number in range(101):
        body = {"name": f"key{number}", "description": "", "public_key": "ssh-ed25519 x"}
        await client.must(201, "POST", "/v1/me/ssh-keys", body)
    names = [f"key{number}" for number in range(101)]

    error = await life.refuse_create(client, 400, ssh_public_keys=names)

    assert error["message"] == "cannot attach more than 100 ssh keys to the instance"
    await life.create(client, ssh_public_keys=names[:100])


async def test_anti_affinity_groups(client: RackUnderTest) -> None:
    """4.1: a group that does not exist is a 404; one that is named twice is joined once."""
    error = await life.refuse_create(client, 404, anti_affinity_groups=["workers"])
    assert error["message"] == 'not found: anti-affinity-group with name "workers"'
    group = {"name": "workers", "description": "", "policy": "allow", "failure_domain": "sled"}
    identity = (await client.must(201, "POST", "/v1/anti-affinity-groups?project=demo", group))["id"]

    await life.create(client, anti_affinity_groups=["workers", identity, "workers"])

    members = await client.must(200, "GET", "/v1/anti-affinity-groups/workers/members?project=demo")
    assert [member["value"]["name"] for member in members["items"]] == ["node"]


async def test_an_anti_affinity_group_of_another_project(client: RackUnderTest) -> None:
    """4.1: groups are looked for in the instance's project; another one's is a 404 by id as it is by name."""
    await client.must(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    group = {"name": "workers", "description": "", "policy": "fail", "failure_domain": "sled"}
    identity = (await client.must(201, "POST", "/v1/anti-affinity-groups?project=other", group))["id"]

    by_name = await life.refuse_create(client, 404, anti_affinity_groups=["workers"])
    by_id = await life.refuse_create(client, 404, anti_affinity_groups=[identity.upper()])

    assert by_name["message"] == 'not found: anti-affinity-group with name "workers"'
    assert by_id["message"] == f'not found: anti-affinity-group with id "{identity}"'
    assert by_id["error_code"] == "ObjectNotFound"
    assert (await client.must(200, "GET", f"/v1/anti-affinity-groups/{identity}/members"))["items"] == []
    assert list(client.state.instances) == []


DISK = life.blank_disk("disk")
SOURCE = {"type": "blank", "block_size": 512.0}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ncpus": 2.0}, "ncpus: invalid type: floating point `2.0`"),
        ({"ncpus": 2.5}, "ncpus: invalid type: floating point `2.5`"),
        ({"memory": 4.0 * GIB}, "memory: invalid type: floating point `4294967296.0`"),
        ({"boot_disk": DISK | {"size": 1.0 * GIB}}, "boot_disk.size: invalid type: floating point"),
        (
            {"disks": [DISK, DISK | {"name": "b", "disk_backend": {"type": "distributed", "disk_source": SOURCE}}]},
            "disks[1].disk_backend.disk_source.block_size: invalid type: floating point `512.0`",
        ),
    ],
)
async def test_an_integer_is_written_as_one(client: RackUnderTest, change: dict[str, Any], complaint: str) -> None:
    """2.2: a number with a fraction is a parse error where an integer is asked for, also when the fraction is 0."""
    error = await life.refuse_create(client, 400, **change)

    assert error.keys() == {"request_id", "message"}
    assert error["message"].startswith(f"unable to parse JSON body: {complaint}")
    assert ", expected integer at line 1 column " in error["message"]
    await life.create(client, labels={"weight": 2.0})


@pytest.mark.parametrize("number", ["2e0", "1e400", "-1e400"])
async def test_an_integer_has_no_exponent(client: RackUnderTest, number: str) -> None:
    """2.2: nor may it be written with an exponent, be it small or larger than any number."""
    text = json.dumps(life.MINIMAL).replace('"ncpus": 2', f'"ncpus": {number}')
    headers = {"authorization": "Bearer oxide-token-admin", "content-type": "application/json"}

    answer = await client.http.post(life.INSTANCES, content=text, headers=headers)

    assert answer.status_code == 400
    assert answer.json().keys() == {"request_id", "message"}
    assert answer.json()["message"].startswith("unable to parse JSON body: ")


async def test_user_data(client: RackUnderTest) -> None:
    """2.1: at most 32 KiB when decoded; it is kept and never shown, neither in a view nor in an error."""
    most = base64.b64encode(b"s" * 32_768).decode()
    await life.create(client, user_data=most)
    assert life.record(client).user_data == b"s" * 32_768
    assert "user_data" not in await life.view(client)
    assert "ssss" not in repr(life.record(client))

    for wrong, complaint in (
        (base64.b64encode(b"s" * 32_769).decode(), "less than 32 KiB"),
        ("c2VjcmV0c", "a valid base64 string"),
        ("c2Vj cmV0", "a valid base64 string"),
    ):
        error = await life.refuse_create(client, 400, name="other", user_data=wrong)
        assert "error_code" not in error
        assert complaint in error["message"]
        assert wrong not in error["message"]


@pytest.mark.parametrize(
    "changes", [{"description": TOO_LONG}, {"hostname": "h" * 64}, {"hostname": f"{'h' * 63}.example"}]
)
async def test_what_the_database_does_not_take(client: RackUnderTest, changes: dict[str, str]) -> None:
    """2.1: a description of more than 512 characters and a host name of more than 63 end in 500."""
    error = await life.refuse_create(client, 500, **changes)

    assert (error["error_code"], error["message"]) == ("Internal", "Internal Server Error")


async def test_lengths_that_fit(client: RackUnderTest) -> None:
    """2.1: 512 and 63 characters fit, and a host name may have dots."""
    await life.create(client, description=TOO_LONG[1:], hostname="h" * 63)
    await life.create(client, name="other", hostname="Node-1.example")


@pytest.mark.parametrize(
    ("hostname", "complaint"),
    [("h" * 254, "Max hostname length is 253"), ("-node", "RFC 1035"), ("node_1", "RFC 1035"), ("", "RFC 1035")],
)
async def test_host_names_that_are_none(client: RackUnderTest, hostname: str, complaint: str) -> None:
    """2.1: what is no host name, or is longer than 253 characters, is a parse error."""
    error = await life.refuse_create(client, 400, hostname=hostname)

    assert "error_code" not in error
    assert complaint in error["message"]


async def test_order_of_the_checks(client: RackUnderTest) -> None:
    """4.1: size, number of disks, each disk, addresses, jumbo frames, interfaces, keys, groups, and then the rest."""
    await life.create(client)
    interface = {"name": "nic", "description": "", "vpc_name": "default", "subnet_name": "default"}
    wrong: dict[str, Any] = {
        "ncpus": 255,
        "disks": [life.blank_disk(f"disk{number}") for number in range(13)],
        "external_ips": [AUTO_V4] * 33,
        "multicast_groups": [{"group": "group"}] * 33,
        "enable_jumbo_frames": True,
        "network_interfaces": {"type": "create", "params": [interface, interface | {"vpc_name": "other"}]},
        "ssh_public_keys": ["lost"],
        "anti_affinity_groups": ["lost"],
        # These are looked at last: the name is taken, and the description does not fit either.
        "description": TOO_LONG,
    }
    steps: list[tuple[int, str, dict[str, Any]]] = [
        (400, "cannot have more than 254 vCPUs", {"ncpus": 2}),
        (400, "cannot attach more than 12 disks", {"disks": [life.blank_disk("disk", size_gib=1024)]}),
        (400, "total size must be less than 1023 GiB", {"disks": []}),
        (400, "more than 32 external IP addresses", {"external_ips": [AUTO_V4] * 3}),
        (400, "32 multicast groups", {"multicast_groups": []}),
        (400, "enable_jumbo_frames", {"enable_jumbo_frames": False}),
        (400, "more than 2 ephemeral IP addresses", {"external_ips": []}),
        (400, "All interfaces must be in the same VPC", {"network_interfaces": {"type": "none"}}),
        (404, "ssh-key", {"ssh_public_keys": []}),
        (404, "anti-affinity-group", {"anti_affinity_groups": []}),
        (500, "Internal Server Error", {"description": ""}),
        (400, 'already exists: instance "node"', {}),
    ]

    for status, text, correction in steps:
        error = await client.refused(status, "POST", life.INSTANCES, life.MINIMAL | wrong)
        assert text in error["message"]
        wrong |= correction


async def test_project_comes_first(client: RackUnderTest) -> None:
    """1.6: without a project the query cannot be parsed; an unknown one is a 404 before anything is looked at."""
    error = await client.refused(400, "POST", "/v1/instances", life.MINIMAL)
    assert error["message"] == "unable to parse query string: missing field `project`"

    error = await client.refused(404, "POST", "/v1/instances?project=nowhere", life.MINIMAL | {"ncpus": 255})

    assert error["message"] == 'not found: project with name "nowhere"'


async def test_unknown_fields_are_ignored(client: RackUnderTest) -> None:
    """1.3: a field that the API does not know is no error."""
    await life.create(client, labels={"role": "node"})
