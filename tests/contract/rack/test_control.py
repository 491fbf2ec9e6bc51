"""The control endpoint: time, faults, misfortune, and a look behind the API."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from capox.rack import control, inventory
from capox.rack.state import Timing
from tests.contract.rack import instance_life, staging
from tests.rack import RackUnderTest

TOKEN = "control-token-of-tests"


class Commander:
    """A client of the control endpoint within the process."""

    def __init__(self, rack: RackUnderTest) -> None:
        transport = httpx.ASGITransport(control.build_control(rack.app, TOKEN))
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx.AsyncClient(transport=transport, base_url="http://control", headers=headers)

    async def must(self, status: int, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a command that has to be answered by this status."""
        answer = await self.http.request(method, path, params=query, **({} if body is None else {"json": body}))
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


@pytest.fixture
async def commander(client: RackUnderTest) -> AsyncIterator[Commander]:
    """The control endpoint of the rack under test."""
    made = Commander(client)
    yield made
    await made.http.aclose()


@pytest.mark.parametrize("token", [None, "", "wrong", "oxide-token-admin", TOKEN.upper()])
async def test_token_of_its_own(client: RackUnderTest, token: str | None) -> None:
    """Without the control token nothing is told, not even whether a command is there."""
    transport = httpx.ASGITransport(control.build_control(client.app, TOKEN))
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://control", headers=headers) as http:
        for path in ("/time", "/inventory", "/nothing"):
            answer = await http.get(path)
            assert answer.status_code == 401
            assert "control token" in answer.json()["error"]


async def test_control_token_is_no_token_of_the_api(client: RackUnderTest) -> None:
    """What opens the control endpoint does not open the API."""
    answer = await client.http.get("/v1/me", headers={"authorization": f"Bearer {TOKEN}"})

    assert answer.status_code == 401


async def test_time_stands_until_it_is_told_to_pass(client: RackUnderTest, commander: Commander) -> None:
    """A commanded rack's instance starts when its time has been made to pass, and not a second earlier."""
    await instance_life.create(client, start=True)
    seconds = client.state.timing.instance_start

    before = await commander.must(200, "GET", "/time")
    await commander.must(200, "POST", "/time/advance", {"seconds": seconds * 0.9})
    assert await instance_life.run_state(client) == "starting"
    after = await commander.must(200, "POST", "/time/advance", {"seconds": seconds * 0.2})

    assert await instance_life.run_state(client) == "running"
    assert (before["mode"], before["waiting"]) == ("commanded", 1)
    assert before["next_due"] is not None
    assert (after["waiting"], after["next_due"]) == (0, None)
    assert after["now"] > before["now"]


async def test_chains_of_events_keep_their_times(client: RackUnderTest, commander: Commander) -> None:
    """3.3: one long advance lets each event happen at its own time: failed, restarted, running."""
    instance = await instance_life.create_running(client)
    failed_at = client.state.now()
    await commander.must(200, "POST", "/instances/node/fail")

    await commander.must(200, "POST", "/time/advance", {"seconds": 3600})

    timing = client.state.timing
    assert instance.state == "running"
    assert instance.time_last_auto_restarted is not None
    assert (instance.time_last_auto_restarted - failed_at).total_seconds() == timing.auto_restart
    passed = (instance.time_run_state_updated - failed_at).total_seconds()
    assert passed == timing.auto_restart + timing.instance_start


async def test_requests_go_on_as_time_passes(client: RackUnderTest, commander: Commander) -> None:
    """A request that takes time waits for the command and is answered at its own time."""
    client.state.timing = Timing(instance_create=10.0)
    headers = {"authorization": "Bearer oxide-token-admin"}
    request = asyncio.ensure_future(
        client.http.post(instance_life.INSTANCES, json=instance_life.MINIMAL, headers=headers)
    )
    await client.waits_for_time()

    await commander.must(200, "POST", "/time/advance", {"seconds": 9})
    assert not request.done()
    assert await instance_life.run_state(client) == "creating"
    await commander.must(200, "POST", "/time/advance", {"seconds": 100})

    assert (await request).status_code == 201
    (entry,) = [entry for entry in client.app.log.entries() if entry.operation == "instance_create"]
    assert entry.seconds == pytest.approx(10.0)


async def test_settle(client: RackUnderTest, commander: Commander) -> None:
    """Settling lets time pass as far as anything waits for it, and says so when that would take too long."""
    await instance_life.create(client, start=True)

    refused = await commander.must(409, "POST", "/time/settle", {"within_seconds": 0.1})
    settled = await commander.must(200, "POST", "/time/settle")

    assert "within 0.1 seconds" in refused["error"]
    assert settled["waiting"] == 0
    assert await instance_life.run_state(client) == "running"


async def test_faults_come_and_go(client: RackUnderTest, commander: Commander) -> None:
    """Rules are added, seen with their hits, removed one by one or all at once."""
    first = await commander.must(201, "POST", "/faults", {"kind": "unavailable", "operation": "ping"})
    second = await commander.must(201, "POST", "/faults", {"kind": "slow", "operation": "disk_*", "seconds": 2})
    await client.refused(503, "GET", "/v1/ping")

    listed = await commander.must(200, "GET", "/faults")
    assert [(rule["id"], rule["kind"], rule["hits"]) for rule in listed["items"]] == [
        (first["id"], "unavailable", 1),
        (second["id"], "slow", 0),
    ]
    await commander.must(204, "DELETE", f"/faults/{first['id']}")
    await client.must(200, "GET", "/v1/ping")
    missing = await commander.must(404, "DELETE", f"/faults/{first['id']}")
    assert first["id"] in missing["error"]
    await commander.must(204, "DELETE", "/faults")
    assert (await commander.must(200, "GET", "/faults"))["items"] == []


async def test_instance_fails(client: RackUnderTest, commander: Commander) -> None:
    """3.3: a VMM that is found gone is `failed` at once; a guest that crashes is `failed` when it is noticed."""
    await instance_life.create_running(client, "one", auto_restart_policy="never")
    two = await instance_life.create_running(client, "two", auto_restart_policy="never")

    failed = await commander.must(200, "POST", "/instances/one/fail")
    await commander.must(200, "POST", f"/instances/{two.id}/crash")

    assert failed["state"] == "failed"
    assert await instance_life.run_state(client, "two") == "running"
    await commander.must(200, "POST", "/time/advance", {"seconds": client.state.timing.failure_notice})
    assert await instance_life.run_state(client, "two") == "failed"


async def test_guest_powers_itself_off(client: RackUnderTest, commander: Commander) -> None:
    """3.3: a shutdown from inside ends in `stopped` and is not undone."""
    await instance_life.create_running(client)

    await commander.must(200, "POST", "/instances/node/power-off")
    await commander.must(200, "POST", "/time/advance", {"seconds": 3600})

    assert await instance_life.run_state(client) == "stopped"


@pytest.mark.parametrize("act", ["fail", "crash", "power-off"])
async def test_misfortune_needs_a_running_instance(client: RackUnderTest, commander: Commander, act: str) -> None:
    """What the state does not allow is refused with the state in the message."""
    await instance_life.create(client)

    refused = await commander.must(409, "POST", f"/instances/node/{act}")

    assert "node" in refused["error"]
    assert "stopped" in refused["error"]


async def test_instances_are_named_uniquely(client: RackUnderTest, commander: Commander) -> None:
    """A name that two projects use is refused with the ids to choose from; an unknown one is not found."""
    other = await client.must(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    project = client.state.projects.by_id(other["id"])
    assert project is not None
    twins = [staging.put_instance(client, "twin"), staging.put_instance(client, "twin", project=project)]

    refused = await commander.must(409, "POST", "/instances/twin/fail")
    missing = await commander.must(404, "POST", "/instances/nobody/fail")

    assert all(twin.id in refused["error"] for twin in twins)
    assert "nobody" in missing["error"]


async def test_sled_is_lost_and_comes_back(client: RackUnderTest, commander: Commander) -> None:
    """3.3: an unreachable sled leaves its instances running; one that comes back rebooted has forgotten them."""
    await instance_life.create_running(client, auto_restart_policy="never")
    sled = instance_life.sled_of(client)

    lost = await commander.must(200, "POST", f"/sleds/{sled.name}/lose")
    await commander.must(200, "POST", "/time/advance", {"seconds": 3600})

    assert lost["is_reachable"] is False
    assert await instance_life.run_state(client) == "running"
    await commander.must(200, "POST", f"/sleds/{sled.id}/restore", {"rebooted": True})
    await commander.must(200, "POST", "/time/advance", {"seconds": client.state.timing.failure_notice})
    assert await instance_life.run_state(client) == "failed"


async def test_sled_is_expunged(client: RackUnderTest, commander: Commander) -> None:
    """3.3: an expunged sled's instances fail and are restarted elsewhere; the sled does not come back."""
    await instance_life.create_running(client)
    sled = instance_life.sled_of(client)

    await commander.must(200, "POST", f"/sleds/{sled.name}/expunge")
    await commander.must(200, "POST", "/time/settle")

    assert await instance_life.run_state(client) == "running"
    assert instance_life.sled_of(client) is not sled
    refused = await commander.must(409, "POST", f"/sleds/{sled.name}/restore")
    assert sled.name in refused["error"]
    listed = await commander.must(200, "GET", "/sleds")
    assert {item["name"]: item["is_in_service"] for item in listed["items"]}[sled.name] is False
    missing = await commander.must(404, "POST", "/sleds/sled99/lose")
    assert "sled99" in missing["error"]
    assert "sled0" in missing["error"]


async def test_version(client: RackUnderTest, commander: Commander) -> None:
    """1.2: the rack can be told to be an older or a newer one."""
    assert (await commander.must(200, "GET", "/version"))["api_version"] == "2026081901.0.0"

    await commander.must(200, "PUT", "/version", {"api_version": "2026060800.0.0"})

    await client.refused(400, "GET", "/v1/me", headers={"api-version": "2026081901.0.0"})
    assert (await commander.must(200, "GET", "/version"))["api_version"] == "2026060800.0.0"


async def test_inventory(client: RackUnderTest, commander: Commander) -> None:
    """The inventory is handed out as it is, and what is due has been done before."""
    instance = await instance_life.create(client, start=True)
    client.clock.advance(client.state.timing.instance_start)

    found = await commander.must(200, "GET", "/inventory")

    assert found == inventory.dump(client.state)
    assert f'"id": "{instance["id"]}"' in json.dumps(found)
    assert '"state": "running"' in json.dumps(found)


async def test_user_data_on_explicit_request(client: RackUnderTest, commander: Commander) -> None:
    """The user data of one instance is handed out to whoever asks for just that, and the call log tells of it."""
    content = b"#cloud-config\n"
    await instance_life.create(client, user_data=base64.b64encode(content).decode())

    answer = await commander.must(200, "POST", "/instances/node/user-data")

    assert base64.b64decode(answer["user_data"]) == content
    (entry,) = (await commander.must(200, "GET", "/calls"))["items"][-1:]
    assert (entry["operation"], entry["objects"][0]) == ("control_user_data", "node")
    await commander.must(405, "GET", "/instances/node/user-data")


async def test_call_log(client: RackUnderTest, commander: Commander) -> None:
    """Each request is in the log with what was asked, by whom, about what, and what was answered."""
    headers = {"api-version": "2026060800.0.0", "user-agent": "tester/1"}
    made = await client.ask("POST", "/v1/projects", {"name": "mine", "description": ""}, headers=headers)
    await client.refused(404, "GET", "/v1/projects/missing", user="viewer")
    await client.refused(404, "GET", "/v1/nothing", user=None)

    created, missed, unknown = (await commander.must(200, "GET", "/calls"))["items"]

    assert created["operation"] == "project_create"
    assert (created["user"], created["status"]) == ("admin", 201)
    assert created["request_id"] == made.headers["x-request-id"]
    assert created["body_sha256"] == hashlib.sha256(made.request.content).hexdigest()
    assert (created["api_version"], created["user_agent"]) == ("2026060800.0.0", "tester/1")
    assert created["objects"] == ["mine"]
    assert (missed["user"], missed["status"], missed["error_code"]) == ("viewer", 404, "ObjectNotFound")
    assert missed["objects"] == ["missing"]
    assert (unknown["operation"], unknown["status"], unknown["user"]) == (None, 404, None)


async def test_call_log_from_a_number_on(client: RackUnderTest, commander: Commander) -> None:
    """The log is read from behind a number on and in parts; cleared, its numbers go on."""
    for _ in range(5):
        await client.must(200, "GET", "/v1/ping")

    first = await commander.must(200, "GET", "/calls", limit=2)
    rest = await commander.must(200, "GET", "/calls", after=first["last"])
    assert [entry["number"] for entry in first["items"] + rest["items"]] == [1, 2, 3, 4, 5]
    assert await commander.must(200, "GET", "/calls", after=5) == {"items": [], "last": 5}

    await commander.must(204, "DELETE", "/calls")
    await client.must(200, "GET", "/v1/ping")
    assert [entry["number"] for entry in (await commander.must(200, "GET", "/calls"))["items"]] == [6]


async def test_call_counts(client: RackUnderTest, commander: Commander) -> None:
    """Calls are counted by operation and status, from behind a number on if that is asked for."""
    for _ in range(3):
        await client.must(200, "GET", "/v1/ping")
    await client.refused(401, "GET", "/v1/me", user=None)

    assert await commander.must(200, "GET", "/calls/counts") == {"current_user_view": {"401": 1}, "ping": {"200": 3}}
    assert await commander.must(200, "GET", "/calls/counts", after=3) == {"current_user_view": {"401": 1}}


async def test_violations(client: RackUnderTest, commander: Commander) -> None:
    """Where the rack left its document can be asked for; it should be nowhere."""
    await client.must(200, "GET", "/v1/projects")

    assert await commander.must(200, "GET", "/violations") == {"items": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "/time/advance", {}, "seconds"),
        ("POST", "/time/advance", {"seconds": -1}, "seconds"),
        ("POST", "/time/advance", {"seconds": 1e12}, "seconds"),
        ("POST", "/time/advance", {"minutes": 1}, "minutes"),
        ("POST", "/time/advance", [], "body"),
        ("POST", "/faults", {"kind": "explode"}, "kind"),
        ("POST", "/instances/node/fail", {"why": "because"}, "why"),
        ("PUT", "/version", {"api_version": "latest"}, "api_version"),
        ("GET", "/calls?after=x", None, "after"),
        ("GET", "/calls?limit=-1", None, "limit"),
    ],
)
async def test_bad_commands(commander: Commander, method: str, path: str, body: Any, named: str) -> None:
    """A command that cannot be meant is refused, and the message names the field."""
    url = httpx.URL(path)
    answer = await commander.must(400, method, url.path, body, **dict(url.params))

    assert named in answer["error"]


async def test_commands_that_are_not_json(commander: Commander) -> None:
    """Bytes that are no JSON, and too many of them, are refused; so are unknown commands and methods."""
    nonsense = await commander.http.post("/faults", content=b"{")
    large = await commander.http.post("/faults", content=b" " * 70_000)

    assert (nonsense.status_code, large.status_code) == (400, 400)
    assert "70000 bytes" in large.json()["error"]
    for status, method, path in ((404, "GET", "/nothing"), (405, "DELETE", "/time")):
        assert path in (await commander.must(status, method, path))["error"]
