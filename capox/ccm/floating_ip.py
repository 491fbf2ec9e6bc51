"""Floating IPs as a load balancer: one address on one node, moved when that node fails.

A floating IP has no health check and no second target. Kubernetes' own rules carry its packets on from whatever node
has it to the Service's pods, and those rules set the limits: see `refusal`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from capox.ccm.floating_ip_pass import FloatingIpPass
from capox.ccm.floating_ip_rack import FloatingIpRack, Memory
from capox.ccm.load_balancer import LoadBalancer, Publish
from capox.ccm.placement import Port
from capox.ccm.rack import Rack
from capox.ccm.service_mark import GoNames
from capox.ccm.wanted import Outcome, Refusal, Surroundings, Wanted
from capox.oxide.clock import Clock

__all__ = ["RESERVED_PORTS", "FloatingIps"]


def _range(protocol: str, first: int, last: int) -> set[Port]:
    return {Port("TCP" if protocol == "tcp" else "UDP", number) for number in range(first, last + 1)}


RESERVED_PORTS: Final[frozenset[Port]] = frozenset(
    {Port("TCP", number) for number in (22, 179, 4240, 4244, 6443, 9099, 9100)}
    | {Port("UDP", number) for number in (4789, 6081, 8472, 51820)}
    | _range("tcp", 2379, 2381)
    | _range("tcp", 10248, 10250)
    | _range("tcp", 10256, 10259)
)
"""Ports that nodes need for themselves: SSH, etcd, the API, kubelets, kube-proxy, networks of Pods (4.3, V5)."""


class FloatingIps(LoadBalancer):
    """Load balancing by floating IPs.

    Args:
        rack: The source of the project.
        clock: What times go by.
        cluster_id: Which cluster this is: what its marks say (V9).
        reserved_ports: Ports that no Service may have.
        go_cluster_name: The `--cluster-name` that Oxide's own controller ran with here; empty when nobody said (V10).
    """

    def __init__(
        self,
        rack: Rack,
        clock: Clock,
        cluster_id: str,
        *,
        reserved_ports: Collection[Port] = RESERVED_PORTS,
        go_cluster_name: str = "",
    ) -> None:
        assert cluster_id, "without it marks of two clusters would look alike"
        self._rack = rack
        self._clock = clock
        self._cluster_id = cluster_id
        self._reserved_ports = frozenset(reserved_ports)
        self._go_names = GoNames(go_cluster_name)
        self._identity: object = None
        self._shared: FloatingIpRack | None = None
        self._memories: dict[str, Memory] = {}

    def refusal(self, wanted: Wanted, surroundings: Surroundings) -> Refusal | None:
        """Say why a floating IP can never do what is wanted."""
        if wanted.is_local:
            return Refusal(
                "UnsupportedTrafficPolicy",
                "spec.externalTrafficPolicy is Local; a floating IP is on one node, wherever the endpoints are: "
                "set it to Cluster",
            )
        if any(port.protocol == "SCTP" for port in wanted.ports):
            return Refusal("UnsupportedProtocol", "a port has protocol SCTP; the rack carries TCP and UDP only")
        reserved = sorted(wanted.ports & self._reserved_ports)
        if reserved:
            # As soon as it is published every node sends what is meant for the holder's own port into the Service.
            return Refusal(
                "ReservedPort",
                f"{_text(reserved)} is reserved: nodes need it for themselves, and the Service would take it from the "
                "node that has the floating IP; choose another port",
                withdraws=True,
            )
        taken = {
            port: owner
            for port in sorted(wanted.ports)
            if (owner := surroundings.node_ports.get(port)) not in {None, str(wanted.owner)}
        }
        if taken:
            return Refusal(
                "NodePortConflict",
                f"{_text(taken)} is a node port of Service {next(iter(taken.values()))}; choose another port",
                withdraws=True,
            )
        if surroundings.proxy_mode == "ipvs":
            return Refusal(
                "UnsupportedProxyMode",
                "kube-proxy runs in mode ipvs, in which every other node takes the holder's address for its own and "
                "loses touch with it; use iptables or nftables",
                withdraws=True,
            )
        return None

    async def ensure(self, wanted: Wanted, surroundings: Surroundings, publish: Publish) -> Outcome:
        """Have the addresses, each on a node that can carry it.

        Raises:
            CredentialsError: There are no credentials.
            OxideError: The rack could not be read.
        """
        refused = {uid for uid, other in surroundings.wanted.items() if self.refusal(other, surroundings) is not None}
        work = await self._pass(wanted, surroundings, refused)
        return await work.ensure(publish)

    async def release(self, wanted: Wanted, surroundings: Surroundings) -> Outcome:
        """Detach all addresses; delete those that are ours, unless they are to be kept (S10).

        Raises:
            CredentialsError: There are no credentials.
            OxideError: The rack could not be read.
        """
        work = await self._pass(wanted, surroundings, ())
        return await work.release()

    def forget(self, uid: str) -> None:
        """Remember nothing of a Service any more."""
        self._memories.pop(uid, None)

    async def _pass(self, wanted: Wanted, surroundings: Surroundings, refused: Collection[str]) -> FloatingIpPass:
        project = await self._rack.project()
        if self._shared is None or self._identity != project.identity:
            # What was found out in another project is worth nothing here.
            self._shared = FloatingIpRack(project, self._clock, self._cluster_id, self._go_names)
            self._identity = project.identity
            self._memories.clear()
        self._shared.project = project
        memory = self._memories.setdefault(wanted.owner.uid, Memory())
        return FloatingIpPass(
            self._shared,
            self._clock,
            wanted=wanted,
            surroundings=surroundings,
            memory=memory,
            refused_uids=refused,
        )


def _text(ports: Collection[Port]) -> str:
    return ", ".join(str(port) for port in ports)
