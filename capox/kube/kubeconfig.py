"""The kubeconfig of somebody else's cluster, read as data of a tenant: an address, an authority, a login. Nothing more.

A kubeconfig can name programs to run, files to read and proxies to pass through. Whoever may write the Secret that it
is in would have the provider do all that with its own rights, so what is not inline is refused, and not looked at.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from pydantic import SecretStr

__all__ = ["KUBECONFIG_BYTES_MAX", "KubeconfigRefusedError", "RemoteLogin", "parse_kubeconfig"]

KUBECONFIG_BYTES_MAX: Final = 64 * 1024
"""The longest kubeconfig that is parsed; one with certificates has about 6 KiB."""

_OF_CLUSTER: Final = frozenset({"server", "certificate-authority-data", "tls-server-name", "disable-compression"})
_OF_USER: Final = frozenset({"client-certificate-data", "client-key-data", "token"})
_NO_ADDRESS: Final = "its server is not an address such as https://192.0.2.10:6443"
_HARMLESS: Final = frozenset({"extensions"})


class KubeconfigRefusedError(Exception):
    """The kubeconfig is not used; the message says what is wrong with it and shows none of its secrets."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogin:
    """How to reach and enter the API of another cluster.

    Attributes:
        server: The address, `https://`, a host and perhaps a port.
        authority: PEM certificates that have to have signed the API's own.
        server_name: The name that its certificate has to bear, where that is not the host.
        certificate: A client certificate as PEM; None where a token is used.
        key: Its private key as PEM.
        token: A bearer token; None where a certificate is used.
    """

    server: str
    authority: str
    server_name: str | None = None
    certificate: str | None = None
    key: SecretStr | None = None
    token: SecretStr | None = None


def parse_kubeconfig(text: str) -> RemoteLogin:
    """Read a kubeconfig's current context.

    Raises:
        KubeconfigRefusedError: It is none, is not complete, or asks for more than an address and a login.
    """
    if len(text.encode()) > KUBECONFIG_BYTES_MAX:
        raise KubeconfigRefusedError(f"it has more than {KUBECONFIG_BYTES_MAX} bytes")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        # The parser's own words would quote the text.
        raise KubeconfigRefusedError("it is not YAML") from None
    if not isinstance(document, Mapping):
        raise KubeconfigRefusedError("it is not a mapping")
    context = _entry(document, "contexts", "context", document.get("current-context"))
    cluster = _entry(document, "clusters", "cluster", context.get("cluster"))
    user = _entry(document, "users", "user", context.get("user"))
    _check_keys("cluster", cluster, _OF_CLUSTER)
    _check_keys("user", user, _OF_USER)
    certificate = _decoded(user, "client-certificate-data")
    key = _decoded(user, "client-key-data")
    token = _text(user, "token")
    if bool(certificate) != bool(key):
        raise KubeconfigRefusedError("of client-certificate-data and client-key-data one is there without the other")
    if not certificate and not token:
        raise KubeconfigRefusedError("the user has neither client-certificate-data nor token")
    authority = _decoded(cluster, "certificate-authority-data")
    if not authority:
        raise KubeconfigRefusedError("the cluster has no certificate-authority-data")
    return RemoteLogin(
        server=_server(_text(cluster, "server")),
        authority=authority,
        server_name=_text(cluster, "tls-server-name"),
        certificate=certificate,
        key=SecretStr(key) if key else None,
        token=SecretStr(token) if token and not certificate else None,
    )


def _entry(document: Mapping[Any, Any], plural: str, singular: str, name: Any) -> Mapping[Any, Any]:
    """The named entry of a list of the kubeconfig."""
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(singular), Mapping):
            found: Mapping[Any, Any] = entry[singular]
            return found
    raise KubeconfigRefusedError(f"its current context has no {singular}")


def _check_keys(part: str, entry: Mapping[Any, Any], known: frozenset[str]) -> None:
    for key, value in entry.items():
        if key not in known | _HARMLESS and value not in (None, "", False, [], {}):
            shown = key if isinstance(key, str) and key.replace("-", "").isalnum() and len(key) < 64 else "a key"
            raise KubeconfigRefusedError(
                f"the {part} has {shown}; only an address with an inline authority, and an inline client certificate "
                "or a token, are taken from a cluster's kubeconfig"
            )


def _text(entry: Mapping[Any, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not value.isprintable():
        raise KubeconfigRefusedError(f"{key} is not a text of one line")
    return value


def _decoded(entry: Mapping[Any, Any], key: str) -> str | None:
    value = _text(entry, key)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise KubeconfigRefusedError(f"{key} is not PEM in base64") from None


def _server(server: str | None) -> str:
    try:
        address = urlsplit(server or "")
        port = address.port
    except ValueError:
        raise KubeconfigRefusedError(_NO_ADDRESS) from None
    has_more = address.username is not None or address.path not in ("", "/") or address.query or address.fragment
    if address.scheme != "https" or not address.hostname or has_more or port == 0:
        raise KubeconfigRefusedError(_NO_ADDRESS)
    return f"{address.scheme}://{address.netloc}"
