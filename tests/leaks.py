"""Looks for secrets in what a program wrote, in any form in which they tend to escape."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import urllib.parse
import zlib
from collections.abc import Iterator, Mapping

_ENCODED = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){12,}")
_GZIP = b"\x1f\x8b\x08"
_DEPTH = 4
_LARGEST_BYTES = 64 * 1024 * 1024


def find_leaks(secrets: Mapping[str, bytes], places: Mapping[str, str | bytes]) -> list[str]:
    """Where secrets can be read, one sentence each.

    Args:
        secrets: what must not be found, by a name that may be told.
        places: what is searched, by name: texts and bytes, whose gzip, base64, hexadecimal and percent-encoded parts
            are opened as well, several layers deep.
    """
    found: list[str] = []
    for place, content in places.items():
        layers = set(_layers(content.encode() if isinstance(content, str) else content, _DEPTH))
        for name, secret in secrets.items():
            forms = {secret, repr(secret)[2:-1].encode()}
            if any(form in layer for form in forms for layer in layers):
                found.append(f"{place} holds {name}")
    return found


def _layers(content: bytes, depth: int) -> Iterator[bytes]:
    """The content, and whatever can be decoded from parts of it."""
    yield content
    if depth == 0:
        return
    for inner in _decoded(content):
        yield from _layers(inner, depth - 1)


def _decoded(content: bytes) -> Iterator[bytes]:
    for match in _ENCODED.finditer(content):
        text = match.group().rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
        # What was encoded as a part of something larger begins at any of four places.
        for start in range(4):
            part = text[start:]
            with_padding = part[: len(part) - (len(part) % 4 == 1)]
            with_padding += b"=" * (-len(with_padding) % 4)
            yield base64.b64decode(with_padding)
    for match in _HEX.finditer(content):
        yield binascii.unhexlify(match.group())
    if b"%" in content:
        yield urllib.parse.unquote_to_bytes(content)
    start = content.find(_GZIP)
    while start >= 0:
        with contextlib.suppress(zlib.error):
            yield zlib.decompressobj(31).decompress(content[start:], _LARGEST_BYTES)
        start = content.find(_GZIP, start + 1)
