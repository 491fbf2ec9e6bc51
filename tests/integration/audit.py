"""What the apiserver was asked, by whom: its audit log, which misses nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["CCM_USER", "IN_MEMORY_USER", "USER", "AuditLog", "apiserver_arguments", "is_write"]

USER: Final = "system:serviceaccount:capox-system:capox-manager"
"""Who this provider is."""

IN_MEMORY_USER: Final = "system:serviceaccount:capd-system:capd-manager"
"""Who Cluster API's in-memory provider is."""

CCM_USER: Final = "system:serviceaccount:kube-system:capox-cloud-controller-manager"
"""Who the cloud controller manager is."""

MEGABYTES_MAX: Final = 4000
"""How long the log may become before the apiserver begins another one."""

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def apiserver_arguments(directory: Path, *users: str) -> tuple[tuple[str, ...], AuditLog]:
    """Have an apiserver log every request of these users, and nothing of anybody else, which would only cost time.

    Args:
        directory: Where the policy and the log go.
        *users: Who is logged.

    Returns:
        The arguments for the apiserver, and the log that it will write.
    """
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "users": list(users)}, {"level": "None"}],
    }
    policy_file, log_file = directory / "audit-policy.json", directory / "audit.log"
    policy_file.write_text(json.dumps(policy))
    arguments = (
        f"--audit-policy-file={policy_file}",
        f"--audit-log-path={log_file}",
        f"--audit-log-maxsize={MEGABYTES_MAX}",
    )
    return arguments, AuditLog(log_file)


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

    def writes(self, user: str, since: int) -> Counter[str]:
        """How often a user wrote to which resource since a mark."""
        writes: Counter[str] = Counter()
        for request, count in self.requests(user, since).items():
            if is_write(request):
                writes[request[1]] += count
        return writes

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
