"""config/ccm as objects, in the order of its kustomization, and the template of the Secret that is not part of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from hack.controlplane.paths import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

SOURCE: Final = REPOSITORY / "config" / "ccm"
PACKAGE_DATA: Final = "capox/provider/ccm_addon_manifests.json"
SECRET_FILE: Final = "secret.yaml"  # noqa: S105  a file's name


def objects(source: Path = SOURCE) -> list[dict[str, Any]]:
    """The objects, labelled; the Secret's template comes before what mounts it."""
    kustomization = yaml.safe_load((source / "kustomization.yaml").read_text())
    (labels,) = kustomization["labels"]
    files = list(kustomization["resources"])
    found: list[dict[str, Any]] = []
    for name in [*files[:-1], SECRET_FILE, files[-1]]:
        for document in yaml.safe_load_all((source / name).read_text()):
            document["metadata"].setdefault("labels", {}).update(labels["pairs"])
            found.append(document)
    return found


def package_data(source: Path = SOURCE) -> str:
    """The text of the package data."""
    return json.dumps(objects(source), indent=1) + "\n"
