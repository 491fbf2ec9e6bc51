"""The client on the bad days of an apiserver, and what exactly it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from capox.kube import errors
from capox.kube.client import KubeAPI, KubeClient
from capox.kube.kind import SECRETS
from tests.unit.kube.api_server import Answer, FakeAPIServer, serving, status

OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "one", "namespace": "team", "resourceVersion": "7"},
}


@pytest.fixture
async def server() -> AsyncIterator[FakeAPIServer]:
    """A server that answers as told."""
    async with serving() as server:
        yield server


async def stored(_: web.Request) -> web.StreamResponse:
    """Answer with an object."""
    return web.json_response(OBJECT)


CALLS: dict[str, Callable[[KubeAPI], Awaitable[Any]]] = {
    "get": lambda api: api.get(SECRETS, "team", "one"),
    "list": lambda api: api.list(SECRETS, "team"),
    "create": lambda api: api.create(SECRETS, "team", OBJECT),
    "patch": lambda api: api.patch(SECRETS, "team", "one", {"metadata": {}}),
    "apply": lambda api: api.apply(SECRETS, "team", "one", OBJECT),
    "delete": lambda api: api.delete(SECRETS, "team", "one"),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


async def test_requests_say_what_they_are(server: FakeAPIServer) -> None:
    """Method, path, field manager and media type of each call."""
    server.answer = stored
    async with server.client() as api:
        await api.get(SECRETS, "team", "one")
        await api.create(SECRETS, "team", OBJECT)
        await api.patch(SECRETS, "team", "one", {"metadata": {"labels": None}})
        await api.patch(SECRETS, "team", "one", {"status": {}}, subresource="status")
        await api.apply(SECRETS, "team", "one", OBJECT)
        await api.delete(SECRETS, "team", "one", uid="u-1")
        await api.list(SECRETS, None, {"b": None, "a": "1"})

    path = "/api/v1/namespaces/team/secrets"
    merge = "application/merge-patch+json"
    assert [(request.method, request.path, request.content_type) for request in server.arrived] == [
        ("GET", f"{path}/one", "application/json"),
        ("POST", f"{path}?fieldManager=capox-manager", "application/json"),
        ("PATCH", f"{path}/one?fieldManager=capox-manager", merge),
        ("PATCH", f"{path}/one/status?fieldManager=capox-manager", merge),
        ("PATCH", f"{path}/one?fieldManager=capox-manager&force=true", "application/apply-patch+yaml"),
        ("DELETE", f"{path}/one", "application/json"),
        ("GET", "/api/v1/secrets?limit=100&labelSelector=a%3D1,b", "application/json"),
    ]
    assert json.loads(server.arrived[5].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u-1"},
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(400, "BadRequest"), errors.Invalid),
        (status(401, "Unauthorized"), errors.Unauthorized),
        (status(403, "Forbidden"), errors.Forbidden),
        (status(404, "NotFound", name="one", kind="secrets"), errors.NotFound),
        (status(404, "NotFound"), errors.KindNotServed),
        (status(409, "Conflict"), errors.Conflict),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(410, "Expired"), errors.Expired),
        (status(413, "RequestEntityTooLarge"), errors.KubeAPIError),
        (status(422, "Invalid"), errors.Invalid),
        (status(429, "TooManyRequests", headers={"Retry-After": "0"}), errors.Unavailable),
        (status(500, "InternalError"), errors.Unavailable),
        (status(503, "ServiceUnavailable", headers={"Retry-After": "0"}), errors.Unavailable),
        (status(504, "Timeout"), errors.Unavailable),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_each_refusal_has_its_class(
    server: FakeAPIServer, answer: Answer, error: type[errors.KubeAPIError]
) -> None:
    """Whatever the call, an answer's status and reason decide; and nothing is sent a second time."""
    server.answer = answer
    async with server.client() as api:
        for name, call in CALLS.items():
            server.arrived.clear()
            with pytest.raises(errors.KubeAPIError) as refused:
                await call(api)

            assert type(refused.value) is error
            # A list is a read, and is begun again when its place in the past is gone.
            assert len(server.arrived) == (3 if name == "list" and error is errors.Expired else 1)


async def test_a_refusal_without_a_status_object_is_one_too(server: FakeAPIServer) -> None:
    """A proxy answers in HTML, or not at all."""

    async def bare(_: web.Request) -> web.StreamResponse:
        """Answer without a Status or an object."""
        return web.Response(status=502, text="<html>bad gateway</html>")

    server.answer = bare
    async with server.client() as api:
        with pytest.raises(errors.Unavailable, match="502"):
            await api.get(SECRETS, "team", "one")


@calls
async def test_an_answer_that_is_no_object_is_no_answer(
    server: FakeAPIServer, call: Callable[[KubeAPI], Awaitable[Any]]
) -> None:
    """Success without JSON, or with JSON that is no object, says nothing about what was done."""
    for text in ("", "ok", "[]", '{"kind": "Sec'):

        async def bare(_: web.Request, text: str = text) -> web.StreamResponse:
            """Answer without a Status or an object."""
            return web.Response(text=text, content_type="application/json")

        server.answer = bare
        async with server.client() as api:
            with pytest.raises(errors.NoAnswer):
                await call(api)


@calls
async def test_a_call_ends_at_its_deadline(server: FakeAPIServer, call: Callable[[KubeAPI], Awaitable[Any]]) -> None:
    """Before the head of the answer, and in the middle of its body."""

    async def silent(_: web.Request) -> web.StreamResponse:
        """Never answer."""
        await asyncio.sleep(3600)
        return web.Response()

    async def stuck(request: web.Request) -> web.StreamResponse:
        """Begin an answer and never end it."""
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"kind":')
        await asyncio.sleep(3600)
        return response

    async with server.client(deadline_seconds=0.2) as api:
        for server.answer in (silent, stuck):
            with pytest.raises(errors.NoAnswer, match=r"no answer in 0\.2 s"):
                await call(api)


async def test_a_write_whose_answer_is_cut_is_not_sent_again(server: FakeAPIServer) -> None:
    """The connection ends after the request has arrived: NoAnswer, and whether it was done is for the next pass."""

    async def cut(request: web.Request) -> web.StreamResponse:
        """Cut the connection once the request is there."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with server.client() as api:
        server.answer = stored
        await api.get(SECRETS, "team", "one")  # so that there is a kept connection to be cut
        server.answer = cut
        for name in ("create", "patch", "apply"):
            server.arrived.clear()
            with pytest.raises(errors.NoAnswer):
                await CALLS[name](api)
            assert len(server.arrived) == 1


async def test_a_cancelled_call_leaves_a_client_that_works(server: FakeAPIServer) -> None:
    """Its connection is closed, its task ends at once, and the next call has its own answer."""
    arrived = asyncio.Event()
    ended = asyncio.Event()

    async def waiting(_: web.Request) -> web.StreamResponse:
        """Answer never, and note the end."""
        arrived.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return web.Response()

    server.answer = waiting
    async with server.client() as api:
        task = asyncio.create_task(api.get(SECRETS, "team", "one"))
        await asyncio.wait_for(arrived.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 10)

        server.answer = stored
        assert (await api.get(SECRETS, "team", "one")).metadata.resource_version == "7"


async def test_a_list_whose_continuation_expires_is_begun_again(server: FakeAPIServer) -> None:
    """What was read before belongs to a state that is gone; the whole list is of one state."""
    state = {"generation": 0}

    async def pages(request: web.Request) -> web.StreamResponse:
        """Answer with two pages, the second of which has expired once."""
        if "continue" not in request.query:
            state["generation"] += 1
            item = {"metadata": {"name": f"first-{state['generation']}"}}
            return web.json_response({"items": [item], "metadata": {"continue": "next"}})
        if state["generation"] == 1:
            return await status(410, "Expired")(request)
        return web.json_response({"items": [{"metadata": {"name": "second"}}], "metadata": {"continue": ""}})

    server.answer = pages
    async with server.client() as api:
        found = await api.list(SECRETS, "team")

    assert [item.metadata.name for item in found] == ["first-2", "second"]


async def test_an_object_that_does_not_fit_is_unreadable_without_its_values(server: FakeAPIServer) -> None:
    """The message names kind, object and field."""

    async def odd(_: web.Request) -> web.StreamResponse:
        """Answer with an object that cannot be read."""
        return web.json_response(OBJECT | {"data": {"token": "n0t base64!"}})

    server.answer = odd
    async with server.client() as api:
        with pytest.raises(
            errors.Unreadable, match="Secret team/one cannot be read; what does not fit is data"
        ) as odd_one:
            await api.get(SECRETS, "team", "one")

    assert "n0t" not in repr(odd_one.value)
    assert odd_one.value.__cause__ is None


async def test_a_watch_session_has_the_login(server: FakeAPIServer) -> None:
    """Each of its requests carries the token of that moment."""
    seen: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        """Note the login."""
        seen.append(request.headers.get("Authorization", ""))
        return web.Response()

    server.answer = note
    async with server.client() as api, api.watch_session() as session:
        await session.get(f"{api.server}/one")
        api._configuration.api_key["BearerToken"] = "Bearer another"
        await session.get(f"{api.server}/two")

    assert seen == ["Bearer t0ken", "Bearer another"]


async def test_the_proxy_of_the_environment_is_used(server: FakeAPIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls and for watches, unless the environment exempts the address; a password file never is."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
    server.answer = stored
    configuration = Configuration()
    configuration.host = "http://apiserver.test:6443"
    async with KubeClient(configuration) as api, api.watch_session() as session:
        await api.get(SECRETS, "team", "one")
        await session.get(f"{api.server}/watched")
    assert [request.path for request in server.arrived] == ["/api/v1/namespaces/team/secrets/one", "/watched"]

    monkeypatch.setenv("no_proxy", "127.0.0.1,apiserver.test")
    direct = Configuration()
    direct.host = "http://127.0.0.1:1"
    async with KubeClient(direct) as api:
        with pytest.raises(errors.NoAnswer):
            await api.get(SECRETS, "team", "one")
    assert len(server.arrived) == 2
