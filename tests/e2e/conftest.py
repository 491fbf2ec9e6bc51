"""A Docker engine, an image, and a rack with guests; everything here is skipped where there is no engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.progress import reporter_for
from hack.docker.engine import Engine, answering_host
from hack.nodeimage.last_layer import refreshed
from hack.nodeimage.register import RegisteredImage
from tests.e2e import small_image
from tests.e2e.lab import Lab
from tests.e2e.situations import VARIABLE, Situations

# Whoever asks for one of these boots node images, which takes long to make and minutes to use.
_OF_NODE_IMAGES = frozenset({"images", "machines", "node_images"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what boots node images, so that `-m "not machines"` leaves it out."""
    for item in items:
        if _OF_NODE_IMAGES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.machines)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note that a test has failed where CI asks for it, which may interrupt us before we can answer."""
    if report.failed and "E2E_FAILED" in os.environ:
        Path(os.environ["E2E_FAILED"]).touch()


@pytest.fixture(scope="session")
def docker_host() -> str:
    """An engine of this computer that answers."""
    own = {**os.environ, "DOCKER_HOST": Engine(os.environ).host}
    found = answering_host(os.environ) or answering_host(own)
    if found is None:
        pytest.skip("no Docker engine of this computer answers; `make e2e` starts one where it runs as root")
    return found


@pytest.fixture(scope="session")
def node_images(docker_host: str) -> list[RegisteredImage]:
    """The node images that were made, the earlier version first, with capox as it is in this tree.

    They themselves are not made here, because that takes long and shows how far it is.
    """
    images = refreshed(docker_host, os.environ, reporter_for())
    if not images:
        pytest.skip("a node image is needed; `make node-image` makes it")
    return images


@pytest.fixture(scope="session")
def image(docker_host: str) -> str:
    """A guest image that boots in a moment."""
    missing = small_image.missing_programs()
    if missing:
        programs = ", ".join(missing)
        pytest.skip(f"the small guest image is made of this computer's {programs}; tests/e2e/packages.txt says of what")
    return small_image.make(docker_host)


@pytest.fixture
def situations(tmp_path: Path) -> Situations:
    """Where what users see is kept: in the folder that `make e2e-full SITUATIONS=folder` names, else nowhere."""
    return Situations(Path(os.environ.get(VARIABLE) or tmp_path / "situations"))


@pytest.fixture
def lab(docker_host: str, image: str, tmp_path: Path) -> Iterator[Lab]:
    """A rack with guests and with firewall rules that let the tests' traffic in."""
    with Lab(tmp_path, docker_host, image) as made:
        yield made
