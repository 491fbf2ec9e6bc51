"""What a run has measured so far, in files, so that one that was interrupted goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

__all__ = ["Parts"]

Part = TypeVar("Part")


class Parts:
    """The parts of one run.

    A part does not know what code it was measured with: whoever changes some removes the files of what it changes.

    Args:
        directory: where the files are; it is made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def ensure(self, name: str, kind: type[Part], measure: Callable[[], Part]) -> Part:
        """Give a part that is there, or measure it now and keep it.

        Args:
            name: of the part, and of its file.
            kind: what it is.
            measure: measures it.

        Raises:
            ValueError: the file is not of this kind.
        """
        path, adapter = self._directory / f"{name}.json", TypeAdapter(kind)
        if path.exists():
            return adapter.validate_json(path.read_bytes())
        part = measure()
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(adapter.dump_json(part, indent=1))
        unfinished.rename(path)
        return part
