"""The file system that a stack of layers makes, as names: which are there, and where links lead. Pure."""

from __future__ import annotations

import posixpath
import tarfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
"""How a layer says that something below it is gone: one name, or all that a directory held."""

_LINKS_MAX: Final = 40
"""As Linux: more links on the way than this are a circle."""


def normalised(name: str) -> str:
    """A tar entry's name as a path without leading slash or dot; empty for the root."""
    return posixpath.normpath("/" + name).strip("/")


class FileTree:
    """Names of files, directories and links.

    Args:
        keep: whether a file's content is wanted, by its path.
    """

    def __init__(self, keep: Callable[[str], bool]) -> None:
        self._keep = keep
        self._targets: dict[str, str | None] = {"": None}
        self.contents: dict[str, bytes] = {}

    def add_layer(self, tar: tarfile.TarFile) -> None:
        """Lay a layer over what is there."""
        for member in tar:
            path = normalised(member.name)
            directory, _, name = path.rpartition("/")
            if name == OPAQUE:
                self._remove_below(directory)
            elif name.startswith(WHITEOUT):
                self._remove(posixpath.join(directory, name.removeprefix(WHITEOUT)))
            else:
                self._add(tar, member, path)

    def resolve(self, path: str) -> str | None:
        """Where a path ends after all links, as a path without leading slash; None when that is not there."""
        pending = normalised(path).split("/")
        reached = ""
        links = 0
        while pending:
            following = posixpath.join(reached, pending.pop(0)) if reached else pending.pop(0)
            if following not in self._targets:
                return None
            target = self._targets[following]
            if target is None:
                reached = following
                continue
            links += 1
            if links > _LINKS_MAX:
                return None
            whole = target if target.startswith("/") else f"{reached}/{target}"
            # A link's `..` is about where it leads, not about what it is called; images have no such pairs.
            pending = [part for part in normalised(whole).split("/") if part] + pending
            reached = ""
        return reached

    def exists(self, path: str) -> bool:
        """Whether something is there after all links."""
        return self.resolve(path) is not None

    def content(self, path: str) -> bytes | None:
        """The content of a file that was to be kept; None when it is not there or was not kept."""
        resolved = self.resolve(path)
        return self.contents.get(resolved) if resolved is not None else None

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            self._targets.setdefault("/".join(parts[:depth]), None)
        self._targets[path] = member.linkname if member.issym() else None
        self.contents.pop(path, None)
        if member.islnk() and (linked := self.contents.get(normalised(member.linkname))) is not None:
            self.contents[path] = linked
        elif member.isfile() and self._keep(path):
            file = tar.extractfile(member)
            assert file is not None
            self.contents[path] = file.read()

    def _remove(self, path: str) -> None:
        self._remove_below(path)
        self._targets.pop(path, None)
        self.contents.pop(path, None)

    def _remove_below(self, directory: str) -> None:
        prefix = f"{directory}/" if directory else ""
        for path in [path for path in self._targets if path.startswith(prefix) and path]:
            del self._targets[path]
            self.contents.pop(path, None)
