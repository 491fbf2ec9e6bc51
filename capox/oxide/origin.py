"""The address of a rack's API: what a user writes, and the one form that everything here compares and calls."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


def parse_origin(host: str) -> str:
    """Turn a user's address of a rack into an origin.

    Args:
        host: A name or address, with a port or without. Without a scheme it means https; http is taken when it is
            written (semantics 1.7). Blanks around it, as a file's last newline, and one slash at the end are
            dropped.

    Returns:
        `scheme://host[:port]`, in lower case, without the port that the scheme implies. Equal origins are the same
        rack.

    Raises:
        ValueError: It is not such an address. The message does not repeat it where it could hold a password.
    """
    text = host.strip()
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the rack's address must not hold a user name or password; the token is given apart from it")
    try:
        name, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"the rack's address {text!r} has a port that is no number from 0 to 65535") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"the rack's address {text!r} must begin with https://, http:// or with the host itself")
    if not _HOST.fullmatch(name):
        raise ValueError(f"the rack's address {text!r} names no host; write it as https://oxide.example.com")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(f"the rack's address {text!r} must end after host and port")
    shown = f"[{name}]" if ":" in name else name
    is_implied = port is None or port == _DEFAULT_PORTS[parts.scheme]
    return f"{parts.scheme}://{shown}" + ("" if is_implied else f":{port}")
