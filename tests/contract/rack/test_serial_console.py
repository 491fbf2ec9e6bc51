"""The serial console over HTTP and as a stream (semantics 9.2)."""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

import pytest

from capox.rack import console, records
from tests.contract.rack.staging import put_instance
from tests.rack import START, RackUnderTest


def _put_running(rack: RackUnderTest) -> records.Instance:
    instance = put_instance(rack, "i", "running")
    console.power_on(instance, START)
    return instance


async def _read(rack: RackUnderTest, instance: records.Instance, **query: int) -> tuple[bytes, int]:
    shown = await rack.must(200, "GET", f"/v1/instances/{instance.id}/serial-console", **query)
    return bytes(shown["data"]), shown["last_byte_offset"]


class _WebSocket:
    """A client of the rack's WebSocket within the process, which reads one message at a time."""

    def __init__(self, rack: RackUnderTest, path: str, *, user: str | None, query: dict[str, Any]) -> None:
        self._rack = rack
        self._to_rack: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_rack: asyncio.Queue[Any] = asyncio.Queue()
        headers = [] if user is None else [(b"authorization", f"Bearer oxide-token-{user}".encode())]
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": urllib.parse.urlencode(query).encode(),
            "headers": headers,
            "extensions": {"websocket.http.response": {}},
        }
        self.tell("websocket.connect")
        self._serving = asyncio.create_task(rack.app(scope, self._to_rack.get, self._from_rack.put))

    def tell(self, kind: str, **content: Any) -> None:
        """Send something to the rack."""
        self._to_rack.put_nowait({"type": kind, **content})

    async def next(self) -> dict[str, Any]:
        """The next message of the rack, while time passes."""
        for _ in range(100):
            await asyncio.sleep(0)
            if not self._from_rack.empty():
                message: dict[str, Any] = self._from_rack.get_nowait()
                return message
            self._rack.clock.advance(0.1)
        raise AssertionError("the rack has nothing to say")

    async def end(self) -> None:
        """Wait until the rack has done with the connection."""
        await asyncio.wait_for(self._serving, 5)


def _stream(rack: RackUnderTest, reference: str, *, user: str | None = "admin", **query: Any) -> _WebSocket:
    return _WebSocket(rack, f"/v1/instances/{reference}/serial-console/stream", user=user, query=query)


async def test_console_of_an_instance_without_a_guest(client: RackUnderTest) -> None:
    """9.2: a start leaves a plain text on the console, which says what was booted and that nobody lives there."""
    instance = _put_running(client)

    data, end = await _read(client, instance, from_start=0)

    text = data.decode("ascii")
    assert text.startswith(f"Booting instance i ({instance.id}) at 2026-09-01T12:00:00+00:00\r\n")
    assert text.endswith("\r\n")
    assert end == len(data)


async def test_pieces(client: RackUnderTest) -> None:
    """9.2: pieces are taken from an offset or from so many bytes before the end, and say where the next begins."""
    instance = put_instance(client, "i", "running")
    instance.console.write(b"0123456789")

    assert await _read(client, instance, from_start=0, max_bytes=4) == (b"0123", 4)
    assert await _read(client, instance, from_start=4) == (b"456789", 10)
    assert await _read(client, instance, most_recent=3) == (b"789", 10)
    assert await _read(client, instance, most_recent=100, max_bytes=2) == (b"01", 2)
    assert await _read(client, instance, from_start=99) == (b"", 10)
    assert await _read(client, instance, most_recent=0) == (b"", 10)


async def test_old_output_is_dropped(client: RackUnderTest) -> None:
    """9.2: a console keeps its last bytes; what was dropped still counts in offsets."""
    instance = put_instance(client, "i", "running")
    instance.console = console.Console(capacity_bytes=4)
    instance.console.write(b"01234")
    instance.console.write(b"5")

    assert await _read(client, instance, from_start=0) == (b"2345", 6)
    assert await _read(client, instance, from_start=0, max_bytes=1) == (b"2", 3)
    assert await _read(client, instance, from_start=4) == (b"45", 6)


async def test_reboot_goes_on_and_start_begins_anew(client: RackUnderTest) -> None:
    """9.2: offsets count from the start of the instance, so a reboot adds and a start begins at nought."""
    instance = _put_running(client)
    once = instance.console.end
    console.reset(instance, START)
    assert instance.console.end == 2 * once

    console.power_on(instance, START)

    assert instance.console.end == once


@pytest.mark.parametrize("query", [{}, {"from_start": 0, "most_recent": 1}])
async def test_one_place_to_read_from(client: RackUnderTest, query: dict[str, int]) -> None:
    """9.2: exactly one of `from_start` and `most_recent` is given."""
    instance = _put_running(client)

    error = await client.refused(400, "GET", f"/v1/instances/{instance.id}/serial-console", **query)

    assert error["error_code"] == "InvalidRequest"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("stopped", "instance is stopped and has no active serial console server"),
        ("failed", "instance is failed and has no active serial console server"),
        ("creating", "instance is creating and has no active serial console server"),
        ("starting", 'cannot connect to serial console of instance in state "starting"'),
        ("stopping", 'cannot connect to serial console of instance in state "stopping"'),
    ],
)
async def test_instance_that_does_not_run(client: RackUnderTest, state: records.InstanceState, message: str) -> None:
    """9.2: only an instance that runs has a console, over HTTP and as a stream."""
    instance = put_instance(client, "i", state)

    error = await client.refused(400, "GET", f"/v1/instances/{instance.id}/serial-console", from_start=0)
    socket = _stream(client, instance.id)

    assert (error["error_code"], error["message"]) == ("InvalidRequest", message)
    assert await socket.next() == {"type": "websocket.accept"}
    assert await socket.next() == {"type": "websocket.close", "code": 1011, "reason": message}
    await socket.end()


async def test_stream_sends_what_is_kept_and_what_comes(client: RackUnderTest) -> None:
    """9.2: a stream begins with what is kept, goes on with what is written, and ends when its client leaves."""
    instance = put_instance(client, "i", "running")
    instance.console.write(b"before")
    socket = _stream(client, "i", project="demo")
    assert await socket.next() == {"type": "websocket.accept"}
    assert await socket.next() == {"type": "websocket.send", "bytes": b"before"}

    instance.console.write(b"after")

    assert await socket.next() == {"type": "websocket.send", "bytes": b"after"}
    socket.tell("websocket.receive", bytes=b"nobody reads this")
    socket.tell("websocket.disconnect", code=1000)
    await socket.end()
    assert not client.clock.has_sleepers


async def test_stream_from_near_the_end(client: RackUnderTest) -> None:
    """9.2: `most_recent` begins the stream so many bytes before the end."""
    instance = put_instance(client, "i", "running")
    instance.console.write(b"0123456789")
    socket = _stream(client, instance.id, most_recent=2)

    assert await socket.next() == {"type": "websocket.accept"}
    assert await socket.next() == {"type": "websocket.send", "bytes": b"89"}
    socket.tell("websocket.disconnect", code=1000)
    await socket.end()


async def test_stream_ends_with_the_vmm(client: RackUnderTest) -> None:
    """9.2: when the instance stops, or has stopped and started meanwhile, the stream is closed."""
    for stop_and_start in (False, True):
        instance = put_instance(client, f"i{stop_and_start:d}", "running")
        socket = _stream(client, instance.id)
        assert await socket.next() == {"type": "websocket.accept"}
        if stop_and_start:
            console.power_on(instance, START)
        else:
            instance.state = "stopped"

        message = await socket.next()

        assert (message["type"], message["code"]) == ("websocket.close", 1000)
        await socket.end()


@pytest.mark.parametrize(
    ("user", "query", "status"), [(None, {}, 401), ("unknown", {}, 401), ("admin", {"most_recent": "x"}, 400)]
)
async def test_upgrade_is_refused(client: RackUnderTest, user: str | None, query: dict[str, str], status: int) -> None:
    """1.1: without valid credentials, or with parameters that cannot be read, the connection is not upgraded."""
    instance = _put_running(client)
    socket = _stream(client, instance.id, user=user, **query)

    start, body = await socket.next(), await socket.next()

    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert {b"x-request-id", b"content-type"} <= {name for name, _ in start["headers"]}
    assert b"request_id" in body["body"]
    await socket.end()


async def test_stream_needs_more_than_a_look(client: RackUnderTest) -> None:
    """1.1: a viewer reads the console over HTTP, and has no stream, through which one could type."""
    instance = _put_running(client)
    await client.must(200, "GET", f"/v1/instances/{instance.id}/serial-console", user="viewer", from_start=0)
    socket = _stream(client, instance.id, user="viewer")

    assert await socket.next() == {"type": "websocket.accept"}
    assert await socket.next() == {"type": "websocket.close", "code": 1011, "reason": "Forbidden"}
    await socket.end()


async def test_other_paths_have_no_stream(client: RackUnderTest) -> None:
    """1.3: a WebSocket to any other path is 404."""
    socket = _WebSocket(client, "/v1/instances", user="admin", query={})

    assert (await socket.next())["status"] == 404
    await socket.next()
    await socket.end()
