"""Cluster API's in-memory provider beside ours, on the same control plane: Cluster API's own time.

Its manager is built from Cluster API's own module by this bench alone (`hack/tools/cluster-api-test`), and runs like
the other managers: a process under its own ServiceAccount with the RBAC that it ships.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import yaml

from hack.controlplane import gobuild
from hack.controlplane.binaries import Binaries, resolve
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.components import Provider, ProviderComponents, rendered
from hack.controlplane.paths import TOOLS
from hack.controlplane.programs import CAPD, PROGRAMS
from hack.controlplane.progress import reporter_for

__all__ = ["add_in_memory_provider", "binaries"]

_PROVIDER: Final = Provider(
    CAPD,
    name="docker",
    type="InfrastructureProvider",
    flag="--infrastructure",
    label="infrastructure-docker",
    config="infrastructure/docker/config",
    components="infrastructure-components-development.yaml",
)

_FEATURES: Final = (
    "--feature-gates=MachinePool=true,ClusterTopology=true,PriorityQueue=true,ReconcilerRateLimiting=true"
)
"""Its shipped Deployment's, with what our control plane sets for Cluster API's other managers."""


def binaries() -> Binaries:
    """Every program, the in-memory provider's among them; what is not there yet is built with its progress shown."""
    return resolve(os.environ, programs=(*PROGRAMS, CAPD), reporter=reporter_for())


def add_in_memory_provider(plane: ManagementCluster) -> int:
    """Install it, start it and wait until it is ready; returns its pid."""
    go = gobuild.find_go(os.environ)
    source = gobuild.module_directory(CAPD.module, go, os.environ, TOOLS / CAPD.tools)
    return plane.add_provider(_components(plane, source))


def _components(plane: ManagementCluster, source: Path) -> ProviderComponents:
    manifests = plane.kubectl("kustomize", str(source / _PROVIDER.config / "default"))
    made = rendered(yaml.safe_load_all(manifests), _PROVIDER)
    objects = json.dumps(made["objects"])
    # The arguments of the Deployment are a template for clusterctl, which nothing here fills in.
    return ProviderComponents(
        _PROVIDER, made["namespace"], made["service_account"], (_FEATURES,), made["inventory"], objects
    )
