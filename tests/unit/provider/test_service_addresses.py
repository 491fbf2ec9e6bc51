"""Which floating IPs of Services go with their cluster."""

from __future__ import annotations

import ipaddress
from uuid import UUID

import pytest

from capox.ownership import OwnerMark, format_mark
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider.service_addresses_plan import Delete, Detach, Released, of_services, plan_service_addresses

CLUSTER = "id-of-web"
INSTANCE = UUID(int=7)


def floating_ip(name: str, description: str, instance: UUID | None = None) -> ObservedFloatingIp:
    """A floating IP in a list."""
    number = UUID(int=abs(hash(name)) % 2**64)
    return ObservedFloatingIp(number, name, description, ipaddress.IPv4Address("198.51.100.7"), UUID(int=1), instance)


def mark(kind: str = "Service", cluster_id: str = CLUSTER, **further: str) -> str:
    """A description."""
    owner = OwnerMark(kind=kind, namespace="a", name="b", uid="u", cluster_id=cluster_id, further=further)
    return format_mark(owner)


@pytest.mark.parametrize(
    ("description", "goes"),
    [
        (mark(), True),
        (mark(ports="tcp:80"), True),
        (mark(reclaim="delete"), True),
        (mark(reclaim="retain"), False),
        (mark(reclaim="Retain"), False),
        (mark("OxideCluster"), False),
        (mark(cluster_id="id-of-other"), False),
        (mark(cluster_id=""), False),
        ("made by hand for id-of-web", False),
        ("Managed by oxide-cloud-controller-manager.", False),
        ("", False),
    ],
)
def test_only_marked_ones_go(description: str, *, goes: bool) -> None:
    """Those of a Service of this cluster that were not to be kept; nothing by its name."""
    assert bool(of_services([floating_ip("x", description)], CLUSTER)) is goes


def test_without_an_id_nothing_goes() -> None:
    """A cluster that never got one has no floating IPs of Services, whatever marks say."""
    assert plan_service_addresses([floating_ip("x", mark(cluster_id=""))], "") == Released()


def test_attached_ones_are_detached_first() -> None:
    """One step at a time, in the order of names."""
    attached, free = floating_ip("a", mark(), INSTANCE), floating_ip("b", mark())
    assert plan_service_addresses([free, attached], CLUSTER) == Detach(attached)
    assert plan_service_addresses([free], CLUSTER) == Delete(free)
    assert plan_service_addresses([floating_ip("c", mark(reclaim="retain"))], CLUSTER) == Released()
