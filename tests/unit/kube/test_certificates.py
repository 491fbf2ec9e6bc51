"""The certificate that a process makes for itself."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
import sys

import pytest

from capox.kube import certificates
from capox.kube.self_signed import new_certificate


async def test_a_process_serves_under_a_certificate_of_its_own() -> None:
    """A client that verifies nobody is served; the name is that of the process, however long."""
    context = await certificates.self_signed("capox-0." + 80 * "x")

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say something and hang up."""
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        assert await reader.read() == b"hello"
        writer.close()
        await writer.wait_closed()


async def test_what_makes_certificates_stays_out_of_the_process() -> None:
    """Its memory is the reason for the program of its own."""
    code = (
        "import asyncio, sys\n"
        "from capox.kube import certificates\n"
        "asyncio.run(certificates.self_signed('x'))\n"
        "sys.exit('cryptography' in sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0


async def test_a_program_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it said."""
    monkeypatch.setattr(certificates, "_MAKER", "capox.kube.nothing_of_that_name")
    with pytest.raises(OSError, match="nothing_of_that_name"):
        await certificates.self_signed("x")


def test_a_certificate_and_its_key_belong_together(tmp_path: pathlib.Path) -> None:
    """OpenSSL refuses those that do not."""
    file = tmp_path / "both.pem"
    file.write_bytes(new_certificate("capox-0"))
    certificates.tls_from_files(file)
    file.write_bytes(b"nothing")
    with pytest.raises(OSError, match="PEM"):
        certificates.tls_from_files(file)
