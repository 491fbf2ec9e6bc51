"""The certificate that a process makes for itself."""

from __future__ import annotations

import asyncio
import functools
import pathlib
import ssl
import sys

import pytest

from capox.kube import certificates
from capox.kube.self_signed import new_certificate
from tests.integration.waiting import eventually


def _text(file: pathlib.Path) -> str:
    return file.read_text()


def _has_text(file: pathlib.Path) -> bool:
    return file.exists() and bool(_text(file))


def _is_there(path: str) -> bool:
    return pathlib.Path(path).exists()


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


async def test_whoever_gives_up_leaves_no_program_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A process that is asked to end while its certificate is made ends with what makes it."""
    marker = tmp_path / "started"
    (tmp_path / "slow_maker.py").write_text(
        f"import os, pathlib, time; pathlib.Path({str(marker)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(certificates, "_MAKER", "slow_maker")
    making = asyncio.create_task(certificates.self_signed("x"))
    is_begun = functools.partial(_has_text, marker)
    await asyncio.to_thread(eventually, "the program has begun", is_begun, within_seconds=30)

    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert not _is_there(f"/proc/{_text(marker)}")


def test_a_certificate_and_its_key_belong_together(tmp_path: pathlib.Path) -> None:
    """OpenSSL refuses those that do not."""
    file = tmp_path / "both.pem"
    file.write_bytes(new_certificate("capox-0"))
    certificates.tls_from_files(file)
    file.write_bytes(b"nothing")
    with pytest.raises(OSError, match="PEM"):
        certificates.tls_from_files(file)
