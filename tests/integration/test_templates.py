"""The shipped cluster templates: clusterctl fills them in, and Cluster API's webhooks and our CRDs take the result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hack.controlplane.programs import KUBE_APISERVER

if TYPE_CHECKING:
    from hack.controlplane.capi import ManagementCluster

TEMPLATES = sorted((Path(__file__).resolve().parents[2] / "config" / "templates").glob("cluster-template*.yaml"))
VARIABLES = {
    "OXIDE_PROJECT": "demo",
    "OXIDE_IMAGE_ID": "11111111-2222-4333-8444-555555555555",
    "CONTROL_PLANE_ANTI_AFFINITY_GROUP": "control-planes",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_makes_objects_that_are_accepted(
    own_kinds: ManagementCluster, namespace: str, template: Path
) -> None:
    """Every object passes, also strictly: a misspelt field would otherwise be dropped in silence."""
    manifest = own_kinds.clusterctl(
        *("generate", "cluster", "web", "--from", str(template), "--target-namespace", namespace),
        *("--kubernetes-version", KUBE_APISERVER.version),
        *("--control-plane-machine-count", "3", "--worker-machine-count", "2"),
        variables=VARIABLES,
    )
    said = own_kinds.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)

    assert len(said.splitlines()) == len(re.findall(r"^apiVersion: ", manifest, re.MULTILINE))
    assert all(line.endswith("created (server dry run)") for line in said.splitlines())
