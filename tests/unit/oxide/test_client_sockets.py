"""The client on real connections: what only a socket can do to it. These few tests take real time, in milliseconds."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import random
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from capox.oxide import OxideClient, client, errors
from tests.unit.oxide.scripted import REQUEST_ID, TOKEN
from tests.unit.oxide.sockets import Said, http, socket_rack

if TYPE_CHECKING:
    from pathlib import Path

PONG = http("200 OK", b'{"status":"ok"}', f"x-request-id: {REQUEST_ID}")


class _NoPause(random.Random):
    """Chooses the shortest pause between attempts."""

    def uniform(self, a: float, b: float) -> float:
        """Give the lower bound."""
        return min(a, b)


def _client(port: int, scheme: str = "http", **options: Any) -> OxideClient:
    options = {"deadline_seconds": 5.0, "write_deadline_seconds": 5.0, "randomness": _NoPause(), **options}
    return OxideClient(host=f"{scheme}://127.0.0.1:{port}", token=SecretStr(TOKEN), **options)


async def test_connections_are_kept() -> None:
    """Ten reads use one connection."""
    async with socket_rack(Said(pieces=[PONG])) as rack, _client(rack.port) as oxide:
        for _ in range(10):
            await oxide.ping()

    assert {connection for connection, _ in rack.requests} == {1}


async def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """The server ends an idle connection; the next read takes another one and the caller sees nothing of it."""
    async with socket_rack(Said(pieces=[PONG], closes=True)) as rack, _client(rack.port) as oxide:
        for _ in range(3):
            await oxide.ping()

    assert [connection for connection, _ in rack.requests] == [1, 2, 3]


async def test_a_rack_that_accepts_and_never_answers_leaves_the_client_well() -> None:
    """However many requests wait in vain, run out of time or are cancelled: when it answers again, we go on."""
    many = 2 * client.CONNECTIONS_LIMIT
    silent = Said(pause_seconds=2.0, pieces=[b""])
    async with socket_rack(silent) as rack, _client(rack.port, deadline_seconds=0.2) as oxide:
        for round_number in range(8):
            waiting = [asyncio.create_task(oxide.instance_list(project="p").all()) for _ in range(many)]
            await asyncio.sleep(0.02 * round_number)
            for each in waiting[:: round_number + 1]:
                each.cancel()
            ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20.0)
            assert {type(each) for each in ends} <= {asyncio.CancelledError, errors.TransportError}

        rack.follow(Said(pieces=[PONG]))
        for _ in range(5):
            await oxide.ping()


async def test_a_server_that_hangs_up_on_a_request() -> None:
    """A read is repeated on a new connection; a write is not, and may have happened."""
    lines = [Said(closes=True), Said(resets=True), Said(pieces=[PONG])]
    async with socket_rack(*lines) as rack, _client(rack.port) as oxide:
        await oxide.ping()
        assert len(rack.requests) == 3

    for hung_up in (Said(closes=True), Said(resets=True)):
        async with socket_rack(hung_up) as rack, _client(rack.port) as oxide:
            with pytest.raises(errors.TransportError) as caught:
                await oxide.instance_delete("machine-1", project="demo")

            assert caught.value.outcome_unknown
            assert len(rack.requests) == 1


async def test_nobody_listens() -> None:
    """A write that found no server certainly did not happen."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with _client(unused.getsockname()[1]) as oxide:
            with pytest.raises(errors.TransportError) as caught:
                await oxide.instance_delete("machine-1", project="demo")

    assert not caught.value.outcome_unknown


@pytest.mark.parametrize(
    "answer",
    [
        http("200 OK", b'{"status":', length=15),
        b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"sta\r\n',
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x00\xff",
    ],
    ids=["body cut", "chunks cut", "head cut", "no HTTP", "TLS"],
)
async def test_an_answer_that_is_cut_or_no_http(answer: bytes) -> None:
    """It is a transport error: no answer has arrived. A cut list is never a short list."""
    async with socket_rack(Said(pieces=[answer], closes=True)) as rack, _client(rack.port) as oxide:
        with pytest.raises(errors.TransportError) as caught:
            await oxide.instance_delete("machine-1", project="demo")
        with pytest.raises(errors.TransportError):
            await oxide.instance_list(project="demo").all()

    assert caught.value.outcome_unknown


async def test_a_server_that_drips_is_cut_off_at_the_deadline() -> None:
    """Bytes that keep coming do not keep the call alive."""
    drip = Said(pieces=[http("200 OK", length=1000), *([b" "] * 1000)], pause_seconds=0.02)
    async with socket_rack(drip) as rack, _client(rack.port, deadline_seconds=0.3) as oxide:
        with pytest.raises(errors.TransportError, match=r"no answer within 0\.3 s"):
            await oxide.ping()


async def test_an_answer_without_end_is_cut_off_at_its_limit() -> None:
    """A body of unknown length is not read to its end, and its connection not used again."""
    flood = Said(pieces=[b"HTTP/1.0 200 OK\r\n\r\n", *([b" " * 2**20] * 40)], closes=True)
    async with socket_rack(flood, Said(pieces=[PONG])) as rack, _client(rack.port) as oxide:
        with pytest.raises(errors.ResponseError, match="longer than"):
            await oxide.ping()
        assert (await oxide.ping()).status == "ok"

    assert [connection for connection, _ in rack.requests] == [1, 2]


async def test_calls_that_are_given_up_free_their_connections() -> None:
    """More calls are cancelled than there may be connections, and the next ones still find some."""
    async with socket_rack(Said(pieces=[b""], pause_seconds=0.5)) as rack, _client(rack.port) as oxide:
        for _ in range(2):
            calls = [asyncio.create_task(oxide.ping()) for _ in range(client.CONNECTIONS_LIMIT + 8)]
            await asyncio.sleep(0.1)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert all(call.cancelled() for call in calls)

        rack.follow(Said(pieces=[PONG]))
        answers = await asyncio.gather(*(oxide.ping() for _ in range(client.CONNECTIONS_LIMIT + 8)))
        assert {answer.status for answer in answers} == {"ok"}


async def test_after_a_cut_off_call_the_next_one_is_clean() -> None:
    """The rest of a late answer is never read as the answer to something else."""
    late = Said(pieces=[b"", http("404 Not Found", b'{"message":"late"}')], pause_seconds=0.3)
    async with socket_rack(late, Said(pieces=[PONG])) as rack, _client(rack.port, deadline_seconds=0.1) as oxide:
        with pytest.raises(errors.TransportError):
            await oxide.ping()
        for _ in range(3):
            assert (await oxide.ping()).status == "ok"

    assert [connection for connection, _ in rack.requests] == [1, 2, 2, 2]


async def test_a_status_line_of_another_protocol_version_is_still_http() -> None:
    """HTTP/1.0 and headers in any case are understood."""
    answer = b'HTTP/1.0 200 OK\r\nX-Request-ID: abc\r\n\r\n{"status":"ok"}'
    async with socket_rack(Said(pieces=[answer], closes=True)) as rack, _client(rack.port) as oxide:
        assert (await oxide.ping()).status == "ok"


async def test_the_environment_is_not_read() -> None:
    """A proxy of the environment would be shown the token; only settings say where a request goes."""
    async with socket_rack(Said(pieces=[PONG])) as rack, socket_rack(Said(pieces=[PONG])) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            os.environ[name] = f"http://127.0.0.1:{proxy.port}"
        async with _client(rack.port) as oxide:
            await oxide.ping()

    assert len(rack.requests) == 1
    assert proxy.requests == []


def _certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Make a certificate for the loopback address that signs itself, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a rack")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    file = folder / "rack.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + pem
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context, pem.decode()


async def test_a_private_authority_is_trusted_when_it_is_given(tmp_path: Path) -> None:
    """A rack's own CA works, and only for whom it signs."""
    tls, ca = _certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other_ca = _certificate(tmp_path / "other")
    async with socket_rack(Said(pieces=[PONG]), tls=tls) as rack:
        async with _client(rack.port, "https", ca=ca) as oxide:
            assert (await oxide.ping()).status == "ok"
        for trusted in (None, other_ca):
            async with _client(rack.port, "https", ca=trusted) as oxide:
                with pytest.raises(errors.TransportError, match=r"certificate is not trusted .*give the CA") as caught:
                    await oxide.instance_delete("machine-1", project="demo")

            assert not caught.value.outcome_unknown

    assert len(rack.requests) == 1


async def test_a_server_without_tls_is_not_taken_for_one() -> None:
    """Https to a plain server fails before the token is sent."""
    async with (
        socket_rack(Said(pieces=[PONG])) as rack,
        _client(rack.port, "https", write_deadline_seconds=0.4) as oxide,
    ):
        with pytest.raises(errors.TransportError) as caught:
            await oxide.instance_delete("machine-1", project="demo")

    assert not caught.value.outcome_unknown
    assert all(TOKEN.encode() not in head for _, head in rack.requests)
