"""The address of a cluster's endpoint: what a host is, and which floating IP of a project bears it."""

from __future__ import annotations

import ipaddress

from capox.api.v1alpha1 import OxideCluster
from capox.oxide.snapshots import ObservedFloatingIp

__all__ = ["is_endpoint_of", "parse_address"]


def parse_address(host: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that an endpoint's host is; None when it is a name, or not there."""
    try:
        return ipaddress.ip_address(host) if host else None
    except ValueError:
        return None


def is_endpoint_of(floating_ip: ObservedFloatingIp, cluster: OxideCluster) -> bool:
    """Whether a floating IP is the one that leads to a cluster's control plane.

    Whoever made it: the provider, Oxide's own provider, or the user, who brings one or gives an address (M-32). One
    that is brought decides alone, since the host may be a name then.
    """
    brought = cluster.spec.control_plane_floating_ip
    if brought is not None:
        return brought in {floating_ip.name, str(floating_ip.id)}
    endpoint = cluster.spec.control_plane_endpoint
    return endpoint is not None and parse_address(endpoint.host) == floating_ip.ip
