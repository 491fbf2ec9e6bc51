"""What the apiserver was asked, by whom: its audit log, which misses nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["IN_MEMORY_USER", "USER", "AuditLog", "is_write", "policy"]

USER: Final = "system:serviceaccount:capox-system:capox-manager"
"""Who this provider is."""

IN_MEMORY_USER: Final = "system:serviceaccount:capd-system:capd-manager"
"""Who Cluster API's in-memory provider is."""

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def policy() -> dict[str, Any]:
    """The audit policy: every request of the two providers, and nothing of anybody else, which would only cost time."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "users": [USER, IN_MEMORY_USER]}, {"level": "None"}],
    }


def is_write(request: tuple[str, str]) -> bool:
    """Whether a verb and resource change something."""
    return request[0] in _WRITES


class AuditLog:
    """The audit log.

    Args:
        path: Where the apiserver writes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """The present end, for `requests` later."""
        return self._path.stat().st_size if self._path.exists() else 0

    def requests(self, user: str, since: int) -> Counter[tuple[str, str]]:
        """How often a user asked what since a mark: verb, and resource with its subresource."""
        return Counter(
            (entry["verb"], _resource(entry)) for entry in self._entries(since) if entry["user"]["username"] == user
        )

    def _entries(self, since: int) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(since)
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def _resource(entry: dict[str, Any]) -> str:
    reference = entry.get("objectRef")
    if reference is None:
        return str(entry["requestURI"]).partition("?")[0]
    subresource = reference.get("subresource")
    return str(reference["resource"]) + (f"/{subresource}" if subresource else "")
