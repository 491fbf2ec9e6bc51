"""A release holds what clusterctl looks for, and nothing that it would stumble over is released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.release.__main__ import main
from hack.release.assemble import CONFIG, ReleaseError, assemble, find_kubectl
from tests.contract.kustomization import build

IMAGE = "registry.example.com:5000/cluster-api-provider-oxide-controller:v0.1.0"


def kubectl_that_prints(directory: Path, objects: list[dict[str, Any]]) -> Path:
    """A kubectl whose kustomize makes these objects."""
    (directory / "rendered.yaml").write_text(yaml.safe_dump_all(objects))
    script = directory / "kubectl"
    script.write_text(f'#!/bin/sh\n[ "$1" = kustomize ] && exec cat {directory}/rendered.yaml\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """A kubectl that renders config/default."""
    return kubectl_that_prints(tmp_path, build(CONFIG / "default"))


@pytest.mark.parametrize("image", [IMAGE, f"{IMAGE}@sha256:{'a' * 64}"])
def test_a_release_is_a_repository_of_clusterctl(tmp_path: Path, kubectl: Path, image: str) -> None:
    """Components with the image that was named, metadata and templates, in a directory named after the version."""
    release = assemble(tmp_path / "out", version="v0.1.0", image=image, kubectl=kubectl)

    directory = tmp_path / "out" / "infrastructure-oxide" / "v0.1.0"
    templates = ["cluster-template-ha.yaml", "cluster-template.yaml"]
    names = [*templates, "infrastructure-components.yaml", "metadata.yaml"]
    assert sorted(path.name for path in directory.iterdir()) == names
    images = [
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in yaml.safe_load_all(release.components.read_text())
        if each["kind"] == "Deployment"
    ]
    assert images == [image]
    assert json.loads(release.configuration.read_text()) == {
        "providers": [
            {
                "name": "oxide",
                "type": "InfrastructureProvider",
                "url": str(directory / "infrastructure-components.yaml"),
            }
        ]
    }


def test_a_release_replaces_an_earlier_one_of_its_version(tmp_path: Path, kubectl: Path) -> None:
    """What is not part of it any more does not stay behind."""
    first = assemble(tmp_path / "out", version="v0.1.0", image=IMAGE, kubectl=kubectl)
    (first.directory / "cluster-template-old.yaml").write_text("")

    second = assemble(tmp_path / "out", version="v0.1.0", image=IMAGE, kubectl=kubectl)

    assert not (second.directory / "cluster-template-old.yaml").exists()


@pytest.mark.parametrize(
    ("version", "image", "words"),
    [
        ("0.1.0", IMAGE, "--version 0.1.0: a semantic version with a v"),
        ("v0.1", IMAGE, "such as v0.1.0"),
        ("v9.0.0", IMAGE, "has no series 9.0"),
        ("v0.1.0", "registry.example.com/name", "--image registry.example.com/name: a name"),
        ("v0.1.0", f"{IMAGE}@sha256:abc", "behind @ a digest"),
    ],
)
def test_a_version_or_image_that_would_not_install(
    tmp_path: Path, kubectl: Path, version: str, image: str, words: str
) -> None:
    """It is refused before anything is written, with what is expected."""
    with pytest.raises(ReleaseError) as failure:
        assemble(tmp_path / "out", version=version, image=image, kubectl=kubectl)

    assert words in str(failure.value)
    assert not (tmp_path / "out").exists()


def test_what_breaks_a_rule_is_not_released(tmp_path: Path) -> None:
    """The findings are listed, and nothing is written."""
    objects = build(CONFIG / "default")
    objects.remove(next(each for each in objects if each["kind"] == "Namespace"))
    kubectl = kubectl_that_prints(tmp_path, objects)

    with pytest.raises(ReleaseError, match=r"cannot be released:\n  0 Namespaces; clusterctl takes one"):
        assemble(tmp_path / "out", version="v0.1.0", image=IMAGE, kubectl=kubectl)
    assert not (tmp_path / "out").exists()


def test_without_kubectl_the_ways_to_get_one_are_said(tmp_path: Path) -> None:
    """On PATH it is found; nowhere, the message says what to do."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(ReleaseError, match=r"Put one on PATH, or build one: python -m hack\.controlplane build"):
        find_kubectl(environment)

    script = kubectl_that_prints(tmp_path, [])
    assert find_kubectl(environment) == script


def test_a_version_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """`make release` alone releases nothing."""
    with pytest.raises(SystemExit):
        main([])

    assert "--version" in capsys.readouterr().err
