"""From a bootstrap Secret to the user data that an instance accepts.

User data holds the cluster's keys and a join token: it exists as a secret type only, and goes nowhere but into the one
request that makes the instance (C-IM-2). It is read again for each attempt, never kept (M-34).
"""

from __future__ import annotations

import dataclasses
import gzip
import re
from typing import Final

from pydantic import SecretBytes

from capox.kube.objects import Secret
from capox.provider.cidata import bytes_to_be_read

__all__ = ["USER_DATA_BYTES_MAX", "BootstrapRefused", "UserData", "user_data"]

USER_DATA_BYTES_MAX: Final = 32 * 1024
"""The rack's limit on user data (semantics 2.1)."""

_GZIP_MAGIC: Final = b"\x1f\x8b"

_TALOS_BOOTSTRAP: Final = "TalosConfig"

# Comments, blank lines and document separators, then the first field of a Talos machine configuration.
_STARTS_AS_TALOS: Final = re.compile(
    rb"(?:[ \t]*(?:#[^\n]*)?\r?\n|---[^\n]*\n)*(?:apiV|v)ersion:[ \t]*v1alpha1[ \t]*(?:\r?\n|\Z)"
)
_COMMENT: Final = b"#" * 79 + b"\n"


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


def user_data(secret: Secret, bootstrap_kind: str = "") -> UserData | BootstrapRefused:
    """The user data of a bootstrap Secret.

    Data of up to 32 KiB is passed on byte for byte. Larger data is compressed, which cloud-init undoes; the compressed
    form of the same data is always the same, so that a repeated attempt sends the same request. Configuration for
    Talos, which undoes nothing, is never compressed, and padded where it is small (see `cidata`).

    Args:
        secret: The Secret.
        bootstrap_kind: The kind of the bootstrap configuration, such as KubeadmConfig; empty when it is not known.
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
    if bootstrap_kind == _TALOS_BOOTSTRAP or _is_talos(raw):
        return _talos_data(name, raw)
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


def _is_talos(raw: bytes) -> bool:
    """Whether data starts as a Talos machine configuration: cloud-init's own first line says that it is none."""
    return not raw.startswith(b"#cloud-config") and _STARTS_AS_TALOS.match(raw) is not None


def _talos_data(name: str, raw: bytes) -> UserData | BootstrapRefused:
    if len(raw) > USER_DATA_BYTES_MAX:
        return BootstrapRefused(
            "UserDataTooLarge",
            f"the Talos configuration of Secret {name} has {len(raw)} bytes; the rack takes at most "
            f"{USER_DATA_BYTES_MAX}, and Talos reads no compressed data; leave comments and examples out",
        )
    return UserData(SecretBytes(_padded(raw)))


def _padded(raw: bytes) -> bytes:
    """The data with comment lines behind it, as many as its volume needs to be read."""
    wanted = bytes_to_be_read(len(raw))
    if wanted <= len(raw):
        return raw
    # No empty line is added: at the end of a block of text it could be a part of that.
    start = raw if raw.endswith(b"\n") else raw + b"\n"
    lines, rest = divmod(wanted - len(start), len(_COMMENT))
    return start + _COMMENT * lines + b"#" * rest
