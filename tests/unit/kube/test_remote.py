"""The client of a stranger's cluster: who it lets in, and what a hostile API costs it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from capox.kube import errors
from capox.kube.kind import SECRETS
from capox.kube.kubeconfig import parse_kubeconfig
from capox.kube.remote import VISIT, RemoteClient
from hack.controlplane.pki import CertificateAuthority, kubeconfig
from tests.unit.kube.api_server import FakeAPIServer

OBJECT: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one", "namespace": "team"}}


class RemoteCluster(FakeAPIServer):
    """A cluster with an authority of its own.

    Attributes:
        authority: What signs its certificates.
        peers: Common names of the client certificates that were shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.authority = CertificateAuthority("web")
        self.peers: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Note who asks, then as any server."""
        assert request.transport is not None
        peer = request.transport.get_extra_info("ssl_object").getpeercert() or {}
        self.peers += [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
        return await super().handle(request)

    def remote(self, *, authority: CertificateAuthority | None = None, **options: Any) -> RemoteClient:
        """Give a client of this cluster that logs in with a certificate."""
        trusted = (authority or self.authority).key_pair.certificate
        user = self.authority.client("capox")
        text = kubeconfig(f"https://127.0.0.1:{self.port}", trusted, user=user).decode()
        return RemoteClient.enter(parse_kubeconfig(text), field_manager="capox-ccm-addon", **options)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RemoteCluster]:
    """A cluster on loopback."""
    cluster = RemoteCluster()
    cluster.authority.serving("api").write(tmp_path, "api")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "api.crt", tmp_path / "api.key")
    context.load_verify_locations(cadata=cluster.authority.key_pair.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", cluster.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    cluster.port = runner.addresses[0][1]
    try:
        yield cluster
    finally:
        await runner.cleanup()


async def stored(_: web.Request) -> web.StreamResponse:
    """Answer with an object."""
    return web.json_response(OBJECT)


async def test_it_logs_in_by_certificate_and_writes_under_its_name(cluster: RemoteCluster) -> None:
    """The certificate is shown, no file is left open or written, and applies carry the field manager."""
    cluster.answer = stored
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208  # only their names
    client = cluster.remote()
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    async with client:
        await client.apply(SECRETS, "team", "one", OBJECT)

    assert cluster.peers == ["capox"]
    assert cluster.arrived[0].path.endswith("?fieldManager=capox-ccm-addon&force=true")


async def test_another_authority_is_not_believed(cluster: RemoteCluster) -> None:
    """Only the one in the kubeconfig; nothing is said to who cannot show its certificate."""
    cluster.answer = stored
    async with cluster.remote(authority=CertificateAuthority("other")) as client:
        with pytest.raises(errors.NoAnswer, match="certificate"):
            await client.get(SECRETS, "team", "one")
    assert cluster.arrived == []


async def test_a_redirect_is_not_followed(cluster: RemoteCluster) -> None:
    """Not even to the same server: the login goes nowhere else."""

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        """Point somewhere else."""
        raise web.HTTPTemporaryRedirect("/elsewhere")

    cluster.answer = elsewhere
    async with cluster.remote() as client:
        with pytest.raises(errors.NoAnswer, match="redirect"):
            await client.get(SECRETS, "team", "one")
    assert [each.path for each in cluster.arrived] == ["/api/v1/namespaces/team/secrets/one"]


async def test_a_long_answer_is_cut(cluster: RemoteCluster) -> None:
    """An endless body ends the call at the limit."""
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        """Answer without end."""
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" " * 65536)
                sent += 65536
        return response

    cluster.answer = endless
    async with cluster.remote() as client:
        with pytest.raises(errors.Unreadable, match=f"more than {VISIT.answer_bytes_max} bytes"):
            await client.get(SECRETS, "team", "one")
    assert sent < 8 * VISIT.answer_bytes_max


async def test_a_compressed_answer_is_none(cluster: RemoteCluster) -> None:
    """Nobody has asked for it; a thousandfold body is never unpacked."""

    async def packed(request: web.Request) -> web.StreamResponse:
        """Answer with a body that is larger than it looks."""
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(
            body=gzip.compress(json.dumps(OBJECT).encode() + b" " * 10_000_000), headers={"Content-Encoding": "gzip"}
        )

    cluster.answer = packed
    async with cluster.remote() as client:
        with pytest.raises(errors.NoAnswer, match="not a JSON object"):
            await client.get(SECRETS, "team", "one")


async def test_a_deep_answer_is_none(cluster: RemoteCluster) -> None:
    """JSON that would exhaust the stack."""

    async def deep(_: web.Request) -> web.StreamResponse:
        """Answer with brackets."""
        return web.Response(text="[" * 1_000_000, content_type="application/json")

    cluster.answer = deep
    async with cluster.remote() as client:
        with pytest.raises(errors.NoAnswer, match="not a JSON object"):
            await client.get(SECRETS, "team", "one")


async def test_a_list_without_end_ends(cluster: RemoteCluster) -> None:
    """Each page names another one."""

    async def page(_: web.Request) -> web.StreamResponse:
        """Answer with a page that is not the last."""
        return web.json_response({"items": [OBJECT], "metadata": {"continue": "more"}})

    cluster.answer = page
    async with cluster.remote() as client:
        with pytest.raises(errors.Unreadable, match=f"more than {VISIT.pages_max} pages of {VISIT.list_limit}"):
            await client.list(SECRETS, None)
    assert len(cluster.arrived) == VISIT.pages_max


async def test_silence_ends_at_the_deadline(cluster: RemoteCluster) -> None:
    """As with any call, only sooner."""

    async def silent(_: web.Request) -> web.StreamResponse:
        """Never answer."""
        await asyncio.sleep(3600)
        return web.Response()

    cluster.answer = silent
    async with cluster.remote(limits=dataclasses.replace(VISIT, deadline_seconds=0.3)) as client:
        with pytest.raises(errors.NoAnswer, match=r"no answer in 0\.3 s"):
            await client.get(SECRETS, "team", "one")


async def test_a_certificate_that_is_none_is_told() -> None:
    """The Secret may hold anything; its words are not repeated."""
    text = kubeconfig("https://127.0.0.1:6443", b"no authority", token="t0ken-of-tests").decode()
    with pytest.raises(errors.LoginError, match="authority") as failure:
        RemoteClient.enter(parse_kubeconfig(text), field_manager="capox-ccm-addon")
    assert "t0ken-of-tests" not in str(failure.value)
