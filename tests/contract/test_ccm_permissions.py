"""What the process asks for at its start is what config/ccm grants (R7, 5.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.ccm.permissions import wanted
from capox.ccm.settings import CONTROLLERS
from capox.kube.access_review import Permission

CONFIG = Path(__file__).resolve().parents[2] / "config" / "ccm"


def granted() -> list[tuple[str, dict[str, Any]]]:
    """The rules of the roles, with the namespace where they hold; empty for everywhere."""
    found = []
    for path in CONFIG.glob("*role.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            found += [(document["metadata"].get("namespace", ""), rule) for rule in document["rules"]]
    return found


def is_granted(permission: Permission) -> bool:
    """Whether a rule grants it."""
    resource = f"{permission.resource}/{permission.subresource}" if permission.subresource else permission.resource
    return any(
        permission.verb in rule["verbs"]
        and permission.group in rule["apiGroups"]
        and resource in rule["resources"]
        and namespace in ("", permission.namespace)
        and ("resourceNames" not in rule or permission.name in rule["resourceNames"])
        for namespace, rule in granted()
    )


@pytest.mark.parametrize("permission", wanted(CONTROLLERS, "kube-system", "cloud-controller-manager"), ids=str)
def test_what_is_asked_for_is_granted(permission: Permission) -> None:
    """No permission is told as missing on a cluster with the shipped roles."""
    assert is_granted(permission)


def test_nothing_more_is_granted_than_is_asked_for() -> None:
    """Least rights: what the roles grant on Nodes and Services is what the controllers use."""
    asked = {
        (each.verb, f"{each.resource}/{each.subresource}" if each.subresource else each.resource)
        for each in wanted(CONTROLLERS, "kube-system", "cloud-controller-manager")
    }
    for _, rule in granted():
        for resource in set(rule["resources"]) & {"nodes", "nodes/status", "services", "services/status", "pods"}:
            assert {(verb, resource) for verb in rule["verbs"]} <= asked


def test_fewer_controllers_ask_for_less() -> None:
    """Whoever runs without the lifecycle controller need not let Nodes be deleted."""
    verbs = {each.verb for each in wanted({"cloud-node"}, "kube-system", "cloud-controller-manager")}

    assert "delete" not in verbs
