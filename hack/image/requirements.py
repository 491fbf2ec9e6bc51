"""The lock that says which wheels go in: names, versions and digests. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hack.image.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")


@dataclass(frozen=True)
class Pin:
    """One package, in one version.

    Attributes:
        name: its name, normalised.
        version: the version.
        digests: SHA-256 of its files, in hex; one of them must match.
    """

    name: str
    version: str
    digests: frozenset[str]

    def line(self) -> str:
        """The pin as a line of a requirements file."""
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(self.digests))
        return f"{self.name}=={self.version} {hashes}"


def parse_lock(text: str, environment: Mapping[str, str]) -> list[Pin]:
    """Read a lock as `make lock` writes it.

    Args:
        text: the file.
        environment: answers to environment markers; a pin whose marker says no is left out.

    Returns:
        The pins, by name.

    Raises:
        ImageError: a line is not a pin with hashes.
    """
    pins = {}
    for line in _logical_lines(text):
        specification, _, rest = line.partition(" --hash")
        digests = frozenset(_HASH.findall(f" --hash{rest}"))
        try:
            requirement = Requirement(specification.strip())
        except InvalidRequirement as error:
            raise ImageError(f"The lock's line {specification!r} is no requirement: {error}") from None
        versions = list(requirement.specifier)
        if len(versions) != 1 or versions[0].operator != "==" or not digests:
            raise ImageError(f"The lock's line {specification!r} is not one version with hashes; run make lock.")
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            name = canonicalize_name(requirement.name)
            pins[name] = Pin(name, versions[0].version, digests)
    return [pins[name] for name in sorted(pins)]


def _logical_lines(text: str) -> list[str]:
    """Lines with their continuations, without comments and empty ones."""
    joined = re.sub(r"\\\n", " ", text)
    without_comments = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    return [" ".join(line.split()) for line in without_comments if line.strip()]
