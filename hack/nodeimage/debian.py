"""The floor of the node image: Debian from the distribution's packages, and small root file systems out of them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.distribution import PackageError, install_packages
from hack.nodeimage.errors import NodeImageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hack.controlplane.progress import Reporter
    from hack.nodeimage.docker import Docker

SUITE: Final = "bookworm"
OS: Final = "debian"
OS_VERSION: Final = "12"
BASE_IMAGE: Final = f"capox/debian:{OS_VERSION}"
MIRROR_VARIABLE: Final = "DEBIAN_MIRROR"


def ensure_base(docker: Docker, environ: Mapping[str, str], cache: Path, reporter: Reporter) -> str:
    """The Debian image, from the engine or made now by debootstrap.

    Returns:
        Its reference.

    Raises:
        NodeImageError: it cannot be made.
    """
    if docker.image_id(BASE_IMAGE) is not None:
        return BASE_IMAGE
    if is_debootstrap_missing(docker, environ):
        with reporter.stage("Installing debootstrap from the distribution's packages", expected_seconds=10):
            _install_debootstrap()
    cache.mkdir(parents=True, exist_ok=True)
    with (
        reporter.stage(f"Making Debian {OS_VERSION} by debootstrap", expected_seconds=40) as stage,
        tempfile.TemporaryDirectory(prefix=".debian-", dir=cache) as temporary,
    ):
        root = Path(temporary) / "root"
        command = ["debootstrap", "--variant=minbase", SUITE, str(root)]
        command += [mirror] if (mirror := environ.get(MIRROR_VARIABLE) or mirror_of_this_computer()) else []
        log = cache / "debootstrap.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**environ, "PATH": _search_path(environ)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            while process.poll() is None:
                stage.tick()
                try:
                    process.wait(1)
                except subprocess.TimeoutExpired:
                    lines = log.read_text(errors="replace").splitlines()
                    stage.update(lines[-1].removeprefix("I: ") if lines else "starting")
        if process.returncode != 0:
            raise NodeImageError(f"debootstrap failed (exit {process.returncode}); see {log}")
        for package in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
            package.unlink()
        docker.import_tree(root, BASE_IMAGE)
    return BASE_IMAGE


def is_debootstrap_missing(docker: Docker, environ: Mapping[str, str]) -> bool:
    """Whether `ensure_base` would install debootstrap first. It costs nothing to ask.

    Raises:
        NodeImageError: it could not make the image at all.
    """
    if docker.image_id(BASE_IMAGE) is not None:
        return False
    if os.geteuid() != 0:
        raise NodeImageError(
            f"debootstrap needs root. Run as root, or name an image of Debian {OS_VERSION} that the engine has or its "
            f"registry: make node-image ARGS='--base debian:{OS_VERSION}'"
        )
    return shutil.which("debootstrap", path=_search_path(environ)) is None


def _install_debootstrap() -> None:
    try:
        install_packages("debootstrap")
    except PackageError as error:
        raise NodeImageError(f"{error}\nOr name an image of Debian {OS_VERSION} with --base") from error


def _search_path(environ: Mapping[str, str]) -> str:
    """PATH with the places of programs for root, which users do not have in theirs."""
    return f"{environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def mirror_of_this_computer(etc: Path = Path("/etc")) -> str | None:
    """The mirror that this computer's own packages come from; None when it is no Debian, or does not say.

    Args:
        etc: directory of the configuration.
    """
    try:
        release = (etc / "os-release").read_text()
    except OSError:
        return None
    if not re.search(r'^ID="?debian"?$', release, re.MULTILINE):
        return None
    apt = etc / "apt"
    for path in (*sorted((apt / "sources.list.d").glob("*.sources")), apt / "sources.list"):
        if path.is_file() and (mirror := parse_mirror(path.read_text())):
            return mirror
    return None


def parse_mirror(text: str) -> str | None:
    """The first mirror of the main archive in a list of package sources, of either format."""
    found = re.search(r"^URIs:\s*(\S+/debian)/?\s*$", text, re.MULTILINE)
    found = found or re.search(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+/debian)/?\s", text, re.MULTILINE)
    return found[1] if found else None


def ensure_root(
    docker: Docker, base: str, script: Path, cache: Path, reporter: Reporter, *, title: str
) -> tuple[Path, str]:
    """A root file system with a few of the distribution's programs, from the cache or made now.

    Args:
        docker: the engine.
        base: reference of the Debian image.
        script: takes the programs out of their packages into the directory that it is given; names the result.
        cache: where it is kept.
        reporter: where progress goes.
        title: what is done, for people.

    Returns:
        The tar and what identifies it.

    Raises:
        NodeImageError: it cannot be made.
    """
    name = script.stem
    key = hashlib.sha256(f"{docker.image_id(base)}\n{script.read_text()}".encode()).hexdigest()[:12]
    path = cache / f"{name}-{key}.tar"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (
            reporter.stage(title, expected_seconds=20) as stage,
            tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as context,
        ):
            shutil.copy(script, context)
            lines = [f"FROM {base}", f"COPY {script.name} /", f"RUN /{script.name} /{name}"]
            (Path(context) / "Dockerfile").write_text("\n".join(lines) + "\n")
            docker.build(["--tag", f"capox/{name}:{key}", context], cache / f"{name}.log", stage)
            docker.export(f"capox/{name}:{key}", f"/{name}", path)
    return path, key
