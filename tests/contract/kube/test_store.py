"""The simulated store keeps the contract of the Kubernetes API."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from capox.ccm.kinds import NODES, SERVICES
from capox.kube.client import KubeAPI
from capox.kube.kind import SECRETS
from tests.contract.kube.core_stories import CoreStories
from tests.contract.kube.stories import MACHINES, KubernetesStories
from tests.sim.store import Store, is_set_once
from tests.sim.store_client import StoreClient


@pytest.fixture
def store() -> Store:
    """An empty store."""
    store = Store(
        (MACHINES, SECRETS, NODES, SERVICES),
        now=lambda: datetime.now(UTC),
        randomness=random.Random(0),
        namespaces=("default", "test"),
    )
    for kind in (MACHINES, NODES):
        store.add_rule(kind, is_set_once("spec", "providerID"))
    return store


@pytest.fixture
def api(store: Store) -> KubeAPI:
    """A client of the store."""
    return StoreClient(store)


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody else uses, since the store is each test's own."""
    return "test"


@pytest.fixture
def end_namespace(store: Store) -> Callable[[str], None]:
    """Begins the end of a namespace."""
    return store.delete_namespace


class TestStore(KubernetesStories):
    """Every story holds for the store."""


class TestStoreOfCoreKinds(CoreStories):
    """So do those of Nodes and Services."""
