"""Programs from Go modules: find Go, download what a program imports, compile it into the cache.

A cache entry is one directory that holds one program and a note on how it was made. Its name says all that determines
the result: version, a digest of the tools module, package and linker flags, and the Go that compiles
(`Go.fingerprint`). An entry appears by one rename, so a build that is interrupted leaves nothing half made, and the
programs finished before it stay. Builders of one user take turns, program by program: two compilations at once would
only share the processors.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane.errors import BuildError, DiskSpaceError, ToolchainError
from hack.controlplane.paths import TOOLS
from hack.controlplane.progress import format_seconds
from hack.controlplane.trimmed import Main, trimmed_main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hack.controlplane.programs import Program
    from hack.controlplane.progress import Reporter

BUILD_FLAGS: Final = ("-buildvcs=false", "-trimpath", "-mod=readonly")
"""In GOFLAGS, so that flags of the user's own do not change the result. With `-trimpath` every checkout shares Go's
build cache."""

_TAIL_LINES: Final = 15
_PACKAGE: Final = re.compile(r"[\w./~-]+")
"""A line of `go build -v`: the import path of a package that is being compiled."""
_GO_CACHE_MB: Final = 4300
"""What a cold build leaves in Go's build cache, in MB (measured)."""
_GO_MODULES_MB: Final = 1200
"""What the modules take on disk, unpacked and as archives, in MB (measured)."""


@dataclass(frozen=True)
class Go:
    """A Go toolchain that can build the tools modules.

    Attributes:
        executable: path of the `go` command.
        version: such as `go1.26.8`.
        fingerprint: everything of the toolchain that determines a binary, fit for a file name.
        build_cache: GOCACHE.
        module_cache: GOMODCACHE.
    """

    executable: str
    version: str
    fingerprint: str
    build_cache: Path
    module_cache: Path


def go_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `go` is run: the user's own, but nothing in it that would change what is built."""
    return {**environ, "GOFLAGS": " ".join(BUILD_FLAGS), "CGO_ENABLED": "0", "GOWORK": "off"}


def find_go(environ: Mapping[str, str], tools: Path = TOOLS) -> Go:
    """The Go on PATH.

    GOTOOLCHAIN stays as the user has it: with Go's own default, an older Go fetches the one that the go.mod asks for.

    Raises:
        ToolchainError: there is none, or it is older than the tools modules ask for.
    """
    needed = _go_line(tools / "kubernetes" / "go.mod")
    remedy = (
        f"Install Go {needed} or newer and put it on PATH, or give ready binaries: a KUBEBUILDER_ASSETS directory or "
        "CAPOX_BIN_KUBE_APISERVER=/path and the like (docs/how-to/use-the-control-plane.md)."
    )
    executable = shutil.which("go", path=environ.get("PATH", ""))
    if executable is None:
        raise ToolchainError(
            f"Go is missing: there is no `go` on PATH, and the control plane is built with it. {remedy}"
        )
    names = ("GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOCACHE", "GOMODCACHE")
    answer = subprocess.run(
        [executable, "env", "-json", *names],
        cwd=tools / "kubernetes",
        env=go_environment(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise ToolchainError(f"`{executable} env` failed: {answer.stderr.strip()}. {remedy}")
    values: dict[str, str] = json.loads(answer.stdout)
    version = values["GOVERSION"].split()[0]
    if _version_key(version) < _version_key(needed):
        raise ToolchainError(f"Go is too old: {executable} is {version}, the control plane needs {needed}. {remedy}")
    level = values.get("GOAMD64") if values["GOARCH"] == "amd64" else values.get("GOARM64")
    parts = (version, values["GOOS"], values["GOARCH"], level or "", values.get("GOEXPERIMENT") or "")
    return Go(
        executable=executable,
        version=version,
        fingerprint=re.sub(r"[^A-Za-z0-9.-]", "_", "-".join(part for part in parts if part)),
        build_cache=Path(values["GOCACHE"]),
        module_cache=Path(values["GOMODCACHE"]),
    )


def _go_line(go_mod: Path) -> str:
    found = re.search(r"^go (\S+)$", go_mod.read_text(), re.MULTILINE)
    if not found:
        raise LookupError(f"{go_mod} has no go line")
    return found[1]


def _version_key(version: str) -> tuple[int, ...]:
    """Numbers of a Go version, to compare; a release candidate has no third number and comes before its release."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"rc|beta|-", version.removeprefix("go"))[0]))


def pin(program: Program, tools: Path = TOOLS) -> str:
    """Digest of all that determines a program but the toolchain: tools module, package, flags. Twelve hex digits."""
    digest = hashlib.sha256()
    for part in (
        (tools / program.tools / "go.mod").read_bytes(),
        (tools / program.tools / "go.sum").read_bytes(),
        program.package.encode(),
        program.linker_flags.encode(),
        " ".join(BUILD_FLAGS).encode(),
        *(package.encode() for package in program.left_out),
        *(path.read_bytes() for path in sorted((tools / program.tools).glob("*.go"))),
    ):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:12]


def cached(program: Program, cache: Path, go: Go | None, tools: Path = TOOLS) -> Path | None:
    """The program in the cache, or None.

    Args:
        program: what is looked for.
        cache: the cache directory (`paths.cache_directory`).
        go: the toolchain that would build it; None accepts what any toolchain made, so that a machine that has lost its
            Go can still run what it built.
        tools: directory of the tools modules.
    """
    if go is not None:
        path = _entry(program, cache, go, tools) / program.name
        return path if path.is_file() else None
    pattern = f"{program.version}-{pin(program, tools)}-*/{program.name}"
    found = sorted((cache / "bin" / program.name).glob(pattern), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def _entry(program: Program, cache: Path, go: Go, tools: Path) -> Path:
    return cache / "bin" / program.name / f"{program.version}-{pin(program, tools)}-{go.fingerprint}"


class Builder:
    """Builds programs into the cache.

    Args:
        go: the toolchain.
        cache: the cache directory.
        reporter: where progress goes.
        environ: the user's environment.
        tools: directory of the tools modules.
    """

    def __init__(
        self, go: Go, *, cache: Path, reporter: Reporter, environ: Mapping[str, str], tools: Path = TOOLS
    ) -> None:
        self._go = go
        self._cache = cache
        self._reporter = reporter
        self._environ = environ
        self._tools = tools

    def build(self, program: Program) -> Path:
        """Build a program, or return it when somebody else has built it meanwhile.

        Raises:
            BuildError: a module could not be downloaded, or the compiler failed.
            DiskSpaceError: there is too little room.
        """
        entry = _entry(program, self._cache, self._go, self._tools)
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _turn(self._cache / "build.lock", self._reporter, program.name):
            present = cached(program, self._cache, self._go, self._tools)
            if present is not None:
                return present
            check_disk_space(program, self._cache, self._go, self._reporter)
            scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
            try:
                note = self._compile(program, scratch / program.name)
                shutil.rmtree(scratch / "main", ignore_errors=True)
                (scratch / "build.json").write_text(json.dumps(note, indent=2) + "\n")
                # Left without its program by somebody who tidied up; rename does not replace a directory with content.
                shutil.rmtree(entry, ignore_errors=True)
                scratch.rename(entry)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return entry / program.name

    def _download(self, program: Program, main: Main) -> int:
        """Fetch the modules that a program imports. Returns the number of packages that it is made of."""
        with self._reporter.stage(f"Downloading modules of {program.name} {program.version}") as stage:
            modules = 0

            def seen(line: str) -> None:
                nonlocal modules
                if line.startswith("go: downloading "):
                    modules += 1
                    stage.update(f"{modules} modules, {line.removeprefix('go: downloading ')}")

            code, tail, output = self._go_command(
                ["list", "-deps", "-f", "{{.ImportPath}}", main.package], main, seen, stage.tick
            )
            if code != 0:
                raise BuildError(
                    f"Downloading the modules of {program.name} {program.version} failed (exit {code}):\n{tail}\n"
                    "Go fetches them through GOPROXY. Check the network and `go env GOPROXY`, then run the same "
                    "command again: what has been downloaded is kept.",
                )
        return len(output.split())

    def _compile(self, program: Program, target: Path) -> dict[str, object]:
        """Fetch, compile and link. Returns the note that is kept beside the program."""
        main = self._main(program, target.parent / "main")
        packages = self._download(program, main)
        title = f"Building {program.name} {program.version}"
        expected = program.cpu_seconds / min(os.cpu_count() or 1, 8)
        began, cpu_before = time.monotonic(), _children_cpu_seconds()
        with self._reporter.stage(title, expected_seconds=expected) as stage:
            compiled = 0

            def seen(line: str) -> None:
                nonlocal compiled
                if _PACKAGE.fullmatch(line):
                    compiled += 1
                    stage.update(line, done=min(compiled, packages), total=packages)

            code, tail, _ = self._go_command(
                ["build", "-v", "-ldflags", program.linker_flags, "-o", str(target), main.package],
                main,
                seen,
                stage.tick,
            )
            if code != 0:
                hint = " The linker needs about 2 GB of memory; was it killed?" if "signal: killed" in tail else ""
                raise BuildError(f"{title} failed (exit {code}).{hint}\n{tail}")
        wall, cpu = time.monotonic() - began, _children_cpu_seconds() - cpu_before
        size_mb = target.stat().st_size // 1_000_000
        self._reporter.say(f"  {compiled} packages compiled, {format_seconds(cpu)} of CPU time, {size_mb} MB")
        return {
            "program": program.name,
            "package": program.package,
            "version": program.version,
            "go": self._go.version,
            "packages_compiled": compiled,
            "wall_seconds": round(wall, 1),
            "cpu_seconds": round(cpu, 1),
        }

    def _main(self, program: Program, scratch: Path) -> Main:
        """Where and under which name the main package is compiled."""
        tools_module = self._tools / program.tools
        if not program.left_out:
            return Main(tools_module, program.package)
        sources = module_directory(program.module, self._go, self._environ, tools_module)
        return trimmed_main(program, sources, tools_module, scratch)

    def _go_command(
        self, arguments: list[str], main: Main, seen: Callable[[str], None], tick: Callable[[], None]
    ) -> tuple[int, str, str]:
        """Run `go` where a main package is compiled; see `_run`."""
        return _run([self._go.executable, *arguments], main.directory, self._environ, seen=seen, tick=tick)


@contextlib.contextmanager
def _turn(lock: Path, reporter: Reporter, what: str) -> Iterator[None]:
    """Hold the lock that makes builders take turns. The kernel frees it when its holder dies."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            with reporter.stage(f"Waiting to build {what}: process {holder} is building") as stage:
                _wait_for_lock(file.fileno(), stage.tick)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wait_for_lock(descriptor: int, tick: Callable[[], None]) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tick()
            time.sleep(0.5)
        else:
            return


def check_disk_space(program: Program, cache: Path, go: Go, reporter: Reporter) -> None:
    """Refuse a build that would run out of disk after many minutes.

    Raises:
        DiskSpaceError: names the file system, what it has and what is needed.
    """
    is_cold = not (go.build_cache.is_dir() and any(go.build_cache.iterdir()))
    # The linker writes the program twice: once with its debugging data to the temporary directory, once to its place.
    needs = {
        cache: program.size_mb,
        Path(tempfile.gettempdir()): 4 * program.size_mb,
        go.build_cache: _GO_CACHE_MB if is_cold else program.size_mb,
        go.module_cache: 0 if go.module_cache.is_dir() else _GO_MODULES_MB,
    }
    by_device: dict[int, tuple[Path, int]] = {}
    for path, megabytes in needs.items():
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        device = existing.stat().st_dev
        by_device[device] = (
            by_device.get(device, (existing, 0))[0],
            by_device.get(device, (existing, 0))[1] + megabytes,
        )
    for path, megabytes in by_device.values():
        free = shutil.disk_usage(path).free // 1_000_000
        if free < megabytes:
            raise DiskSpaceError(
                f"Too little disk space to build {program.name}: the file system of {path} has {free} MB free, about "
                f"{megabytes} MB are needed. Make room, or move caches with XDG_CACHE_HOME, GOCACHE and GOMODCACHE.",
            )
        if free < 2 * megabytes:
            reporter.say(f"Note: the file system of {path} has {free} MB free, the build needs about {megabytes} MB")


def _children_cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _run(
    command: list[str],
    directory: Path,
    environ: Mapping[str, str],
    *,
    seen: Callable[[str], None],
    tick: Callable[[], None],
) -> tuple[int, str, str]:
    """Run `go`, hand each line of its standard error to `seen`, call `tick` about every second.

    Standard output goes to a file: read only at the end, it can neither fill a pipe nor stop the command.

    Returns:
        exit code, last lines of standard error, standard output.
    """
    lines: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command,
            cwd=directory,
            env=go_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        try:
            assert process.stderr is not None
            selector.register(process.stderr, selectors.EVENT_READ)
            rest = b""
            while True:
                if selector.select(timeout=1.0):
                    chunk = os.read(process.stderr.fileno(), 65536)
                    *complete, rest = (rest + chunk).split(b"\n")
                    for raw in complete if chunk else [*complete, rest]:
                        line = raw.decode(errors="replace").rstrip()
                        if line:
                            lines.append(line)
                            seen(line)
                    if not chunk:
                        break
                tick()
            code = process.wait()
        except BaseException:
            # An interrupted `go` stops its compilers and removes its temporary files; a killed one does not.
            process.send_signal(signal.SIGINT)
            raise
        output.seek(0)
        return code, "\n".join(lines[-_TAIL_LINES:]), output.read()


def module_directory(module: str, go: Go, environ: Mapping[str, str], tools_module: Path) -> Path:
    """Directory of a module's sources in the module cache, downloaded when it is not there.

    Args:
        module: module path; its version is the pinned one.
        go: the toolchain.
        environ: the user's environment.
        tools_module: directory of the tools module that pins it.

    Raises:
        BuildError: it could not be downloaded.
    """
    answer = subprocess.run(
        [go.executable, "mod", "download", "-json", module],
        cwd=tools_module,
        env=go_environment(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise BuildError(f"Downloading {module} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return Path(json.loads(answer.stdout)["Dir"])
