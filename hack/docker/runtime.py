"""An OCI runtime for hosts whose root lacks a capability: it takes that out of every specification and runs runc.

`docker run --privileged` gives a container every capability there is, and runc fails when it cannot: "unable to apply
caps: operation not permitted". Some sandboxes keep CAP_SYS_RESOURCE from their root. Run as a program, this module is
such a runtime; it uses the standard library only, because it starts several times for every container.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["CAPABILITY", "has_capability", "specifications_of", "without_capability", "write_runtime"]

CAPABILITY: Final = "CAP_SYS_RESOURCE"
_CAPABILITY_BIT: Final = 24


def has_capability(status: str) -> bool:
    """Whether a process may have the capability.

    Args:
        status: the text of its `/proc/<pid>/status`.
    """
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapBnd":
            return bool(int(value.strip(), 16) >> _CAPABILITY_BIT & 1)
    return True


def specifications_of(arguments: list[str]) -> list[Path]:
    """The files with capabilities in them that runc is about to read, by its command line."""
    found = []
    for at, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not equals:
            value = arguments[at + 1] if at + 1 < len(arguments) else ""
        if option in {"--bundle", "-b"}:
            found.append(Path(value) / "config.json")
        elif option in {"--process", "-p"}:
            found.append(Path(value))
    return found


def without_capability(value: Any) -> Any:
    """The same JSON value without the capability, wherever a list has it."""
    match value:
        case dict():
            return {key: without_capability(member) for key, member in value.items()}
        case list():
            return [without_capability(member) for member in value if member != CAPABILITY]
        case _:
            return value


def write_runtime(path: Path, runc: Path) -> None:
    """Write the program that Docker is to use as its runtime.

    Args:
        path: where.
        runc: the runtime behind it.
    """
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(runc)]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


def main(arguments: list[str]) -> None:
    """Become runc, after the specifications have been rewritten."""
    runc, *rest = arguments
    for path in specifications_of(rest):
        if path.is_file():
            path.write_text(json.dumps(without_capability(json.loads(path.read_text()))))
    os.execv(runc, [runc, *rest])  # noqa: S606 -- to become it is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
