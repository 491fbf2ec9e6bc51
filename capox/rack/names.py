"""What a rack's parser accepts as names, ids, host names, port ranges and networks, and its complaints (semantics 2.1).

Each check returns the complaint, or None when there is none. `FORMATS` gives the same checks to JSON Schema under the
formats `oxide-*`.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import uuid
from collections.abc import Callable

_UUID = re.compile(r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$")
_LABEL = re.compile(r"^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$")
_PORTS = re.compile(r"^([0-9]{1,5})(-([0-9]{1,5}))?$")

MAXIMUM_USER_DATA_BYTES = 32 * 1024

NAME_OR_ID_COMPLAINT = "data did not match any variant of untagged enum NameOrId"


def is_uuid(text: str) -> bool:
    """Whether a name-or-id is an id."""
    return bool(_UUID.fullmatch(text))


def parse_uuid(text: str) -> str:
    """An id in the form in which records keep it."""
    return str(uuid.UUID(text))


def name_complaint(text: str) -> str | None:
    """What is wrong with a name."""
    if not text:
        return "name requires at least one character"
    if len(text) > 63:
        return "name may contain at most 63 characters"
    if not ("a" <= text[0] <= "z"):
        return "name must begin with an ASCII lowercase character"
    for character in text:
        if not (character == "-" or "a" <= character <= "z" or "0" <= character <= "9"):
            allowed = 'allowed characters are lowercase ASCII, digits, and "-"'
            return f'name contains invalid character: "{character}" ({allowed})'
    if text.endswith("-"):
        return 'name cannot end with "-"'
    if is_uuid(text):
        return "name cannot be a UUID to avoid ambiguity with IDs"
    return None


def name_or_id_complaint(text: str) -> str | None:
    """What is wrong with something that is to be a name or an id."""
    return None if is_uuid(text) or name_complaint(text) is None else NAME_OR_ID_COMPLAINT


def hostname_complaint(text: str) -> str | None:
    """What is wrong with a host name."""
    if len(text) > 253:
        return "Max hostname length is 253"
    if not all(_LABEL.fullmatch(label) for label in text.split(".")):
        return "Hostnames must comply with RFC 1035"
    return None


def port_range_complaint(text: str) -> str | None:
    """What is wrong with a port or a range of ports."""
    match = _PORTS.fullmatch(text)
    if match is None:
        return f"invalid port range: {text}"
    first, last = int(match[1]), int(match[3] or match[1])
    if not (1 <= first <= last <= 65535):
        return f"invalid port range: {text}"
    return None


def _network_complaint(text: str, versions: tuple[int, ...]) -> str | None:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"invalid IP network: {text}"
    return None if "/" in text and network.version in versions else f"invalid IP network: {text}"


def ipv4_net_complaint(text: str) -> str | None:
    """What is wrong with an IPv4 network."""
    return _network_complaint(text, (4,))


def ipv6_net_complaint(text: str) -> str | None:
    """What is wrong with an IPv6 network."""
    return _network_complaint(text, (6,))


def ip_net_complaint(text: str) -> str | None:
    """What is wrong with a network of either family."""
    return _network_complaint(text, (4, 6))


def _address_complaint(text: str) -> str | None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return f"invalid IP address syntax: {text}"
    return None


def base64_complaint(text: str) -> str | None:
    """What is wrong with user data: it is standard base64 with padding, of at most 32 KiB when decoded."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        return "invalid value: string, expected a valid base64 string"
    if len(decoded) > MAXIMUM_USER_DATA_BYTES:
        return f"invalid length {len(decoded)}, expected less than 32 KiB"
    return None


COMPLAINTS: dict[str, Callable[[str], str | None]] = {
    "oxide-name": name_complaint,
    "oxide-name-or-id": name_or_id_complaint,
    "oxide-hostname": hostname_complaint,
    "oxide-port-range": port_range_complaint,
    "oxide-ipv4-net": ipv4_net_complaint,
    "oxide-ipv6-net": ipv6_net_complaint,
    "oxide-ip-net": ip_net_complaint,
    "byte": base64_complaint,
    "ip": _address_complaint,
}


def _accepts(complaint: Callable[[str], str | None]) -> Callable[[str], bool]:
    return lambda text: complaint(text) is None


FORMATS = {name: _accepts(complaint) for name, complaint in COMPLAINTS.items()}
