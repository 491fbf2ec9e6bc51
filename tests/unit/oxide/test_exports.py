"""What the room offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import capox.oxide
from capox.oxide import models

ROOM = Path(capox.oxide.__file__).parent


@pytest.mark.parametrize("package", [capox.oxide, models], ids=lambda package: str(package.__name__))
def test_what_is_offered_is_there(package: object) -> None:
    """Every offered name exists, and is offered once."""
    offered = package.__all__  # type: ignore[attr-defined]  # both packages have one

    assert len(offered) == len(set(offered))
    assert all(hasattr(package, name) for name in offered)


@pytest.mark.parametrize("name", ["capox.oxide", "capox.oxide.models", "capox.oxide.errors", "capox.oxide.inventory"])
def test_each_door_opens_by_itself(name: str) -> None:
    """Each public module can be the first one that is imported, with warnings as errors."""
    subprocess.run([sys.executable, "-W", "error", "-c", f"import {name}"], check=True)


def test_one_module_knows_the_http_library() -> None:
    """Changing the HTTP library costs one file."""
    importers = {
        path.name
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "httpx" for alias in node.names)
    }

    assert importers == {"client.py"}
