"""The little of kustomize that config/ uses, so that its tests need no kubectl: resources, and labels on objects.

Whether kubectl makes the same of it is tested where there is one (`tests/integration/test_installation.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_HEADER = {"apiVersion", "kind"}


def build(directory: Path) -> list[dict[str, Any]]:
    """The objects of a kustomization and of those below it.

    Raises:
        AssertionError: the kustomization uses more of kustomize than is understood here.
    """
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert kustomization.keys() - _HEADER <= {"resources", "labels"}, f"{directory}: {sorted(kustomization)}"
    objects: list[dict[str, Any]] = []
    for resource in kustomization["resources"]:
        path = directory / resource
        objects += build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for labels in kustomization.get("labels", []):
        assert labels.keys() == {"pairs"}, f"{directory}: {sorted(labels)}"
        for each in objects:
            each["metadata"].setdefault("labels", {}).update(labels["pairs"])
    return objects
