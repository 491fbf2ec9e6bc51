"""The Kubernetes API of another cluster, whose answers are a stranger's: limited, and leading nowhere else.

The API of a workload cluster is in its owner's hands. It may answer late or without end, send more than fits, or point
somewhere else; none of that may cost more than the pass that has asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Final, Self

import aiohttp
from kubernetes.aio import client as kubernetes_client

from capox.kube import errors
from capox.kube.client import KubeClient
from capox.kube.kubeconfig import RemoteLogin

__all__ = ["VISIT", "WHOLE", "Limits", "RemoteClient"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What answers may cost.

    Attributes:
        deadline_seconds: How long a call may take.
        answer_bytes_max: How long an answer may be.
        list_limit: How many objects a page of a list holds.
        pages_max: How many pages a list may have; None for any number.
    """

    deadline_seconds: float
    answer_bytes_max: int
    list_limit: int
    pages_max: int | None


VISIT: Final = Limits(deadline_seconds=10.0, answer_bytes_max=2 * 1024 * 1024, list_limit=20, pages_max=50)
"""For who looks into many clusters. A page of Nodes with all their images has a third of that length."""

WHOLE: Final = Limits(deadline_seconds=30.0, answer_bytes_max=64 * 1024 * 1024, list_limit=500, pages_max=None)
"""For who works in this one cluster alone."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class RemoteClient(KubeClient):
    """A `KubeClient` that trusts no answer. It is an async context manager; leaving it closes its connections."""

    _answer_bytes_max = VISIT.answer_bytes_max

    @classmethod
    def enter(cls, login: RemoteLogin, *, field_manager: str, limits: Limits = VISIT) -> Self:
        """Prepare to enter another cluster; nothing is sent yet.

        Raises:
            LoginError: The authority, or the client certificate with its key, cannot be read.
        """
        configuration = kubernetes_client.Configuration()
        configuration.host = login.server
        configuration.ca_cert_data = login.authority
        configuration.tls_server_name = login.server_name
        # What the authority has signed is believed, be its certificates of an older form than RFC 5280's.
        configuration.disable_strict_ssl_verification = True
        configuration.client_session_kwargs = {
            # A compressed answer could be a thousand times as long as what was received of it.
            "auto_decompress": False,
            "headers": {"Accept-Encoding": "identity"},
            "cookie_jar": aiohttp.DummyCookieJar(),
            "middlewares": (_refuse_redirects,),
            "read_bufsize": 2**16,
        }
        if login.token is not None:
            configuration.api_key["BearerToken"] = f"Bearer {login.token.get_secret_value()}"
        with _as_file(login) as path:
            configuration.cert_file = path
            client = cls(
                configuration,
                deadline_seconds=limits.deadline_seconds,
                list_limit=limits.list_limit,
                pages_max=limits.pages_max,
                field_manager=field_manager,
            )
        client._answer_bytes_max = limits.answer_bytes_max
        return client

    def watch_session(self) -> aiohttp.ClientSession:
        """Give a session with the same login, for watches; whoever asks closes it."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._api.rest_client.ssl_context),
            middlewares=(_refuse_redirects, self._authorize),
            proxy=self._configuration.proxy,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def _read(self, answer: aiohttp.ClientResponse, what: str) -> bytes:
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > self._answer_bytes_max:
                answer.close()
                raise errors.Unreadable(f"{what}: the answer has more than {self._answer_bytes_max} bytes")
        return bytes(body)


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A middleware that follows no answer to another place, where our login has no business."""
    answer = await handler(request)
    if answer.status in _REDIRECTS:
        answer.close()
        raise aiohttp.ClientPayloadError(f"the answer is a redirect ({answer.status}), which is not followed")
    return answer


@contextlib.contextmanager
def _as_file(login: RemoteLogin) -> Iterator[str | None]:
    """A path at which a client certificate and its key can be read for the moment. They never touch a disk."""
    if login.certificate is None or login.key is None:
        yield None
        return
    file = os.memfd_create("client certificate")
    try:
        os.write(file, f"{login.certificate}\n{login.key.get_secret_value()}\n".encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
