"""The credentials of a cluster: the Secret that `spec.credentialsRef` names, read live for every pass.

A Secret that is not there, incomplete or refused by the rack is a condition, never a reason to give anything up: the
moment of a rotation looks the same (B31).
"""

from __future__ import annotations

import dataclasses
import datetime

from pydantic import SecretStr

from capox.api.v1alpha1 import SecretReference
from capox.kube.client import KubeAPI
from capox.kube.errors import NotFound
from capox.kube.kind import SECRETS
from capox.kube.objects import Secret

__all__ = ["Credentials", "CredentialsError", "parse_credentials", "read_credentials", "read_secret"]

_HOST, _TOKEN, _CA, _EXPIRES = "oxide-host", "oxide-token", "oxide-ca", "oxide-token-expires"


class CredentialsError(Exception):
    """The Secret cannot be used; the message names it, the key and the remedy, and no value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """What a client of the rack needs.

    Attributes:
        host: The rack's address.
        token: The API token.
        ca: PEM certificates of a private authority; None trusts the public ones.
        expires: When the token ends, where the Secret tells.
    """

    host: str
    token: SecretStr
    ca: str | None = None
    expires: datetime.datetime | None = None


async def read_credentials(kube: KubeAPI, reference: SecretReference, namespace: str) -> Credentials:
    """Read the Secret that a cluster in a namespace refers to.

    Raises:
        CredentialsError: There is no such Secret, or it is incomplete.
        KubeError: It could not be read.
    """
    return parse_credentials(await read_secret(kube, reference, namespace))


async def read_secret(kube: KubeAPI, reference: SecretReference, namespace: str) -> Secret:
    """Read the Secret itself; as `read_credentials`.

    Raises:
        CredentialsError: There is no such Secret.
        KubeError: It could not be read.
    """
    where = reference.namespace or namespace
    try:
        return await kube.get(SECRETS, where, reference.name)
    except NotFound:
        raise CredentialsError(
            f"Secret {where}/{reference.name} does not exist; make it with keys {_HOST} and {_TOKEN}"
        ) from None


def parse_credentials(secret: Secret) -> Credentials:
    """The credentials in a Secret.

    Raises:
        CredentialsError: A key is missing or cannot be read.
    """
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    values: dict[str, SecretStr | None] = {}
    for key in (_HOST, _TOKEN, _CA, _EXPIRES):
        try:
            text = secret.text(key)
        except ValueError as error:
            raise CredentialsError(str(error)) from None
        values[key] = SecretStr(text.get_secret_value().strip()) if text is not None else None
    host, token = values[_HOST], values[_TOKEN]
    for key, value in ((_HOST, host), (_TOKEN, token)):
        if value is None or not value.get_secret_value():
            raise CredentialsError(f"Secret {name} has no key {key}, or an empty one; add it")
    assert host is not None
    assert token is not None
    ca = values[_CA]
    return Credentials(
        host=host.get_secret_value(),
        token=token,
        ca=ca.get_secret_value() + "\n" if ca is not None and ca.get_secret_value() else None,
        expires=_parse_expiry(name, values[_EXPIRES]),
    )


def _parse_expiry(name: str, text: SecretStr | None) -> datetime.datetime | None:
    if text is None or not text.get_secret_value():
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.get_secret_value())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CredentialsError(
            f"Secret {name}: key {_EXPIRES} is not a time such as 2027-01-31T12:00:00Z (RFC 3339, with a time zone)"
        )
    return moment
