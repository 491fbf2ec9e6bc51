"""Putting a release together: a local clusterctl repository, whose files are also what is published."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from hack.controlplane import binaries
from hack.controlplane.errors import BinaryError
from hack.controlplane.paths import REPOSITORY
from hack.controlplane.programs import KUBECTL
from hack.image.archive import parse_reference
from hack.image.errors import ImageError
from hack.release.rules import findings

if TYPE_CHECKING:
    from collections.abc import Mapping

PROVIDER: Final = "infrastructure-oxide"
"""The provider's label, also its directory in a repository."""

COMPONENTS: Final = "infrastructure-components.yaml"
CONFIG: Final = REPOSITORY / "config"
IMAGE_IN_CONFIG: Final = "cluster-api-provider-oxide-controller:dev"
"""The image that config/ names; a release has its own in that place."""

_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.\d+(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_KUSTOMIZE_SECONDS: Final = 60


class ReleaseError(Exception):
    """The release cannot be put together. The message says why and what to do."""


@dataclass(frozen=True)
class Release:
    """A release on disk.

    Attributes:
        version: such as `v0.1.0`.
        directory: what is published: components, metadata, templates.
        configuration: a clusterctl.yaml that finds it.
    """

    version: str
    directory: Path
    configuration: Path

    @property
    def components(self) -> Path:
        """The components file."""
        return self.directory / COMPONENTS

    def provider_entry(self) -> dict[str, str]:
        """The entry in the list `providers` of a clusterctl.yaml."""
        return {"name": "oxide", "type": "InfrastructureProvider", "url": str(self.components)}


def assemble(output: Path, *, version: str, image: str, kubectl: Path) -> Release:
    """Write a release into `<output>/infrastructure-oxide/<version>`, in place of what is there.

    Args:
        output: root of the repository.
        version: such as `v0.1.0`.
        image: the manager's image, with a tag and, if wanted, a digest.
        kubectl: the program that renders config/default.

    Raises:
        ReleaseError: version or image is none, the version's series is not in metadata.yaml, or a rule is broken.
    """
    _check_version(version)
    _check_image(image)
    components = _with_image(render(CONFIG / "default", kubectl), image)
    wrong = findings([each for each in yaml.safe_load_all(components) if each])
    if wrong:
        raise ReleaseError("config/default cannot be released:\n  " + "\n  ".join(wrong))
    directory = output.absolute() / PROVIDER / version
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / COMPONENTS).write_text(components)
    published = [CONFIG / "metadata.yaml", *sorted((CONFIG / "templates").glob("cluster*.yaml"))]
    for path in published:
        shutil.copyfile(path, directory / path.name)
    release = Release(version, directory, output.absolute() / "clusterctl.yaml")
    release.configuration.write_text(json.dumps({"providers": [release.provider_entry()]}, indent=2) + "\n")
    return release


def render(directory: Path, kubectl: Path) -> str:
    """What `kubectl kustomize` makes of a directory.

    Raises:
        ReleaseError: kubectl failed; with its words.
    """
    command = [str(kubectl), "kustomize", str(directory)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_KUSTOMIZE_SECONDS)
    if answer.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} failed: {answer.stderr.strip()}")
    return answer.stdout


def find_kubectl(environ: Mapping[str, str] = os.environ) -> Path:
    """Find kubectl: the one of the control plane for tests when it is built, else the one on PATH.

    Raises:
        ReleaseError: there is neither.
    """
    try:
        return binaries.resolve(environ, programs=[KUBECTL]).path(KUBECTL)
    except BinaryError:
        found = shutil.which("kubectl", path=environ.get("PATH"))
    if found is None:
        raise ReleaseError(
            f"kubectl is needed and was not found. Put one on PATH, or build one: {binaries.BUILD_COMMAND}"
        )
    return Path(found)


def _check_version(version: str) -> None:
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ReleaseError(
            f"--version {version}: a semantic version with a v is expected, such as v0.1.0 or v0.2.0-rc.1"
        )
    series = {
        (each["major"], each["minor"])
        for each in yaml.safe_load((CONFIG / "metadata.yaml").read_text())["releaseSeries"]
    }
    if (int(match[1]), int(match[2])) not in series:
        raise ReleaseError(
            f"--version {version}: config/metadata.yaml has no series {match[1]}.{match[2]}, so clusterctl would "
            "refuse the release; add it there with its contract"
        )


def _check_image(image: str) -> None:
    reference, _, digest = image.partition("@")
    try:
        parse_reference(reference)
    except ImageError as error:
        raise ReleaseError(str(error).replace("--tag", "--image")) from None
    if "@" in image and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ReleaseError(f"--image {image}: behind @ a digest is expected, sha256: and 64 hexadecimal digits")


def _with_image(components: str, image: str) -> str:
    line = f"image: {IMAGE_IN_CONFIG}\n"
    if components.count(line) != 1:
        raise ReleaseError(f"config/default names the image {IMAGE_IN_CONFIG} {components.count(line)} times, not once")
    return components.replace(line, f"image: {image}\n")
