"""Links of Markdown pages, as far as this project writes them: inline links to files, folders and headings."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")


def broken_links(path: str, text: str, read: Callable[[str], str | None]) -> list[str]:
    """Links of a page that lead nowhere. Addresses of other sites are not asked.

    Args:
        path: The page, relative to the root of the tree.
        text: Its text.
        read: Gives the text at a path of the tree, "" for a folder, None when nothing is there.

    Returns:
        One sentence `path:line: what is wrong` for each link to a file or heading that is not there.
    """
    found = []
    for line, target in links(text):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        relative, _, fragment = target.partition("#")
        there = read(posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))) if relative else text
        if there is None:
            found.append(f"{path}:{line}: the link {target} leads nowhere")
        elif fragment and (not relative or relative.endswith(".md")) and fragment not in headings(there):
            found.append(f"{path}:{line}: the link {target} names a heading that is not there")
    return found


def links(text: str) -> list[tuple[int, str]]:
    """The targets of a page's inline links with their lines; what looks like one inside code is none."""
    prose = _INLINE_CODE.sub("", _FENCE.sub(lambda fence: "\n" * fence.group().count("\n"), text))
    return [(prose.count("\n", 0, match.start()) + 1, match.group(1)) for match in _LINK.finditer(prose)]


def headings(text: str) -> set[str]:
    """The fragments by which the headings of a page can be linked to."""
    titles = re.findall(r"^#+ +(.+?)\s*$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
