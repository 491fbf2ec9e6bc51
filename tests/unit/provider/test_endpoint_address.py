"""Which floating IP leads to a cluster's control plane."""

from __future__ import annotations

import ipaddress
from typing import Any
from uuid import UUID

import pytest

from capox.api.v1alpha1 import OxideCluster
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider.endpoint_address import is_endpoint_of

IDENTITY = UUID("77777777-7777-4777-8777-777777777777")
V6 = ObservedFloatingIp(
    id=IDENTITY,
    name="by-hand",
    description="made by hand",
    ip=ipaddress.ip_address("2001:db8::7"),
    ip_pool_id=IDENTITY,
    instance_id=IDENTITY,
)


@pytest.mark.parametrize(
    ("spec", "is_endpoint"),
    [
        ({"controlPlaneFloatingIP": "by-hand"}, True),
        ({"controlPlaneFloatingIP": str(IDENTITY), "controlPlaneEndpoint": {"host": "api.example"}}, True),
        ({"controlPlaneFloatingIP": "another", "controlPlaneEndpoint": {"host": "2001:db8::7"}}, False),
        ({"controlPlaneEndpoint": {"host": "2001:DB8:0::7", "port": 6443}}, True),
        ({"controlPlaneEndpoint": {"host": "2001:db8::8", "port": 6443}}, False),
        ({"controlPlaneEndpoint": {"host": "api.example"}}, False),
        ({}, False),
    ],
)
def test_the_endpoint_is_told_by_what_was_brought_or_by_its_address(spec: dict[str, Any], *, is_endpoint: bool) -> None:
    """Whoever made it and however it is marked: a machine that has it waits until it has moved (M-32)."""
    document = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideCluster",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"credentialsRef": {"name": "credentials"}, "project": "demo", **spec},
    }

    assert is_endpoint_of(V6, OxideCluster.model_validate(document)) is is_endpoint
