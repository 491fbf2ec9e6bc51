"""A small client of an apiserver: JSON in, JSON out, one connection a thread, standard library only.

kubectl would do, but each call of it costs a process and a discovery; starting a control plane makes a few hundred
requests, and its readiness is asked for many times a second.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hack.controlplane.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 30.0
"""After how long without use a connection is opened anew: the apiserver closes those that were idle for minutes, and a
request that must not be sent twice cannot be the one that finds out."""

_RETRIES: Final = 10
_RETRY_AFTER_MAX_SECONDS: Final = 5.0
FIELD_MANAGER: Final = "capox-controlplane"
"""Field manager of everything that is applied here."""


class RestClient:
    """Requests to one apiserver as its administrator.

    Args:
        server: URL, `https://127.0.0.1:port`.
        authority: PEM file of the certificate authority.
        certificate: PEM file of the client certificate.
        key: PEM file of its key.
    """

    def __init__(self, server: str, *, authority: Path, certificate: Path, key: Path) -> None:
        address = urlsplit(server)
        self._host, self._port = address.hostname or "", address.port or 443
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(certificate, key)
        self._connections = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._all:
            connection.close()

    def is_ready(self) -> bool:
        """Whether `/readyz` says ok. False also while nothing listens."""
        try:
            self.request("GET", "/readyz")
        except (OSError, http.client.HTTPException, RequestError):
            return False
        return True

    def get(self, path: str) -> dict[str, Any]:
        """GET an object or a list.

        Raises:
            RequestError: also when there is none (status 404).
        """
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        """Whether a GET finds something."""
        try:
            self.request("GET", path)
        except RequestError as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return True

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST an object, or a subresource such as a token request."""
        return self.request("POST", path, body)

    def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of one object, taking fields over from others."""
        query = f"?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Ignore"
        return self.request("PATCH", path + query, body, content_type="application/apply-patch+yaml")

    def patch_status(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge patch of the status subresource; `path` is the object's."""
        return self.request("PATCH", f"{path}/status", body, content_type="application/merge-patch+json")

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send one request; again after the time it asks for when the apiserver says 429, as Kubernetes' clients do.

        (429 is also what it says for a second after a CRD was established or changed: "storage is (re)initializing".)

        Returns:
            The JSON answer, or `{"text": ...}` when the answer is not JSON (health endpoints).

        Raises:
            RequestError: the answer's status is 400 or more.
            OSError: no answer.
        """
        headers = {"Accept": "application/json", "Content-Type": content_type}
        payload = json.dumps(body).encode() if body is not None else None
        response, text = self._exchange(method, path, payload, headers)
        retries = 0
        while response.status == http.client.TOO_MANY_REQUESTS and retries < _RETRIES:
            retries += 1
            time.sleep(min(float(response.headers.get("Retry-After", "1")), _RETRY_AFTER_MAX_SECONDS))
            response, text = self._exchange(method, path, payload, headers)
        is_json = response.headers.get_content_type() == "application/json"
        content: dict[str, Any] = json.loads(text) if is_json else {"text": text.decode(errors="replace")}
        if response.status >= http.client.BAD_REQUEST:
            message = content.get("message") or content.get("text") or response.reason
            raise RequestError(
                f"{method} {path.partition('?')[0]}: {response.status} {message}",
                status=response.status,
                reason=content.get("reason", ""),
            )
        return content

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request and read the whole answer.

        That the apiserver has closed a connection shows only when the next request is sent, which it has not seen
        then: one that changes nothing, or has the same effect twice, is sent once more.
        """
        try:
            return self._exchange_once(method, path, payload, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            if method not in {"GET", "DELETE"}:
                raise
            return self._exchange_once(method, path, payload, headers)

    def _exchange_once(
        self, method: str, path: str, payload: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection()
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            return response, response.read()
        except (OSError, http.client.HTTPException):
            # A broken connection must not be met by the next request of this thread.
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._connections, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._host,
                self._port,
                context=self._context,
                timeout=_TIMEOUT_SECONDS,
            )
            self._connections.connection = connection
            self._all.append(connection)
        elif time.monotonic() - self._connections.used > _IDLE_SECONDS:
            # http.client opens it again by itself.
            connection.close()
        self._connections.used = time.monotonic()
        return connection
