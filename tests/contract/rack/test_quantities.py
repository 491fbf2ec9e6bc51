"""Sizes and endpoints as people write them."""

from __future__ import annotations

import pytest

from capox.rack.endpoint import Endpoint, parse_endpoint
from capox.rack.sizes import format_size, parse_size
from tests.rack import GIB


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), (7, 7), ("7 B", 7), ("1 KiB", 1024), ("16GiB", 16 * GIB), ("1.5 TiB", 1536 * GIB), (2**63 - 1, 2**63 - 1)],
)
def test_sizes(text: object, size: int) -> None:
    """Sizes are bytes, or a number and a unit with powers of 1024."""
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", [-1, 2**63, 1.5, True, None, "", "GiB", "1 GB", "1 gib", "0.1 B", "-1 GiB", "9e9 B"])
def test_no_sizes(text: object) -> None:
    """What is no size, or not of whole bytes, is refused."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "endpoint", "is_loopback"),
    [
        ("127.0.0.1:0", Endpoint("127.0.0.1", 0), True),
        ("127.9.9.9:1", Endpoint("127.9.9.9", 1), True),
        ("[::1]:12220", Endpoint("::1", 12220), True),
        ("localhost:65535", Endpoint("localhost", 65535), True),
        ("198.51.100.1:1", Endpoint("198.51.100.1", 1), False),
        ("[::]:1", Endpoint("::", 1), False),
        ("192.0.2.1:1", Endpoint("192.0.2.1", 1), False),
    ],
)
def test_endpoints(text: str, endpoint: Endpoint, *, is_loopback: bool) -> None:
    """An endpoint is an address and a port, and known to be on loopback or not."""
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == text
    assert endpoint.is_loopback is is_loopback


@pytest.mark.parametrize("text", ["", ":80", "127.0.0.1:", "::1:80", "[::1]", "[zz]:1", "rack.example:80", 80, None])
def test_no_endpoints(text: object) -> None:
    """What is no endpoint is refused, names included: nothing is looked up."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_endpoint(text)
