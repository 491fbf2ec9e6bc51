"""What becomes of the floating IPs of a cluster's Services when the cluster goes: pure.

They bear the mark of a Service with this cluster's id, by which alone they are known: nobody can ask a cluster that is
gone. One that was to outlive its Service outlives the cluster as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, TypeAlias

from capox.ownership import parse_mark
from capox.oxide.snapshots import ObservedFloatingIp

__all__ = ["Delete", "Detach", "ReleaseStep", "Released", "of_services", "plan_service_addresses"]

RECLAIM: Final = "reclaim"
RETAIN: Final = "retain"


@dataclasses.dataclass(frozen=True, slots=True)
class Detach:
    """Take a floating IP off its instance."""

    floating_ip: ObservedFloatingIp


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Give a floating IP back."""

    floating_ip: ObservedFloatingIp


@dataclasses.dataclass(frozen=True, slots=True)
class Released:
    """Nothing is left."""


ReleaseStep: TypeAlias = Detach | Delete | Released


def of_services(floating_ips: Iterable[ObservedFloatingIp], cluster_id: str) -> list[ObservedFloatingIp]:
    """The floating IPs of a cluster's Services that go with the cluster, by name."""
    found = []
    for floating_ip in floating_ips:
        mark = parse_mark(floating_ip.description)
        if mark is None or not cluster_id or mark.kind != "Service" or mark.cluster_id != cluster_id:
            continue
        if mark.further.get(RECLAIM, "").lower() != RETAIN:
            found.append(floating_ip)
    return sorted(found, key=lambda each: each.name)


def plan_service_addresses(floating_ips: Iterable[ObservedFloatingIp], cluster_id: str) -> ReleaseStep:
    """The next step."""
    for floating_ip in of_services(floating_ips, cluster_id):
        return Delete(floating_ip) if floating_ip.instance_id is None else Detach(floating_ip)
    return Released()
