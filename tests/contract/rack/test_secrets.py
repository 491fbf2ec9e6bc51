"""Tokens and user data stay where they belong: in no log, dump, error or repr."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import random
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from capox.rack import access, control, credentials, inventory, logs
from capox.rack.table import Table
from tests.contract.rack import instance_life
from tests.leaks import find_leaks
from tests.rack import RackUnderTest
from tests.rack_process import CONFIG, CONTROL_TOKEN, RackProcess

TOKEN = "oxide-token-5f0c1e7a9b3d"
PASSWORD = "hunter2-correct-horse"
PLAIN = f"#cloud-config\nchpasswd: {{list: 'root:{PASSWORD}'}}\n".encode()
PACKED = gzip.compress(PLAIN, mtime=0)
SECRETS = {"the token": TOKEN.encode(), "the user data": PASSWORD.encode(), "the packed user data": PACKED[10:40]}

# Every way in which user data, or a token, was ever put into the wrong place.
MISTAKES: list[dict[str, Any]] = [
    {"user_data": PLAIN.decode()},
    {"user_data": [PLAIN.decode()]},
    {"user_data": {"text": PLAIN.decode()}},
    {"user_data": base64.urlsafe_b64encode(PACKED).decode() + "-"},
    {"user_data": base64.b64encode(PLAIN * 1000).decode()},
    {"hostname": PASSWORD + "_"},
    {"ncpus": PLAIN.decode()},
    {"memory": TOKEN},
    {"start": TOKEN},
    {"network_interfaces": TOKEN},
    {"network_interfaces": {"type": PLAIN.decode()}},
    {"disks": [PLAIN.decode()]},
    {"boot_disk": {"type": "create", "name": PLAIN.decode()}},
    {"external_ips": PLAIN.decode()},
    {"auto_restart_policy": PLAIN.decode()},
    {"cpu_platform": TOKEN},
]


def planted() -> Iterator[tuple[str, str | bytes]]:
    """Each secret in each form in which it could escape."""
    for secret in (TOKEN.encode(), PLAIN):
        text = secret.decode()
        yield "plain", f"before {text} after"
        yield "bytes", b"\x00" + secret
        yield "repr", repr({"data": secret})
        yield "json", json.dumps({"data": text.splitlines()})
        yield "base64", f'"{base64.b64encode(secret).decode()}"'
        yield "base64 within", base64.b64encode(b"x" + secret + b"yy").decode()
        yield "base64 for URLs", base64.urlsafe_b64encode(b"\xff" + secret).decode()
        yield "base64 twice", base64.b64encode(base64.b64encode(secret)).decode()
        yield "hexadecimal", secret.hex()
        yield "percent", urllib.parse.quote(text + " ", safe="")
        yield "gzip", b"head" + gzip.compress(secret)
        yield "gzip in base64", base64.b64encode(gzip.compress(secret)).decode()
        yield "base64 in gzip", gzip.compress(base64.b64encode(secret))
    yield "packed", repr(PACKED)


@pytest.mark.parametrize(("form", "content"), list(planted()))
def test_planted_secrets_are_found(form: str, content: str | bytes) -> None:
    """The search finds a secret in every form."""
    assert find_leaks(SECRETS, {form: content})


def test_search_finds_no_ghosts() -> None:
    """Hashes, ids and random bytes are not taken for a secret."""
    noise = random.Random(1).randbytes(2000)
    rack: dict[str, str | bytes] = {
        "hash": access.hash_token(TOKEN),
        "noise": noise,
        "encoded": base64.b64encode(noise).decode(),
    }

    assert find_leaks(SECRETS, rack) == []


async def make_mistakes(rack: RackUnderTest) -> dict[str, str | bytes]:
    """Send secrets to where they belong and to where they do not; returns everything that was answered."""
    answers: dict[str, str | bytes] = {}

    def keep(answer: httpx.Response) -> None:
        """Keep everything that was answered."""
        assert answer.status_code < 500
        headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
        answers[f"answer {len(answers)} to {answer.request.url.path}"] = f"{headers}\n{answer.text}"

    for name, content in (("plain", PLAIN), ("packed", PACKED)):
        body = instance_life.MINIMAL | {"name": name, "user_data": base64.b64encode(content).decode()}
        for _ in range(2):
            keep(await rack.ask("POST", instance_life.INSTANCES, body))
        keep(await rack.ask("POST", instance_life.path(name, "start")))
        keep(await rack.ask("GET", instance_life.path(name)))
        keep(await rack.ask("PUT", instance_life.path(name), body))
    for mistake in MISTAKES:
        keep(await rack.ask("POST", instance_life.INSTANCES, instance_life.MINIMAL | mistake))
    keep(await rack.ask("GET", "/v1/instances", project="demo"))
    for authorization in (f"Bearer {TOKEN}", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN):
        keep(await rack.http.get("/v1/me", headers={"authorization": authorization}))
    for query in (f"limit={TOKEN}", f"page_token={TOKEN}", f"sort_by={TOKEN}", f"project={TOKEN}_"):
        keep(await rack.ask("GET", f"/v1/instances?{query}"))
    rack.pass_time(60)
    return answers


async def test_nothing_leaks_within_the_process(client: RackUnderTest) -> None:
    """Answers, call log, inventory, records and violations hold neither tokens nor user data, in no form."""
    owner = client.add_user("ann", client.silo, "admin")
    token = client.state.tokens[access.hash_token("oxide-token-ann")]
    client.state.tokens[access.hash_token(TOKEN)] = token
    answers = await make_mistakes(client)
    tables = [table for table in vars(client.state).values() if isinstance(table, Table)]
    places: dict[str, str | bytes] = {
        **answers,
        "inventory": json.dumps(inventory.dump(client.state)),
        "call log": json.dumps([entry.dump() for entry in client.app.log.entries()]),
        "violations": repr(client.app.violations),
        "records": repr([list(table) for table in tables]),
        "tokens": repr(client.state.tokens),
        "owner": repr(owner),
    }
    for name in ("plain", "packed"):
        record = instance_life.record(client, name)
        assert PASSWORD.encode() in (record.user_data if name == "plain" else gzip.decompress(record.user_data))

    assert find_leaks(SECRETS, places) == []


@pytest.fixture
def configured_log(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """The rack's own log as its users see it, and everything as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    logs.configure("json", "debug", sys.stderr)
    yield capsys
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)


async def test_a_mistake_of_the_rack_tells_no_values(
    client: RackUnderTest, configured_log: pytest.CaptureFixture[str]
) -> None:
    """1.3: an error inside the rack is answered like any other 500, reported, and carries nothing of the request."""
    await instance_life.create(client, user_data=base64.b64encode(PLAIN).decode())
    record = instance_life.record(client)
    record.ncpus = "many"  # type: ignore[assignment]  # an error that the rack could have

    answer = await client.ask("POST", instance_life.path(act="start"))

    assert (answer.status_code, answer.json()["error_code"]) == (500, "Internal")
    assert client.app.violations.pop().startswith("instance_start: TypeError")
    told = configured_log.readouterr().err
    assert "TypeError" in told
    assert find_leaks(SECRETS, {"answer": answer.text, "log": told}) == []


async def test_control_hands_out_one_instance_s_user_data_only(client: RackUnderTest) -> None:
    """The one place that tells user data is asked for it by name; nothing else that control says has any."""
    for name, content in (("plain", PLAIN), ("packed", PACKED)):
        await instance_life.create(client, name=name, user_data=base64.b64encode(content).decode(), start=True)
    headers = {"authorization": "Bearer control"}
    transport = httpx.ASGITransport(control.build_control(client.app, "control"))
    said: dict[str, str | bytes] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://control", headers=headers) as commander:
        asked = await commander.post("/instances/plain/user-data")
        for path in ("/time", "/faults", "/sleds", "/version", "/inventory", "/calls", "/calls/counts", "/violations"):
            said[path] = (await commander.get(path)).text
        client.pass_time(60)
        for act in ("fail", "crash", "power-off"):
            said[act] = (await commander.post(f"/instances/packed/{act}")).text

    assert find_leaks(SECRETS, {"asked": asked.text}) == ["asked holds the user data"]
    assert find_leaks(SECRETS, said) == []


def percent(text: str) -> str:
    """A text with every character encoded, so that not one is as it was."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


async def test_an_encoded_token_is_in_no_call_log(client: RackUnderTest) -> None:
    """1.1: a token that a client has put into a path, a query or a header cannot be read, however it is encoded."""
    plain = TOKEN + "+tail"
    for layers in range(1, 4):
        encoded = plain
        for _ in range(layers):
            encoded = percent(encoded)
        await client.ask("GET", f"/v1/projects/{encoded}")
        await client.ask("GET", f"/v1/instances?project={encoded}&limit=5")
        await client.ask("GET", f"/v1/{encoded}/instances")
        await client.ask("GET", "/v1/me", headers={"user-agent": f"curl {encoded}"})
    await client.ask("GET", "/v1/instances?project=de%6do&name=a%2Fb")

    entries = [entry.dump() for entry in client.app.log.entries()]
    assert find_leaks(SECRETS, {"call log": json.dumps(entries)}) == []
    assert all("oxide-token-(hidden)" in json.dumps(entry) for entry in entries[:-1])
    assert entries[-1]["query"] == "project=de%6do&name=a%2Fb", "the rest is told as it was sent"


def test_what_is_encoded_without_end_is_hidden() -> None:
    """A text that is still encoded after many layers is not told at all."""
    text = "oxide-token-x"
    for _ in range(12):
        text = urllib.parse.quote(text, safe="").replace("-", "%2D")

    assert credentials.without_secrets(text) == "(hidden)"
    assert credentials.without_secrets("50% of a%zz%20b") == "50% of a%zz%20b"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_leaks_from_the_process(tmp_path: Path, log_format: str) -> None:
    """A whole process at its most talkative writes neither tokens nor user data, and is not started with any."""
    users = [{"name": "admin", "role": "admin", "tokens": [{"token": TOKEN}]}]
    silo = CONFIG["silos"][0] | {"users": users}
    secrets = SECRETS | {"the control token": CONTROL_TOKEN.encode()}
    arguments = ["--log-level", "debug", "--log-format", log_format]
    said: dict[str, str | bytes] = {}

    with RackProcess(tmp_path, CONFIG | {"silos": [silo]}, *arguments) as running:
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            for number, change in enumerate([{"user_data": base64.b64encode(PACKED).decode()}, *MISTAKES]):
                said[f"answer {number}"] = client.post(
                    instance_life.INSTANCES, json=instance_life.MINIMAL | change
                ).text
            client.get(f"/v1/projects/{TOKEN}")
            client.get("/v1/projects", params={"limit": TOKEN})
            client.get(f"/v1/projects/{percent(TOKEN)}?limit={percent(percent(TOKEN))}")
            client.get("/v1/me", headers={"user-agent": TOKEN})
        said["calls"] = json.dumps(running.control.calls())
        said["inventory"] = json.dumps(running.control.inventory())
        said["command line"] = Path(f"/proc/{running.pid}/cmdline").read_bytes()
    log = running.log_file.read_text()
    said |= {"log": log, "output": running.output_file.read_text(), "announcement": json.dumps(running.announcement)}

    assert log.count("Finishing request") == len(MISTAKES) + 5
    assert find_leaks(secrets, said) == []
