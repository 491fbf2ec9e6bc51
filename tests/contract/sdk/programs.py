"""The Rust programs: building them with cargo, and running them step by step."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGES = ("life", "newer")
CARGO_MINIMUM = (1, 88)
BUILD_SECONDS = 3600
RUN_SECONDS = 600

ANY_REGISTRY = "the registry"

# What a program says when it has come to its end, so that one that died in the middle is not taken for a success.
END = "The end"


class BuildError(Exception):
    """The programs cannot be built; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a program's steps went."""

    passed: int
    failed: int


def build() -> dict[str, Path]:
    """Build both programs and return where they are, by package.

    What cargo makes is kept under the user's cache directory, by what determines it: the lock files and the compiler.
    Cargo tells its progress on standard error.

    Raises:
        BuildError: cargo is missing or too old, or the build fails.
    """
    cargo = _cargo()
    target = _cache_folder(cargo)
    target.mkdir(parents=True, exist_ok=True)
    _say(f"Building {' and '.join(PACKAGES)} in {target} (some minutes when nothing is there yet)")
    for package in PACKAGES:
        manifest = _prepare(package, target, cargo)
        command = [cargo, "build", "--locked", "--manifest-path", str(manifest), "--target-dir", str(target)]
        started = time.monotonic()
        code = subprocess.run(command, check=False, timeout=BUILD_SECONDS).returncode
        if code != 0:
            raise BuildError(f"cargo could not build {manifest}; it said why above")
        _say(f"Built {package} after {time.monotonic() - started:.0f} s")
    return {package: target / "debug" / f"sdk-{package}" for package in PACKAGES}


def _prepare(package: str, target: Path, cargo: str) -> Path:
    """Put a package beside what is built of it, with a lock file that cargo reads; gives its manifest.

    The lock file in this tree pins versions and checksums, and leaves out where packages come from: that is cargo's own
    configuration, and cargo is asked.
    """
    source = target / "source" / package
    shutil.copytree(FOLDER / package, source, dirs_exist_ok=True)
    manifest = source / "Cargo.toml"
    command = [cargo, "metadata", "--no-deps", "--format-version", "1", "--manifest-path", str(manifest)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    registry = next(dependency["source"] for dependency in told["packages"][0]["dependencies"])
    lock = (FOLDER / package / "Cargo.lock.in").read_text()
    (source / "Cargo.lock").write_text(lock.replace(f'source = "{ANY_REGISTRY}"', f'source = "{registry}"'))
    return manifest


def run(program: Path, environment: Mapping[str, str]) -> Result:
    """Run a program, show every line as it comes, and count the steps.

    Args:
        program: its path.
        environment: variables beside those that every program needs; tokens come this way and no other.
    """
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | dict(environment)
    process = subprocess.Popen([program], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    timer = threading.Timer(RUN_SECONDS, process.kill)
    timer.start()
    passed = failed = 0
    last = ""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            _say(line.rstrip())
            passed += line.startswith("ok ")
            failed += line.startswith("FAILED ")
            last = line.strip()
    code = process.wait()
    timer.cancel()
    if last != END or (code != 0) != (failed > 0):
        _say(f"FAILED  {program.name}: it ended with code {code} after {passed} steps, which is not as it should end")
        failed += 1
    return Result(passed, failed)


def _cargo() -> str:
    cargo = shutil.which("cargo")
    wanted = ".".join(map(str, CARGO_MINIMUM))
    remedy = "install a current one (Debian 12: apt-get install cargo-web; elsewhere the distribution's cargo)"
    if cargo is None:
        raise BuildError(f"cargo {wanted} or newer is needed and was not found on PATH; {remedy}")
    said = subprocess.run([cargo, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < CARGO_MINIMUM:
        raise BuildError(f"cargo {wanted} or newer is needed, and {cargo} says {said.strip()!r}; {remedy}")
    return cargo


def _cache_folder(cargo: str) -> Path:
    digest = hashlib.sha256(subprocess.run([cargo, "--version"], check=True, capture_output=True).stdout)
    for package in PACKAGES:
        digest.update((FOLDER / package / "Cargo.lock.in").read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "capox" / "sdk" / digest.hexdigest()[:16]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
