"""The names that things have on the rack: fixed, derivable from namespace and name, and those of the Go provider.

A name has at most 63 characters of [a-z0-9-]. One that would be longer is cut and ends in a hash of the whole; one with
other characters (a dot is legal in names of Machines) has them replaced and ends in a hash of the original. Two pairs
of namespace and name can still meet in one name; owner marks tell them apart, and the second gets `NameConflict`.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["boot_disk_name", "data_disk_name", "firewall_rule_name", "floating_ip_name", "group_name", "instance_name"]

_CHARACTERS_MAX: Final = 63
_FOREIGN: Final = re.compile(r"[^a-z0-9-]")


def instance_name(namespace: str, name: str) -> str:
    """The name of an OxideMachine's instance, of its host name, its Node and its primary NIC."""
    return _fit(f"capi-{namespace}-{name}")


def boot_disk_name(namespace: str, name: str) -> str:
    """The name of an OxideMachine's boot disk."""
    return _fit(f"capi-boot-{namespace}-{name}")


def data_disk_name(index: int, namespace: str, name: str) -> str:
    """The name of the data disk at a place in `spec.dataDisks`, counted from 0."""
    return _fit(f"capi-data-{index}-{namespace}-{name}")


def floating_ip_name(namespace: str, name: str) -> str:
    """The name of an OxideCluster's floating IP."""
    return _fit(f"capi-fip-{namespace}-{name}")


def firewall_rule_name(namespace: str, name: str, purpose: str, index: int) -> str:
    """The name of an OxideCluster's firewall rule for a purpose, counted from 0 where one rule is not enough."""
    return _fit(f"capi-fw-{namespace}-{name}-{purpose}-{index}")


def group_name(namespace: str, name: str, role: str, index: int) -> str:
    """The name of an OxideCluster's anti-affinity group for a role, counted from 0 where one group is not enough."""
    return _fit(f"capi-group-{namespace}-{name}-{role}-{index}")


def _fit(whole: str) -> str:
    text = whole.lower()
    replaced = _FOREIGN.sub("-", text)
    if replaced == text and len(text) <= _CHARACTERS_MAX:
        return text.removesuffix("-")
    digest = f"{_fnv1a(whole):x}"
    return f"{replaced[: _CHARACTERS_MAX - 1 - len(digest)]}-{digest}"


def _fnv1a(text: str) -> int:
    """FNV-1a, 32 bit, as Go's hash/fnv computes it."""
    digest = 0x811C9DC5
    for byte in text.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return digest
