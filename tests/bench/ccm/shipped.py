"""The command line program with what the shipped image has, and nothing of the developers' tools.

What is installed decides how much memory a process has: structlog alone takes 5 MB more where it finds rich. So the
packages of `requirements/runtime.lock` are put into a directory of links, which is all that the interpreter gets.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Final

from hack.image.build import ENVIRONMENT

__all__ = ["program", "variables"]

ROOT: Final = Path(__file__).resolve().parents[3]
LOCK: Final = ROOT / "requirements" / "runtime.lock"

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def program() -> tuple[str, ...]:
    """What is started: this interpreter, without the packages that it has installed."""
    return (sys.executable, "-S", "-m", "capox")


def variables(directory: Path) -> dict[str, str]:
    """The environment, with the packages in a new folder of a directory.

    Byte code that is lying around is not used, for the image has none.
    """
    site = directory / "site"
    site.mkdir()
    (site / "capox").symlink_to(ROOT / "capox")
    for name in _PIN.findall(LOCK.read_text()):
        for top in _top_levels(name):
            if not (site / top.name).exists():
                (site / top.name).symlink_to(top)
    return {**ENVIRONMENT, "PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": str(directory / "no-byte-code")}


def _top_levels(name: str) -> set[Path]:
    """The files and folders right in site-packages that a package has brought; none when it is for other systems."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return set()
    names = {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}
    return {Path(str(distribution.locate_file(each))) for each in names}
