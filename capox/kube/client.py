"""The Kubernetes API, as far as capox uses it: one object or one list a call, errors as `capox.kube.errors`.

`KubeAPI` is what controllers see; `KubeClient` speaks it over HTTP with the `kubernetes` package's asyncio side, which
also does the login. Every call has a deadline. Nothing is cached: a controller decides on what it has just read.
Nothing is sent twice either, with one exception that is aiohttp's: a GET or DELETE that met a kept connection which the
other end had just closed. A DELETE that carries a uid can never hit another object by that.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.config import incluster_config

from capox.kube import errors
from capox.kube.kind import Kind
from capox.kube.objects import Resource

__all__ = ["FIELD_MANAGER", "SERVICE_ACCOUNT", "Document", "KubeAPI", "KubeClient", "Labels", "Patch"]

R = TypeVar("R", bound=Resource)

FIELD_MANAGER: Final = "capox-manager"
"""Under which name the API records what we write (C-OW-6)."""

SERVICE_ACCOUNT: Final = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a Pod finds the token and the authority of its ServiceAccount."""

DEADLINE_SECONDS: Final = 30.0
"""How long a call may take, answer included; a list has it for each page."""

LIST_LIMIT: Final = 100
"""How many objects a page of a list holds. An object takes some 30 kB while it is looked at, and several kinds may be
listed at once: larger pages would be what decides how much memory the process needs."""

LIST_ATTEMPTS: Final = 3
"""How often a list is begun again when its continuation has expired half way."""

Labels = Mapping[str, str | None]
"""Labels that an object has to have; None asks only that it is there, with any value."""

Patch = Mapping[str, Any]
"""A JSON merge patch: absent keys stay, null removes, lists are replaced whole."""


Document: TypeAlias = Mapping[str, Any]
"""An object as the API gives it."""

Objects: TypeAlias = list[R]
"""What a list holds. Inside the classes below `list` is a call of the API."""


class KubeAPI(Protocol):
    """The calls. Each one raises `capox.kube.errors.KubeError` when it does not succeed."""

    async def get(self, kind: Kind[R], namespace: str, name: str) -> R:
        """Read one object, live."""
        ...

    async def list(self, kind: Kind[R], namespace: str | None, labels: Labels | None = None) -> list[R]:
        """Read all objects of a kind, in one namespace or (None) in all, that have these labels."""
        ...

    async def create(self, kind: Kind[R], namespace: str, document: Mapping[str, Any]) -> R:
        """Make an object and return it as it is stored."""
        ...

    async def patch(
        self, kind: Kind[R], namespace: str, name: str, patch: Patch, *, subresource: str | None = None
    ) -> R:
        """Merge a patch into an object, or into its `status`; returns the object as it is stored.

        A patch that replaces a list has to carry `metadata.resourceVersion`, so that a concurrent change ends in
        `Conflict` and not in a lost update (C-ALL-10, K-5).
        """
        ...

    async def apply(self, kind: Kind[R], namespace: str, name: str, document: Mapping[str, Any]) -> R:
        """Apply a document server-side, forcing the fields that it names, and return the object as it is stored."""
        ...

    async def delete(
        self,
        kind: Kind[Any],
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for an object's deletion; with a uid, only of the object that has it, and with a version, only as it is.

        Another one, or another version, ends in `Conflict`.
        """
        ...


class KubeClient:
    """The Kubernetes API over HTTP. It is an async context manager; leaving it closes its connections.

    Args:
        configuration: Where the API is and how to log in, as the `kubernetes` package has it.
        deadline_seconds: How long a call may take.
        list_limit: How many objects a page of a list holds.
        pages_max: How many pages a list may have; None for any number.
        field_manager: Under which name the API records what is written.
    """

    def __init__(
        self,
        configuration: kubernetes_client.Configuration,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        list_limit: int = LIST_LIMIT,
        pages_max: int | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> None:
        # By default aiohttp asks the environment for a proxy, and a file for a password, in a thread of its own before
        # each request, which costs as much as the request. It is asked once here, and the file never.
        configuration.client_session_kwargs = {"trust_env": False, **(configuration.client_session_kwargs or {})}
        if configuration.proxy is None:
            configuration.proxy = _environment_proxy(str(configuration.host))
        self._configuration = configuration
        self._deadline_seconds = deadline_seconds
        self._list_limit = list_limit
        self._pages_max = pages_max
        self._field_manager = field_manager
        try:
            self._api = kubernetes_client.ApiClient(configuration)
        except (OSError, ValueError) as error:
            raise errors.LoginError(f"the API's authority or our certificate cannot be read: {error}") from error

    @classmethod
    async def login(cls, kubeconfig: pathlib.Path | None = None, context: str | None = None) -> Self:
        """Log in with a kubeconfig; without one as the Pod's ServiceAccount, and outside a Pod as kubectl would.

        Raises:
            LoginError: There is neither a kubeconfig nor a ServiceAccount, or it cannot be read.
        """
        if kubeconfig is None and (SERVICE_ACCOUNT / "token").exists():
            return cls.in_cluster()
        configuration = kubernetes_client.Configuration()
        try:
            await kubernetes_config.load_kube_config(
                config_file=_existing(kubeconfig), context=context, client_configuration=configuration
            )
        except (kubernetes_config.ConfigException, OSError) as error:
            raise errors.LoginError(f"cannot log in to Kubernetes by kubeconfig: {error}") from error
        return cls(configuration)

    @classmethod
    def in_cluster(cls, service_account: pathlib.Path = SERVICE_ACCOUNT) -> Self:
        """Log in as the Pod's ServiceAccount. A token that the kubelet renews is used from the next call on.

        Args:
            service_account: The folder with the token and the authority.

        Raises:
            LoginError: This is not a Pod, or it has no ServiceAccount.
        """
        configuration = kubernetes_client.Configuration()
        try:
            loader = incluster_config.InClusterConfigLoader(
                token_filename=str(service_account / "token"), cert_filename=str(service_account / "ca.crt")
            )
            loader.load_and_set(configuration)
        except (kubernetes_config.ConfigException, OSError) as error:
            raise errors.LoginError(f"cannot log in to Kubernetes as the Pod's ServiceAccount: {error}") from error
        # The package reads the token once a minute; for a minute after a renewal that may be one too old.
        configuration.refresh_api_key_hook = _TokenFile(service_account / "token")  # type: ignore[assignment]  # None at first
        return cls(configuration)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._api.close()

    @property
    def server(self) -> str:
        """The API's address, such as `https://10.0.0.1:443`."""
        return str(self._configuration.host)

    def watch_session(self) -> aiohttp.ClientSession:
        """Give a session with the same login, for watches; whoever asks closes it."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._api.rest_client.ssl_context),
            middlewares=(self._authorize,),
            proxy=self._configuration.proxy,
        )

    async def get(self, kind: Kind[R], namespace: str, name: str) -> R:
        """Read one object, live."""
        return kind.parse(await self._call("GET", _object_path(kind, namespace, name)))

    async def list(self, kind: Kind[R], namespace: str | None, labels: Labels | None = None) -> list[R]:
        """Read all objects of a kind, page by page, in one namespace or in all."""
        for attempt in range(1, LIST_ATTEMPTS + 1):
            try:
                return await self._list_once(kind, namespace, labels)
            except errors.Expired:
                # A continuation lives some minutes at most. What was read so far belongs to an old state: begin again.
                if attempt == LIST_ATTEMPTS:
                    raise
        raise AssertionError("a list ends in its objects or in an error")

    async def pages(
        self, kind: Kind[Any], namespace: str | None, labels: Labels | None = None
    ) -> AsyncIterator[Sequence[Document]]:
        """Read all objects of a kind as the API has them, one page in memory at a time.

        Raises:
            Expired: The pages took so long that the API has forgotten the state they are of; begin again.
        """
        query = {"limit": str(self._list_limit)}
        if labels:
            query["labelSelector"] = ",".join(
                key if value is None else f"{key}={value}" for key, value in sorted(labels.items())
            )
        for number in itertools.count(1):
            page = await self._call("GET", _query(kind.path(namespace), **query))
            token = (page.get("metadata") or {}).get("continue")
            yield page.pop("items", None) or ()
            if not token:
                return
            if number == self._pages_max:
                raise errors.Unreadable(f"{kind}: the list has more than {number} pages of {self._list_limit}")
            query["continue"] = token

    async def create(self, kind: Kind[R], namespace: str, document: Mapping[str, Any]) -> R:
        """Make an object and return it as it is stored."""
        path = _query(kind.path(namespace), fieldManager=self._field_manager)
        return kind.parse(await self._call("POST", path, document, "application/json"))

    async def patch(
        self, kind: Kind[R], namespace: str, name: str, patch: Patch, *, subresource: str | None = None
    ) -> R:
        """Merge a patch into an object or its status."""
        path = _query(_object_path(kind, namespace, name, subresource), fieldManager=self._field_manager)
        return kind.parse(await self._call("PATCH", path, patch, "application/merge-patch+json"))

    async def apply(self, kind: Kind[R], namespace: str, name: str, document: Mapping[str, Any]) -> R:
        """Apply a document server-side."""
        path = _query(_object_path(kind, namespace, name), fieldManager=self._field_manager, force="true")
        return kind.parse(await self._call("PATCH", path, document, "application/apply-patch+yaml"))

    async def delete(
        self,
        kind: Kind[Any],
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for an object's deletion, in the background where it owns others."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {field: value for field, value in preconditions.items() if value is not None}
        await self._call("DELETE", _object_path(kind, namespace, name), options, "application/json")

    async def _list_once(self, kind: Kind[R], namespace: str | None, labels: Labels | None) -> Objects[R]:
        found: Objects[R] = []
        async for documents in self.pages(kind, namespace, labels):
            found += [kind.parse(document) for document in documents]
        return found

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str | None = None
    ) -> dict[str, Any]:
        """Send one request and give the JSON object that it is answered with."""
        what = f"{method} {path.partition('?')[0]}"
        headers = {"Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await self._authorization(headers)
                answer = await self._api.call_api(
                    method, self.server + path, headers, body=body, _request_timeout=_NO_TIMEOUT
                )
                text = await self._read(answer.response, what)
        except TimeoutError:
            raise errors.NoAnswer(f"{what}: no answer in {self._deadline_seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise errors.NoAnswer(f"{what}: {type(error).__name__}: {error}") from error
        document = _parse(text)
        if answer.status >= 400:
            raise errors.error_from_status(answer.status, document)
        if not isinstance(document, dict):
            raise errors.NoAnswer(f"{what}: the answer is not a JSON object")
        return document

    async def _read(self, answer: aiohttp.ClientResponse, what: str) -> bytes:
        """The body of an answer."""
        del what
        return await answer.read()

    async def _authorization(self, headers: Any) -> None:
        """Add the login to a request's headers."""
        settings: Mapping[str, Any] = await self._configuration.auth_settings()
        for setting in settings.values():
            headers[setting["key"]] = setting["value"]

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        await self._authorization(request.headers)
        return await handler(request)


_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
"""The deadline is ours alone; but half of it should be left when nobody answers at an address."""


class _TokenFile:
    """Puts a token into a configuration whenever its file has changed. Looking costs microseconds."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def __call__(self, configuration: kubernetes_client.Configuration) -> None:
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_ino, found.st_size)
            if version == self._seen:
                return
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            # In the moment of a renewal there may be none; the last one has time left.
            return
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
            self._seen = version


def _environment_proxy(host: str) -> str | None:
    """The proxy that the environment names for an address, as kubectl would use it."""
    address = urlsplit(host)
    if not address.hostname or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)


def _existing(kubeconfig: pathlib.Path | None) -> str | None:
    """The path of a kubeconfig that was asked for; the package takes a missing one for an empty one."""
    if kubeconfig is not None and not kubeconfig.exists():
        raise errors.LoginError(f"cannot log in to Kubernetes: there is no kubeconfig {kubeconfig}")
    return None if kubeconfig is None else str(kubeconfig)


def _object_path(kind: Kind[Any], namespace: str, name: str, subresource: str | None = None) -> str:
    """The path of one object; a name that no object can have would be the path of something else."""
    if not name or name in (".", "..") or "/" in name or "%" in name:
        raise errors.NotFound(404, "NotFound", f"{kind} {name!r} not found: no object can have this name")
    return kind.path(quote(namespace), quote(name), subresource)


def _query(path: str, **query: str) -> str:
    return f"{path}?{urlencode(query)}"


def _parse(text: str | bytes | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
