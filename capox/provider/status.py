"""Writing a status: only what has changed, only when something has."""

from __future__ import annotations

from typing import Any

from capox.kube.objects import KubeModel

__all__ = ["status_patch"]


def status_patch(before: KubeModel, after: KubeModel) -> dict[str, Any] | None:
    """The merge patch that turns one status into another; None when they are the same (C-CO-7, B50).

    Lists are replaced whole, so the patch has to be sent with the object's resourceVersion.
    """
    old, new = before.dump(), after.dump()
    changed: dict[str, Any] = {key: value for key, value in new.items() if old.get(key) != value}
    removed: dict[str, Any] = {key: None for key in old if key not in new}
    return {**removed, **changed} or None
