"""The rack as a process: HTTP and HTTPS over TCP, and an end without leftovers."""

from __future__ import annotations

import concurrent.futures
import json
import re
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.sync.client

from capox.rack import certificates
from tests.rack import GIB
from tests.rack_process import CONFIG, RackProcess

PROJECT: dict[str, Any] = {"name": "mine", "description": ""}
WITH_TLS = CONFIG | {"tls": {"listen": "127.0.0.1:0", "self_signed": True}}
INSTANCE: dict[str, Any] = {"name": "node", "description": "", "hostname": "node", "ncpus": 1, "memory": GIB}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackProcess]:
    """A rack with HTTP, HTTPS and control, for all tests here that leave it as it is."""
    with RackProcess(tmp_path_factory.mktemp("rack"), WITH_TLS) as running:
        yield running
        assert running.control.violations() == []


@pytest.fixture
def http(process: RackProcess) -> Iterator[httpx.Client]:
    """A client as `admin`; afterwards no fault is at work any more."""
    with process.client() as client:
        yield client
    process.control.clear_faults()


def wire(process: RackProcess, request: bytes) -> bytes:
    """Everything that is answered to these bytes until the rack closes the connection or falls silent."""
    url = httpx.URL(process.url)
    with socket.create_connection((url.host, url.port or 0), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def statuses(answer: bytes) -> list[int]:
    """The statuses of the answers in a stream of bytes, in their order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def test_announcement(process: RackProcess) -> None:
    """Standard output has one line of JSON, the same as the ready file's, which says where everything is."""
    (line,) = process.output_file.read_text().splitlines()

    announced = json.loads(line)
    assert announced == process.announcement
    assert announced["pid"] == process.pid
    assert announced["api"].startswith("http://127.0.0.1:")
    assert announced["api_tls"].startswith("https://127.0.0.1:")
    assert announced["control"].startswith("http://127.0.0.1:")


def test_http(process: RackProcess, http: httpx.Client) -> None:
    """1.1: the API answers over HTTP, and says nothing of the software behind it."""
    answer = http.get("/v1/me")

    assert answer.status_code == 200
    assert answer.json()["display_name"] == "admin"
    assert answer.headers["content-type"] == "application/json"
    assert "server" not in answer.headers
    with process.client(None) as anonymous:
        assert anonymous.get("/v1/me").status_code == 401


def test_https(process: RackProcess) -> None:
    """Over HTTPS the same rack answers; its certificate is accepted by those who were given it, and by no others."""
    trusting = ssl.create_default_context(cafile=process.announcement["certificate"])
    headers = {"authorization": "Bearer oxide-token-admin"}

    with httpx.Client(base_url=process.announcement["api_tls"], headers=headers, verify=trusting) as client:
        over_https = client.get("/v1/projects").json()
    with process.client() as client:
        assert client.get("/v1/projects").json() == over_https
    with httpx.Client(base_url=process.announcement["api_tls"]) as client, pytest.raises(httpx.ConnectError):
        client.get("/v1/ping")


def test_connection_is_kept(process: RackProcess) -> None:
    """A connection serves one request after the other, refusals included."""
    request = b"GET /v1/%s HTTP/1.1\r\nHost: rack\r\n%s\r\n"
    close = b"Connection: close\r\n"

    answer = wire(process, request % (b"ping", b"") + request % (b"nothing", b"") + request % (b"ping", close))

    assert statuses(answer) == [200, 404, 200]


def test_pipelined_requests_are_answered_in_order(process: RackProcess) -> None:
    """Requests sent at once are answered one after the other, in their order."""
    paths = [b"/v1/ping", b"/v1/nothing", b"/v1/me"]
    requests = b"".join(b"GET %s HTTP/1.1\r\nHost: rack\r\n\r\n" % path for path in paths)

    answer = wire(process, requests + b"GET /v1/ping HTTP/1.1\r\nHost: rack\r\nConnection: close\r\n\r\n")

    assert statuses(answer) == [200, 404, 401, 200]


def test_head_and_options(http: httpx.Client) -> None:
    """1.3: neither HEAD nor OPTIONS is served anywhere; HEAD's refusal has no body."""
    head, options = http.head("/v1/ping"), http.options("/v1/ping")

    assert (head.status_code, options.status_code) == (405, 405)
    assert (head.headers["allow"], options.headers["allow"]) == ("GET", "GET")
    assert head.content == b""
    assert options.json()["message"] == "Method Not Allowed"


def test_oversize_body(http: httpx.Client) -> None:
    """1.3: a body above the limit is refused, however it is sent, and the connection goes on."""
    for content in (b" " * (1024 * 1024 + 1), iter([b" " * 65536] * 200)):
        answer = http.post("/v1/projects", content=content)
        assert answer.status_code == 400
        assert answer.json()["message"] == "request body exceeded maximum size of 1048576 bytes"
    assert http.get("/v1/ping").status_code == 200


def test_nonsense_is_answered_and_closed(process: RackProcess) -> None:
    """What is no HTTP gets a 400, and the rack goes on."""
    assert wire(process, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert wire(process, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000).startswith(b"HTTP/1.1 400 ")
    with process.client() as client:
        assert client.get("/v1/ping").status_code == 200


@pytest.mark.parametrize("over", ["api", "api_tls"])
@pytest.mark.parametrize(("kind", "done"), [("lost_request", False), ("lost_reply", True)])
def test_lost_messages(process: RackProcess, over: str, kind: str, *, done: bool) -> None:
    """1.3: the connection ends without a byte of answer; whether the work was done only a look can tell."""
    trusting = ssl.create_default_context(cafile=process.announcement["certificate"])
    name = f"{kind.replace('_', '-')}-{over.replace('_', '-')}"
    process.control.add_fault(kind, operation="project_create", times=1)
    headers = {"authorization": "Bearer oxide-token-admin"}

    with httpx.Client(base_url=process.announcement[over], headers=headers, verify=trusting) as client:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            client.post("/v1/projects", json={"name": name, "description": ""})
        found = client.get(f"/v1/projects/{name}").status_code

    assert found == (200 if done else 404)
    process.control.clear_faults()


def test_lost_reply_sends_nothing(process: RackProcess) -> None:
    """1.3: on the wire there is nothing at all of a lost reply, and the server does not take it for a mistake."""
    process.control.add_fault("lost_reply", operation="ping", times=1)

    try:
        answer = wire(process, b"GET /v1/ping HTTP/1.1\r\nHost: rack\r\n\r\n")
    except ConnectionResetError:
        answer = b""

    assert answer == b""
    assert "without starting response" not in process.log_file.read_text()
    assert "Traceback" not in process.log_file.read_text()


def test_client_that_gives_up(process: RackProcess, http: httpx.Client) -> None:
    """1.3: what a client did not wait for is done nevertheless."""
    process.control.add_fault("slow", operation="project_create", seconds=0.3, times=1)

    with process.client() as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("/v1/projects", json={"name": "given-up", "description": ""}, timeout=0.05)

    assert eventually(lambda: http.get("/v1/projects/given-up").status_code == 200)


def test_many_at_once(process: RackProcess) -> None:
    """Clients at the same time are answered each for itself, and a name goes to exactly one of them."""

    def create(number: int) -> int:
        with process.client() as client:
            return client.post("/v1/projects", json={"name": f"race-{number % 5}", "description": ""}).status_code

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        found = list(pool.map(create, range(20)))

    assert sorted(found) == [201] * 5 + [400] * 15


def test_time_passes_by_itself(process: RackProcess, http: httpx.Client) -> None:
    """3.1: an instance starts, and its state is in the inventory, though nobody asks the API meanwhile."""
    made = http.post("/v1/instances?project=demo", json=INSTANCE)
    assert (made.status_code, made.json()["run_state"]) == (201, "starting")

    def state() -> str:
        (silo,) = process.control.inventory()["silos"]
        (demo,) = [project for project in silo["projects"] if project["name"] == "demo"]
        return str(demo["instances"][0]["state"])

    assert eventually(lambda: state() == "running")


def test_console_over_websocket(process: RackProcess, http: httpx.Client) -> None:
    """9.2: the serial console is a WebSocket, and asks for credentials as everything does."""
    http.post("/v1/instances?project=demo", json=INSTANCE | {"name": "talker"})
    path = "/v1/instances/talker/serial-console/stream?project=demo"
    assert eventually(lambda: http.get("/v1/instances/talker?project=demo").json()["run_state"] == "running")
    url = process.url.replace("http://", "ws://") + path
    headers = {"authorization": "Bearer oxide-token-admin"}

    with websockets.sync.client.connect(url, additional_headers=headers) as console:
        assert console.recv(timeout=10)
    with pytest.raises(websockets.exceptions.WebSocketException), websockets.sync.client.connect(url) as console:
        console.recv(timeout=10)


def eventually(condition: Any, seconds: float = 20) -> bool:
    """Whether something becomes true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop(tmp_path: Path, number: signal.Signals) -> None:
    """Told to stop, the rack ends with 0, closes idle connections, and leaves neither files nor listeners behind."""
    with RackProcess(tmp_path, WITH_TLS) as running:
        certificate = Path(running.announcement["certificate"])
        address = httpx.URL(running.url)
        with running.client() as client:
            assert client.get("/v1/ping").status_code == 200
            assert certificate.exists()
            assert running._process is not None
            running._process.send_signal(number)
            assert running.stop() == 0

    assert not certificate.parent.exists()
    assert not (tmp_path / "ready.json").exists()
    assert "Traceback" not in running.log_file.read_text()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((address.host, address.port or 0), timeout=5):
        pass


def test_stop_with_a_request_under_way(tmp_path: Path) -> None:
    """A request that waits for a commanded clock cannot keep the rack from ending."""
    with RackProcess(tmp_path, CONFIG | {"mode": "commanded"}) as running:
        with running.client() as client, pytest.raises(httpx.ReadTimeout):
            client.post("/v1/instances?project=demo", json=INSTANCE, timeout=0.2)

        assert running.stop() == 0


def test_own_certificate(tmp_path: Path) -> None:
    """With a certificate of one's own the rack can be reached over HTTPS alone."""
    certificates.write_self_signed(tmp_path / "rack.pem", tmp_path / "rack.key", "127.0.0.1")
    tls = {"listen": "127.0.0.1:0", "certificate": "rack.pem", "key": "rack.key"}

    with RackProcess(tmp_path, CONFIG | {"listen": None, "tls": tls}) as running:
        trusting = ssl.create_default_context(cafile=tmp_path / "rack.pem")
        with httpx.Client(base_url=running.announcement["api_tls"], verify=trusting) as client:
            assert client.get("/v1/ping").status_code == 200
        assert "api" not in running.announcement
    assert (tmp_path / "rack.pem").exists()
