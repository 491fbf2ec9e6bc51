"""From a bootstrap Secret to the user data that an instance accepts.

User data holds the cluster's keys and a join token: it exists as a secret type only, and goes nowhere but into the one
request that makes the instance (C-IM-2). It is read again for each attempt, never kept (M-34).
"""

from __future__ import annotations

import dataclasses
import gzip
from typing import Final

from pydantic import SecretBytes

from capox.kube.objects import Secret

__all__ = ["USER_DATA_BYTES_MAX", "BootstrapRefused", "UserData", "user_data"]

USER_DATA_BYTES_MAX: Final = 32 * 1024
"""The rack's limit on user data (semantics 2.1)."""

_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True, slots=True)
class UserData:
    """What goes into the instance."""

    data: SecretBytes


@dataclasses.dataclass(frozen=True, slots=True)
class BootstrapRefused:
    """Bootstrap data that no instance can be made of.

    Attributes:
        reason: The reason of the condition BootstrapDataReady.
        message: What is wrong and what to do, without a byte of the data.
    """

    reason: str
    message: str


def user_data(secret: Secret) -> UserData | BootstrapRefused:
    """The user data of a bootstrap Secret.

    Data of up to 32 KiB is passed on byte for byte. Larger data is compressed, which cloud-init undoes; the compressed
    form of the same data is always the same, so that a repeated attempt sends the same request.
    """
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    encoded_format = secret.data.get("format")
    form = encoded_format.get_secret_value() if encoded_format is not None else b"cloud-config"
    if form not in {b"", b"cloud-config"}:
        return BootstrapRefused(
            "UnsupportedBootstrapFormat",
            f"the bootstrap Secret {name} has key format with another value than cloud-config; "
            "use a bootstrap provider that makes cloud-config",
        )
    value = secret.data.get("value")
    if value is None or not value.get_secret_value():
        return BootstrapRefused(
            "WaitingForBootstrapData", f"the bootstrap Secret {name} has no key value, or an empty one"
        )
    raw = value.get_secret_value()
    if len(raw) <= USER_DATA_BYTES_MAX:
        return UserData(SecretBytes(raw))
    packed = raw if raw.startswith(_GZIP_MAGIC) else gzip.compress(raw, compresslevel=9, mtime=0)
    if len(packed) > USER_DATA_BYTES_MAX:
        return BootstrapRefused(
            "UserDataTooLarge",
            f"the bootstrap data of Secret {name} has {len(raw)} bytes, {len(packed)} compressed; the rack takes at "
            f"most {USER_DATA_BYTES_MAX}; move files out of the bootstrap configuration, into the image for example",
        )
    return UserData(SecretBytes(packed))
