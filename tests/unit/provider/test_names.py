"""Names on the rack: those of the Go provider."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.provider import names

RACK_NAME = re.compile(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")
NAMESPACE = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
NAME = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (names.instance_name("default", "web-0"), "capi-default-web-0"),
        (names.boot_disk_name("default", "web-0"), "capi-boot-default-web-0"),
        (names.data_disk_name(1, "default", "web-0"), "capi-data-1-default-web-0"),
        (names.floating_ip_name("default", "web"), "capi-fip-default-web"),
        # FNV-1a, 32 bit, of the whole name, published test vectors: "" is 811c9dc5, "a" is e40c292c, "foobar" bf9cf968.
        (names._fit("a" * 64)[:55], "a" * 54 + "-"),
    ],
)
def test_names_are_fixed(made: str, expected: str) -> None:
    """Whoever switches from the Go provider finds everything under the same names."""
    assert expected == made


def test_hash_is_fnv1a() -> None:
    """The hash is the one of Go's hash/fnv, by its published vectors."""
    assert [names._fnv1a(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


@given(namespace=NAMESPACE, name=NAME)
def test_rack_takes_every_name(namespace: str, name: str) -> None:
    """Whatever Kubernetes calls a machine, the rack accepts the names that follow from it."""
    for made in (
        names.instance_name(namespace, name),
        names.boot_disk_name(namespace, name),
        names.data_disk_name(10, namespace, name),
        names.floating_ip_name(namespace, name),
    ):
        assert RACK_NAME.match(made), made


@given(namespace=NAMESPACE, first=NAME, second=NAME)
def test_long_and_dotted_names_stay_apart(namespace: str, first: str, second: str) -> None:
    """Two machines of a namespace that the cut or the replacement would make alike are told apart by the hash."""
    if first != second:
        assert names.instance_name(namespace, first) != names.instance_name(namespace, second)
