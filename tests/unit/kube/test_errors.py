"""Kubernetes' answers as errors, and kinds as paths."""

from __future__ import annotations

from typing import Any

from capox.api import v1alpha1
from capox.kube import errors
from capox.kube.errors import KubeAPIError, KubeError, error_from_status
from capox.kube.kind import SECRETS, Kind
from tests.contract.kube.stories import MACHINES


def test_every_status_has_a_class() -> None:
    """None is lost, whatever came with it."""
    bodies: list[Any] = [
        None,
        "text",
        [],
        {},
        {"details": "x"},
        {"details": {"causes": "x"}},
        {"details": {"causes": [1]}},
    ]
    for status in range(300, 600):
        for body in bodies:
            error = error_from_status(status, body)
            assert isinstance(error, KubeAPIError)
            assert error.status == status
            assert str(status) in str(error)


def test_every_class_is_drawn() -> None:
    """In the tree of the module's docstring."""
    classes = [getattr(errors, name) for name in errors.__all__]
    names = {value.__name__ for value in classes if isinstance(value, type) and issubclass(value, KubeError)}

    assert names <= set((errors.__doc__ or "").replace("|", " ").replace("-", " ").replace("`", " ").split())


def test_the_end_of_a_namespace_is_told_apart() -> None:
    """By its cause, not by its words."""
    body: dict[str, Any] = {"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    ending = error_from_status(403, body)
    other = error_from_status(403, {"reason": "Forbidden", "message": "NamespaceTerminating"})

    assert isinstance(ending, errors.Forbidden)
    assert ending.is_namespace_terminating
    assert isinstance(other, errors.Forbidden)
    assert not other.is_namespace_terminating


def test_a_kind_knows_its_paths() -> None:
    """Of the core group and of others, of collections, objects and subresources."""
    namespaces = Kind(v1alpha1.OxideMachine, "", "v1", "namespaces", is_namespaced=False)

    assert SECRETS.path("team", "one") == "/api/v1/namespaces/team/secrets/one"
    assert SECRETS.path() == "/api/v1/secrets"
    assert namespaces.path("ignored", "team") == "/api/v1/namespaces/team"
    group = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1"
    assert MACHINES.path("team", "one", "status") == f"{group}/namespaces/team/oxidemachines/one/status"
    assert (str(MACHINES), str(SECRETS)) == ("oxidemachines.infrastructure.cluster.x-k8s.io", "secrets")
