"""The Python in a parent image: where it is, its version, which wheels run on it. Found by looking, not by running."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging import tags

from hack.image.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hack.image.tree import FileTree

MINIMUM: Final = (3, 11)
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image that sets none."""

CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
_LIBC: Final = re.compile(r"(?:^|/)libc(?:\.so\.6|-2\.\d+\.so)$")
_LIBC_VERSION: Final = re.compile(rb"GNU C Library [^\n]{0,80}?release version (\d+)\.(\d+)")
_LIBC_PLACES: Final = ("lib/x86_64-linux-gnu/libc.so.6", "lib64/libc.so.6", "usr/lib64/libc.so.6", "lib/libc.so.6")
_NEEDED_MODULES: Final = ("asyncio/__init__.py", "ssl.py", "json/__init__.py")
_ELF_X86_64: Final = b"\x3e\x00"
_OLDEST_MANYLINUX: Final = 5
_ADVICE: Final = "python:3.12-slim is known to work"


@dataclass(frozen=True)
class Interpreter:
    """A Python for linux/amd64.

    Attributes:
        path: its absolute path in the image.
        version: its major and minor version.
        glibc: major and minor version of the C library.
        has_certificates: whether the public certificate authorities are where OpenSSL looks for them.
    """

    path: str
    version: tuple[int, int]
    glibc: tuple[int, int]
    has_certificates: bool

    def platforms(self) -> list[str]:
        """The platform tags of wheels that run, the best first."""
        major, minor = self.glibc
        found = [f"manylinux_{major}_{number}_x86_64" for number in range(minor, _OLDEST_MANYLINUX - 1, -1)]
        return [*found, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]

    def tags(self) -> Iterator[tags.Tag]:
        """The tags of wheels that run, the best first."""
        name = f"cp{self.version[0]}{self.version[1]}"
        yield from tags.cpython_tags(self.version, [name], self.platforms())
        yield from tags.compatible_tags(self.version, name, self.platforms())

    def marker_environment(self) -> dict[str, str]:
        """What environment markers of requirements are answered with."""
        version = f"{self.version[0]}.{self.version[1]}"
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": "linux",
        }


def is_of_interest(path: str) -> bool:
    """Whether `find_interpreter` wants to see a file's content."""
    return _LIBC.search(path) is not None


def find_interpreter(tree: FileTree, environment: Mapping[str, str]) -> Interpreter:
    """Find the Python that `python3` means in an image.

    Args:
        tree: its files, made with `is_of_interest`.
        environment: its environment variables; PATH is read.

    Raises:
        ImageError: there is none, or it cannot run capox.
    """
    path, resolved = _find(tree, environment.get("PATH") or SEARCH_PATH)
    match = re.search(r"/python(\d)\.(\d+)$", f"/{resolved}")
    if match is None:
        raise ImageError(
            f"The base image's {path} leads to /{resolved}, whose name does not tell a version; {_ADVICE}."
        )
    version = (int(match[1]), int(match[2]))
    if version < MINIMUM:
        raise ImageError(
            f"The base image has Python {version[0]}.{version[1]}; capox needs {MINIMUM[0]}.{MINIMUM[1]} or newer. "
            f"{_ADVICE}."
        )
    library = f"{resolved.rpartition('/')[0].rpartition('/')[0]}/lib/python{version[0]}.{version[1]}"
    for module in _NEEDED_MODULES:
        if not tree.exists(f"{library}/{module}"):
            raise ImageError(
                f"The base image's Python has no /{library}/{module}: only part of the standard library is there. "
                f"On Debian and Ubuntu install python3, not python3-minimal; {_ADVICE}."
            )
    return Interpreter(path, version, _glibc(tree), tree.exists(CERTIFICATES))


def _find(tree: FileTree, search_path: str) -> tuple[str, str]:
    for directory in search_path.split(":"):
        path = f"{directory.rstrip('/')}/python3"
        resolved = tree.resolve(path)
        if resolved is not None:
            return path, resolved
    raise ImageError(f"The base image has no python3 on its PATH ({search_path}); {_ADVICE}.")


def _glibc(tree: FileTree) -> tuple[int, int]:
    for place in _LIBC_PLACES:
        content = tree.content(place)
        if content is None:
            continue
        if content[18:20] != _ELF_X86_64:
            raise ImageError(
                f"The base image's /{place} is not of an amd64 system; get the base image for linux/amd64."
            )
        match = _LIBC_VERSION.search(content)
        if match is not None:
            return int(match[1]), int(match[2])
    raise ImageError(
        f"The base image has no GNU C library for amd64 (looked at /{', /'.join(_LIBC_PLACES)}). "
        f"Alpine's musl is not supported; {_ADVICE}."
    )
