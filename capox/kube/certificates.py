"""The certificate under which a process serves: its own, made at its start, or one from files."""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl
import sys
from typing import Final

__all__ = ["self_signed", "tls_from_files"]

_MAKER: Final = "capox.kube.self_signed"
_MAKER_SECONDS: Final = 60.0


async def self_signed(name: str) -> ssl.SSLContext:
    """A certificate of this process's own, made now and written nowhere: the kubelet's probes verify none.

    Raises:
        OSError: It could not be made.
    """
    pem = await _made(name)
    # Python reads keys from files only, and a container may have no place that can be written.
    number = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(number, "wb") as file:
        file.write(pem)
        file.flush()
        return tls_from_files(pathlib.Path(f"/proc/self/fd/{number}"))


def tls_from_files(certificate: pathlib.Path, key: pathlib.Path | None = None) -> ssl.SSLContext:
    """TLS with a certificate and key in PEM files; without a key's own file both are in one.

    Raises:
        OSError: They cannot be read, or are none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


async def _made(name: str) -> bytes:
    """Have a certificate and its key made by another process, which takes its libraries with it when it ends."""
    maker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MAKER, name, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_MAKER_SECONDS):
            pem, said = await maker.communicate()
    except TimeoutError:
        raise OSError(f"no certificate was made within {_MAKER_SECONDS:g} s") from None
    finally:
        if maker.returncode is None:
            maker.kill()
            await maker.wait()
    if maker.returncode != 0:
        raise OSError(f"no certificate could be made: {said.decode(errors='replace').strip()[-500:]}")
    return pem
