"""What the cloud controller manager has to be allowed, to be asked for at the start (R7). config/ccm grants it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from capox.kube.access_review import Permission

__all__ = ["wanted"]


def wanted(controllers: Collection[str], lease_namespace: str, lease_name: str) -> tuple[Permission, ...]:
    """Give everything that these controllers need.

    Args:
        controllers: Which controllers run.
        lease_namespace: Where the Lease is.
        lease_name: Its name.
    """
    return tuple(_wanted(controllers, lease_namespace, lease_name))


def _wanted(controllers: Collection[str], lease_namespace: str, lease_name: str) -> Iterator[Permission]:
    coordination, events = "coordination.k8s.io", "events.k8s.io"
    for verb in ("get", "patch"):
        yield Permission(verb, coordination, "leases", namespace=lease_namespace, name=lease_name)
    yield Permission("create", coordination, "leases", namespace=lease_namespace)
    for verb in ("create", "patch"):
        yield Permission(verb, events, "events")
    for resource in ("nodes", "services", "pods"):
        for verb in ("list", "watch"):
            yield Permission(verb, "", resource)
    yield Permission("get", "", "nodes")
    if "cloud-node" in controllers:
        yield Permission("patch", "", "nodes")
        yield Permission("patch", "", "nodes", "status")
    if "cloud-node-lifecycle" in controllers:
        yield Permission("patch", "", "nodes")
        yield Permission("delete", "", "nodes")
        yield Permission("get", coordination, "leases", namespace="kube-node-lease")
    if "service" in controllers:
        yield Permission("get", "", "services")
        yield Permission("patch", "", "services", "status")
        yield Permission("get", "", "namespaces", name="kube-system")
        yield Permission("get", "", "configmaps", namespace="kube-system", name="kube-proxy")
