"""A tenant's kubeconfig: an address and a login are taken from it, everything else is refused, and not looked at."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from capox.kube.kubeconfig import KUBECONFIG_BYTES_MAX, KubeconfigRefusedError, parse_kubeconfig

SECRET = "c2VjcmV0LWtleS1vZi10ZXN0cw"


def pem(text: str) -> str:
    """Give a text as a kubeconfig has certificates."""
    return base64.b64encode(text.encode()).decode()


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
    """Give a kubeconfig as Cluster API writes it, with changes; None takes a key out."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "web-admin@web",
        "contexts": [{"name": "web-admin@web", "context": {"cluster": "web", "user": "web-admin"}}],
        "clusters": [
            {
                "name": "web",
                "cluster": {"server": "https://192.0.2.10:6443", "certificate-authority-data": pem("authority")},
            }
        ],
        "users": [
            {
                "name": "web-admin",
                "user": {"client-certificate-data": pem("certificate"), "client-key-data": pem(SECRET)},
            }
        ],
    }
    document["clusters"][0]["cluster"] |= cluster or {}
    document["users"][0]["user"] |= user or {}
    for entry in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for key in [key for key, value in entry.items() if value is None]:
            del entry[key]
    return yaml.safe_dump(document)


TOKEN = {"client-certificate-data": None, "client-key-data": None, "token": SECRET}


def test_a_certificate_is_taken() -> None:
    """Address, authority, certificate and key; the key shows nowhere."""
    login = parse_kubeconfig(kubeconfig())

    assert (login.server, login.authority, login.certificate) == ("https://192.0.2.10:6443", "authority", "certificate")
    assert login.key is not None
    assert login.key.get_secret_value() == SECRET
    assert login.token is None
    assert SECRET not in repr(login)


def test_a_token_is_taken() -> None:
    """Instead of a certificate; in JSON, which is YAML too."""
    login = parse_kubeconfig(json.dumps(yaml.safe_load(kubeconfig(user=TOKEN))))

    assert login.token is not None
    assert login.token.get_secret_value() == SECRET
    assert login.certificate is None
    assert SECRET not in repr(login)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"exec": {"command": "/bin/sh"}}, "the user has exec"),
    ({}, {"auth-provider": {"name": "oidc"}}, "the user has auth-provider"),
    ({}, {"tokenFile": "/var/run/secrets/token"}, "the user has tokenFile"),
    ({}, {"client-certificate": "/etc/tls.crt"}, "the user has client-certificate;"),
    ({}, {"client-key": "/etc/tls.key"}, "the user has client-key;"),
    ({}, {"username": "admin", "password": SECRET}, "the user has "),
    ({}, {"as": "system:admin"}, "the user has as"),
    ({"certificate-authority": "/etc/ca.crt"}, {}, "the cluster has certificate-authority;"),
    ({"proxy-url": "http://192.0.2.1:3128"}, {}, "the cluster has proxy-url"),
    ({"insecure-skip-tls-verify": True}, {}, "the cluster has insecure-skip-tls-verify"),
    ({"certificate-authority-data": None}, {}, "no certificate-authority-data"),
    ({"certificate-authority-data": "?"}, {}, "is not PEM in base64"),
    ({"server": None}, {}, "is not an address"),
    ({"server": "http://192.0.2.10:6443"}, {}, "is not an address"),
    ({"server": "https://user@192.0.2.10"}, {}, "is not an address"),
    ({"server": "https://192.0.2.10/api?x=1"}, {}, "is not an address"),
    ({"server": "https://192.0.2.10:99999"}, {}, "is not an address"),
    ({"server": ["https://192.0.2.10"]}, {}, "is not a text of one line"),
    ({}, {"client-key-data": None}, "one is there without the other"),
    ({}, {"client-certificate-data": None, "client-key-data": None}, "neither client-certificate-data nor token"),
    ({}, {**TOKEN, "token": f"{SECRET}\nX-Header: 1"}, "is not a text of one line"),
]


@pytest.mark.parametrize(("cluster", "user", "said"), REFUSED, ids=[said for *_, said in REFUSED])
def test_everything_else_is_refused(cluster: dict[str, Any], user: dict[str, Any], said: str) -> None:
    """Programs, files, proxies, half a login; the refusal names the key and shows no value."""
    with pytest.raises(KubeconfigRefusedError, match=said) as refusal:
        parse_kubeconfig(kubeconfig(cluster, user))
    assert SECRET not in str(refusal.value)


def test_what_is_written_and_empty_is_not_there() -> None:
    """Go writes empty fields."""
    assert parse_kubeconfig(kubeconfig({"insecure-skip-tls-verify": False}, {"exec": None, "username": ""})).server


NO_KUBECONFIGS = ["", "[]", "a: b", ":\t:", "[" * 5000, "a: &a [*a]", "clusters: 1", "!!python/object:os.system {}"]


@pytest.mark.parametrize("text", NO_KUBECONFIGS)
def test_what_is_no_kubeconfig_is_refused(text: str) -> None:
    """Whatever a Secret holds, the answer is a refusal."""
    with pytest.raises(KubeconfigRefusedError):
        parse_kubeconfig(text)


def test_a_long_one_is_not_parsed() -> None:
    """One byte more than the limit."""
    text = kubeconfig()
    padded = text + "#" * (KUBECONFIG_BYTES_MAX - len(text))

    assert parse_kubeconfig(padded).server
    with pytest.raises(KubeconfigRefusedError, match="more than 65536 bytes"):
        parse_kubeconfig(padded + "#")
