"""The last layer of a node image: capox's own image, which cloud controller managers run, in containerd's store.

It follows capox's sources, which change more often than anything else here, and is made again in seconds. `refreshed`
is for whoever is about to boot machines: node images that are there get the layer of this tree's sources.

A finished image never changes under its name, which has the key of what is in it: a rack that runs goes on booting what
it began with, whatever another tree makes meanwhile. The short name, for people, is the last one's that was made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.controlplane.paths import REPOSITORY
from hack.nodeimage import debian, manager_image, register
from hack.nodeimage.docker import Docker
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.releases import as_tag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hack.controlplane.progress import Reporter
    from hack.nodeimage.manager_image import ManagerImage
    from hack.nodeimage.register import RegisteredImage

FOLDER: Final = REPOSITORY / "image-builder" / "ccm"
IMPORT_SCRIPT: Final = REPOSITORY / "image-builder" / "provision" / "60-images.sh"
KEY_LABEL: Final = "capox.node-image.key"
"""What went into an image."""
BASE_LABEL: Final = "capox.node-image.base"
"""What an image stands on."""
MANAGER_LABEL: Final = "capox.node-image.manager"
"""The name of capox's own image in it."""
REPOSITORY_NAME: Final = "capox/node"
BARE_SUFFIX: Final = "-bare"
_IMAGE_SECONDS: Final = 15
_KEPT: Final = 4
"""How many images of a version stay: several trees may have racks that boot their own."""


@dataclass(frozen=True)
class Finished:
    """A node image with its last layer.

    Attributes:
        reference: its name with a tag.
        key: of all that went into it.
        size_bytes: its size.
        is_new: whether the layer was made now.
    """

    reference: str
    key: str
    size_bytes: int
    is_new: bool


class LastLayer:
    """Puts the layer onto node images.

    Args:
        docker: the engine.
        cache: directory of what can be made again.
        reporter: where progress goes.
    """

    def __init__(self, docker: Docker, cache: Path, reporter: Reporter) -> None:
        self._docker = docker
        self._cache = cache
        self._reporter = reporter

    def manager(self, base: str) -> ManagerImage:
        """The image of this tree's capox, with its archive.

        Args:
            base: reference of the image of Debian whose packages Python comes from.

        Raises:
            NodeImageError: Python cannot be taken out of its packages.
            ImageError: the image cannot be made.
        """
        script = FOLDER / manager_image.PYTHON_SCRIPT
        python, python_id = debian.ensure_root(
            self._docker, base, script, self._cache, self._reporter, title="Taking Python out of its packages"
        )
        image = manager_image.manager_image(python_id, self._cache)
        manager_image.ensure(image, python, self._reporter)
        return image

    def put(self, manager: ManagerImage, tag: str) -> Finished:
        """The node image of a version with the layer, from the engine or made now.

        Args:
            manager: what the layer holds.
            tag: the version as a tag, which is that of the image without the layer, too.

        Raises:
            NodeImageError: it cannot be made.
        """
        bare, short = f"{REPOSITORY_NAME}{BARE_SUFFIX}:{tag}", f"{REPOSITORY_NAME}:{tag}"
        parts = [self._docker.label(bare, KEY_LABEL) or "", manager.key, (FOLDER / "Dockerfile").read_text()]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
        reference = f"{short}-{key}"
        is_new = self._docker.label(reference, KEY_LABEL) != key
        if is_new:
            with (
                self._reporter.stage(f"Putting capox into {short}", expected_seconds=_IMAGE_SECONDS) as stage,
                tempfile.TemporaryDirectory(prefix=".context-", dir=self._cache) as temporary,
            ):
                context = Path(temporary)
                (context / "images").mkdir()
                shutil.copy(FOLDER / "Dockerfile", context)
                shutil.copy(IMPORT_SCRIPT, context)
                shutil.copy(manager.archive, context / "images")
                arguments = ["--tag", reference, "--build-arg", f"BARE={bare}"]
                arguments += ["--label", f"{KEY_LABEL}={key}", "--label", f"{MANAGER_LABEL}={manager.reference}"]
                self._docker.build([*arguments, temporary], self._cache / f"last-layer-{tag}.log", stage)
            for old in self._docker.references(f"{short}-*")[_KEPT:]:
                self._docker.remove_image(old)
        self._docker.name_too(reference, short)
        return Finished(reference, key, self._docker.size_bytes(reference), is_new)


def refreshed(docker_host: str, environ: Mapping[str, str], reporter: Reporter) -> list[RegisteredImage]:
    """The node images that the last `make node-image` has made, with capox as it is in this tree; none when none were.

    What cloud controller managers are to run is told by `register.manager` afterwards.

    Args:
        docker_host: the engine that has them.
        environ: environment variables.
        reporter: where progress goes.

    Raises:
        NodeImageError: the layer cannot be made; the message says what to do.
        ImageError: the image in it cannot be made.
    """
    docker = Docker(docker_host, environ)
    layer = LastLayer(docker, register.directory(environ), reporter)
    images: list[RegisteredImage] = []
    manager: ManagerImage | None = None
    for image in register.registered(environ):
        tag = as_tag(image.kubernetes)
        base = docker.label(f"{REPOSITORY_NAME}{BARE_SUFFIX}:{tag}", BASE_LABEL)
        if base is None or docker.image_id(base) is None:
            raise NodeImageError(
                f"The engine at {docker_host} has no image that {image.reference} could be made of again with capox as "
                "it is now. `make node-image` makes it; what was compiled is kept."
            )
        manager = manager or layer.manager(base)
        finished = layer.put(manager, tag)
        identity, size_bytes = register.identity(image.name, finished.key), register.rounded(finished.size_bytes)
        images.append(dataclasses.replace(image, id=identity, size_bytes=size_bytes, reference=finished.reference))
    if manager is not None:
        register.write(images, manager.reference, environ)
    return images
