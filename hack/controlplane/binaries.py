"""Where each program comes from.

In this order, program by program:

1. a path that is given: `CAPOX_BIN_KUBE_APISERVER=/path/kube-apiserver` and the like;
2. the directory `KUBEBUILDER_ASSETS`, for the three programs that it holds;
3. the cache of what was built before (`gobuild`);
4. `setup-envtest`, when it is on PATH and reaches its store, for the same three programs;
5. a build from Go modules.

A path that is given but cannot be used is an error, never a reason to look further: somebody meant it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane import gobuild
from hack.controlplane.errors import BinaryError, ToolchainError
from hack.controlplane.paths import TOOLS, cache_directory
from hack.controlplane.programs import ENVTEST_PROGRAMS, KUBE_APISERVER, PROGRAMS, Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hack.controlplane.progress import Reporter

_ENVTEST_SECONDS: Final = 300
"""Bound on `setup-envtest`, which downloads about 60 MB."""

BUILD_COMMAND: Final = "python -m hack.controlplane build"
"""The command that makes every program ready; named in messages."""


class Source(StrEnum):
    """How a program was found."""

    GIVEN = "given"
    ASSETS = "KUBEBUILDER_ASSETS"
    CACHE = "cache"
    ENVTEST = "setup-envtest"
    BUILT = "built"


@dataclass(frozen=True)
class Binary:
    """A program that is ready to run.

    Attributes:
        program: which one.
        path: absolute path of the file.
        source: how it was found.
    """

    program: Program
    path: Path
    source: Source


class Binaries:
    """Ready programs, by name."""

    def __init__(self, found: Iterable[Binary]) -> None:
        self._by_name = {binary.program.name: binary for binary in found}

    def __iter__(self) -> Iterator[Binary]:
        return iter(self._by_name.values())

    def path(self, program: Program) -> Path:
        """Path of a program.

        Raises:
            BinaryError: this set was resolved without it.
        """
        try:
            return self._by_name[program.name].path
        except KeyError:
            raise BinaryError(f"{program.name} was not resolved; ask for it when the set is made") from None


def resolve(
    environ: Mapping[str, str],
    *,
    programs: Iterable[Program] = PROGRAMS,
    reporter: Reporter | None = None,
    tools: Path = TOOLS,
) -> Binaries:
    """Find programs, building what is nowhere.

    Args:
        environ: environment variables; HOME, PATH, XDG_CACHE_HOME and those of the module's description are read.
        programs: which ones.
        reporter: where progress goes. None means that nothing may be downloaded or built: a test that
            would compile for half an hour behind captured output helps nobody.
        tools: directory of the tools modules.

    Raises:
        BinaryError: a given path is unusable, or a program is missing and `reporter` is None.
        ToolchainError: something must be built and Go is missing or too old.
        DiskSpaceError: something must be built and there is too little room.
        BuildError: a build failed.
    """
    wanted = list(programs)
    found = {program.name: binary for program in wanted if (binary := _given(program, environ))}
    missing = [program for program in wanted if program.name not in found]
    if missing:
        found |= _from_cache_or_build(missing, environ, reporter, tools)
    return Binaries(found[program.name] for program in wanted)


def _given(program: Program, environ: Mapping[str, str]) -> Binary | None:
    value = environ.get(program.environment_variable)
    if value:
        path = Path(value).absolute()
        if not _is_executable(path):
            raise BinaryError(
                f"{program.environment_variable}={value}: no executable file is there. Give the path of a "
                f"{program.name} binary, or unset the variable.",
            )
        return Binary(program, path, Source.GIVEN)
    assets = environ.get("KUBEBUILDER_ASSETS")
    if not assets or not _is_of_envtest(program):
        return None
    path = Path(assets).absolute() / program.name
    if not _is_executable(path):
        raise BinaryError(
            f"KUBEBUILDER_ASSETS={assets}: there is no executable {program.name}. The directory must hold "
            f"{', '.join(sorted(ENVTEST_PROGRAMS))}; correct the variable or unset it.",
        )
    return Binary(program, path, Source.ASSETS)


def _is_of_envtest(program: Program) -> bool:
    """Whether others distribute it, at the version that is wanted."""
    return program.name in ENVTEST_PROGRAMS and not program.is_variant


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _from_cache_or_build(
    missing: list[Program],
    environ: Mapping[str, str],
    reporter: Reporter | None,
    tools: Path,
) -> dict[str, Binary]:
    cache = cache_directory(environ)
    found: dict[str, Binary] = {}
    try:
        go = gobuild.find_go(environ, tools)
        no_go = None
    except ToolchainError as error:
        go, no_go = None, error
    for program in missing:
        path = gobuild.cached(program, cache, go, tools)
        if path is not None:
            found[program.name] = Binary(program, path, Source.CACHE)
        elif _is_of_envtest(program) and (installed := _installed_by_envtest(program, cache)):
            found[program.name] = Binary(program, installed, Source.ENVTEST)
    rest = [program for program in missing if program.name not in found]
    if rest and reporter is None:
        names = ", ".join(program.name for program in rest)
        raise BinaryError(
            f"Not built yet: {names}. Run `{BUILD_COMMAND}` (it shows its progress), or `make test`, which does."
        )
    if reporter is not None:
        found |= _from_envtest([program for program in rest if _is_of_envtest(program)], environ, cache, reporter)
        for program in rest:
            if program.name in found:
                continue
            if go is None:
                raise no_go or ToolchainError("Go is missing")
            builder = gobuild.Builder(go, cache=cache, reporter=reporter, environ=environ, tools=tools)
            found[program.name] = Binary(program, builder.build(program), Source.BUILT)
    return found


def _installed_by_envtest(program: Program, cache: Path) -> Path | None:
    """What an earlier `setup-envtest` left in our cache, the newest first."""
    found = [
        path
        for path in (cache / "envtest" / "k8s").glob(f"{_kubernetes_minor()}.*/{program.name}")
        if _is_executable(path)
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _kubernetes_minor() -> str:
    """Such as `1.36`."""
    return ".".join(KUBE_APISERVER.version.removeprefix("v").split(".")[:2])


def _from_envtest(
    wanted: list[Program],
    environ: Mapping[str, str],
    cache: Path,
    reporter: Reporter,
) -> dict[str, Binary]:
    """Programs from `setup-envtest`. Empty when it is not installed or cannot reach its store: then they are built."""
    executable = shutil.which("setup-envtest", path=environ.get("PATH", ""))
    if executable is None or not wanted:
        return {}
    minor = _kubernetes_minor()
    command = [executable, "use", f"{minor}.x", "-p", "path", "--bin-dir", str(cache / "envtest")]
    with reporter.stage(f"Asking setup-envtest for Kubernetes {minor}"):
        try:
            answer = subprocess.run(
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_ENVTEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            reporter.say(f"setup-envtest gave no answer in {_ENVTEST_SECONDS} s; building instead")
            return {}
    directory = Path(answer.stdout.strip() or "/nonexistent")
    if answer.returncode != 0 or not all(_is_executable(directory / program.name) for program in wanted):
        last_line = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        reporter.say(f"setup-envtest has no Kubernetes {minor} for us ({last_line}); building instead")
        return {}
    return {program.name: Binary(program, directory / program.name, Source.ENVTEST) for program in wanted}
