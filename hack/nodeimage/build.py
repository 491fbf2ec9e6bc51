"""Making node images, and skipping what is there already.

A finished image carries the key of all that went into it as a label. As long as the key of what would go in now is the
same, nothing is done; else Docker's own cache keeps the layers that have not changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane import binaries
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.programs import KUBEADM
from hack.nodeimage import debian
from hack.nodeimage.container_images import Archives
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.last_layer import BARE_SUFFIX, BASE_LABEL, KEY_LABEL, REPOSITORY_NAME, LastLayer
from hack.nodeimage.releases import ON_THE_MACHINE, OTHER_PROGRAMS, Release, container_images, pause_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hack.controlplane.programs import Program
    from hack.controlplane.progress import Reporter
    from hack.nodeimage.docker import Docker
    from hack.nodeimage.releases import ContainerImage

IMAGE_BUILDER: Final = REPOSITORY / "image-builder"
FOLDERS: Final = ("provision", "rack")
"""What of it goes into an image of the simulated rack."""
STAGE_LABEL: Final = "capox.node-image.stage"
"""On what the Dockerfile makes on its way and nobody else names."""
_KUBEADM_SECONDS: Final = 30
_IMAGE_SECONDS: Final = 60


@dataclass(frozen=True)
class Built:
    """A node image that is in the engine.

    Attributes:
        release: its Kubernetes.
        reference: its name with a tag.
        key: of all that went into it.
        size_bytes: its size.
        is_new: whether it, or its last layer, was made now.
        manager: the name of capox's own image in it.
    """

    release: Release
    reference: str
    key: str
    size_bytes: int
    is_new: bool
    manager: str


@dataclass(frozen=True)
class Recipe:
    """All that goes into one node image but its last layer.

    Attributes:
        release: its Kubernetes.
        base: reference of the image of Debian below it.
        base_id: what that reference stands for now.
        arguments: build arguments of the Dockerfile.
        archives: archives of container images.
        binaries: programs that are files of the image, by name.
    """

    release: Release
    base: str
    base_id: str | None
    arguments: Mapping[str, str]
    archives: tuple[Path, ...] = ()
    binaries: Mapping[str, Path] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The name, with a tag, of the image without its last layer."""
        return f"{REPOSITORY_NAME}{BARE_SUFFIX}:{self.release.tag}"

    def key(self, image_builder: Path) -> str:
        """Digest of all that determines the image.

        Args:
            image_builder: directory of the scripts.
        """
        digest = hashlib.sha256(json.dumps([self.base_id, sorted(self.arguments.items())]).encode())
        for folder in FOLDERS:
            for path in sorted((image_builder / folder).rglob("*")):
                if path.is_file():
                    digest.update(f"{path.relative_to(image_builder)} {path.stat().st_mode:o}\n".encode())
                    digest.update(path.read_bytes())
        for archive in sorted(self.archives):
            digest.update(f"{archive.name}\n".encode())
        for name, path in sorted(self.binaries.items()):
            status = path.stat()
            digest.update(f"{name} {path} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:12]

    def lay_out(self, image_builder: Path, context: Path) -> None:
        """Write the context of `docker build`."""
        for folder in FOLDERS:
            shutil.copytree(image_builder / folder, context / folder)
        for folder in ("images", "kubernetes"):
            (context / folder).mkdir()
        for archive in self.archives:
            _link(archive, context / "images" / archive.name)
        for name, path in self.binaries.items():
            _link(path, context / "kubernetes" / name)


class Workshop:
    """Makes node images.

    Args:
        docker: the engine.
        base: reference of an image of Debian; None makes one from packages.
        cache: directory of what can be made again.
        environ: environment variables.
        reporter: where progress goes.
    """

    def __init__(
        self, docker: Docker, *, base: str | None, cache: Path, environ: Mapping[str, str], reporter: Reporter
    ) -> None:
        self._docker = docker
        self._given_base = base
        self._cache = cache
        self._environ = environ
        self._reporter = reporter

    def make_from_modules(self, releases: Sequence[Release]) -> list[Built]:
        """Make the image of each release, each with the kube-proxy of all of them.

        Raises:
            NodeImageError: one cannot be made.
            ControlPlaneError: a program is missing and cannot be built.
        """
        # First, because it is refused in a moment where the programs take a quarter of an hour.
        base = self._base()
        paths = self._programs(releases)
        script = IMAGE_BUILDER / "rack" / "firewall.sh"
        title = "Taking the firewall tools out of their packages"
        firewall, firewall_id = debian.ensure_root(self._docker, base, script, self._cache, self._reporter, title=title)
        archives = Archives(self._cache / "containers", firewall, firewall_id)
        built = []
        for release in releases:
            wanted = images_of_kubeadm(paths[release.program(KUBEADM.name)], release.version)
            images = container_images(release, wanted, tuple(other for other in releases if other != release))
            recipe = Recipe(
                release,
                base,
                self._docker.image_id(base),
                {"PAUSE_IMAGE": pause_image(wanted), "KUBERNETES_VERSION": release.version},
                tuple(self._packed(images, paths, archives)),
                {program.name: paths[release.program(program.name)] for program in ON_THE_MACHINE},
            )
            built.append(self._ensure(recipe))
        return built

    def make_from_packages(self, release: Release, url: str) -> Built:
        """Make an image from Kubernetes' own packages, with the container images of its registry.

        Args:
            release: which one (`releases.packaged`).
            url: the Debian repository of its minor version.

        Raises:
            NodeImageError: it cannot be made.
        """
        base = self._base()
        arguments = {
            "KUBERNETES_VERSION": release.version,
            "KUBERNETES_PACKAGES_URL": url,
            "KUBERNETES_BINARIES": "",
            "CONTAINER_IMAGES": "pull",
        }
        return self._ensure(Recipe(release, base, self._docker.image_id(base), arguments))

    def _base(self) -> str:
        return self._given_base or debian.ensure_base(self._docker, self._environ, self._cache, self._reporter)

    def _programs(self, releases: Sequence[Release]) -> dict[Program, Path]:
        """Every program of the releases, built where it is nowhere."""
        paths: dict[Program, Path] = {}
        for programs in (*(release.programs for release in releases), OTHER_PROGRAMS):
            found = binaries.resolve(self._environ, programs=programs, reporter=self._reporter)
            paths |= {binary.program: binary.path for binary in found}
        return paths

    def _packed(
        self, images: Sequence[ContainerImage], paths: Mapping[Program, Path], archives: Archives
    ) -> list[Path]:
        """The archives of images, made where they are not there."""
        found = [archives.path_of(image, paths[image.program]) for image in images]
        missing = [image for image, path in zip(images, found, strict=True) if not path.exists()]
        if missing:
            with self._reporter.stage("Packing container images", expected_seconds=4.0 * len(missing)) as stage:
                for number, image in enumerate(missing):
                    stage.update(image.references[0], done=number, total=len(missing))
                    archives.ensure(image, paths[image.program])
        return found

    def _ensure(self, recipe: Recipe) -> Built:
        """The image of a recipe, from the engine or made now."""
        reference, key = recipe.reference, recipe.key(IMAGE_BUILDER)
        is_new = self._docker.label(reference, KEY_LABEL) != key
        if is_new:
            previous = self._docker.image_id(reference)
            title = f"Making the node image of Kubernetes {recipe.release.version}"
            self._cache.mkdir(parents=True, exist_ok=True)
            with (
                self._reporter.stage(title, expected_seconds=_IMAGE_SECONDS) as stage,
                tempfile.TemporaryDirectory(prefix=".context-", dir=self._cache) as context,
            ):
                recipe.lay_out(IMAGE_BUILDER, Path(context))
                arguments = ["--file", f"{context}/rack/Dockerfile", "--tag", reference]
                arguments += ["--label", f"{KEY_LABEL}={key}", "--label", f"{BASE_LABEL}={recipe.base}"]
                arguments += ["--build-arg", f"BASE={recipe.base}"]
                for name, value in recipe.arguments.items():
                    arguments += ["--build-arg", f"{name}={value}"]
                self._docker.build([*arguments, context], self._cache / f"{recipe.release.name}.log", stage)
            if previous is not None and previous != self._docker.image_id(reference):
                self._docker.remove_image(previous)
            self._docker.remove_old_stages(STAGE_LABEL)
        layer = LastLayer(self._docker, self._cache, self._reporter)
        manager = layer.manager(recipe.base)
        finished = layer.put(manager, recipe.release.tag)
        is_new = is_new or finished.is_new
        return Built(recipe.release, finished.reference, finished.key, finished.size_bytes, is_new, manager.reference)


def _link(source: Path, target: Path) -> None:
    """A second name for a file, or a copy where it lives on another file system."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def images_of_kubeadm(kubeadm: Path, version: str) -> list[str]:
    """The container images that kubeadm will ask for.

    Args:
        kubeadm: the program.
        version: which Kubernetes; named, so that kubeadm asks nobody for the newest.

    Raises:
        NodeImageError: kubeadm failed.
    """
    with tempfile.TemporaryDirectory() as home:
        answer = subprocess.run(
            [kubeadm, "config", "images", "list", "--kubernetes-version", version],
            env={"HOME": home, "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
            timeout=_KUBEADM_SECONDS,
        )
    if answer.returncode != 0:
        raise NodeImageError(f"{kubeadm} config images list failed: {answer.stderr.strip()}")
    return answer.stdout.split()
