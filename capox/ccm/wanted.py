"""What passes between a Service and its load balancer: what is wanted, what is around, what came of it. Pure data.

Nothing here is about floating IPs, and nothing about how Kubernetes writes it; see `load_balancer`.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from capox.ccm.placement import Family, Port

__all__ = [
    "AddressWish",
    "Entry",
    "Notice",
    "Outcome",
    "Owner",
    "Refusal",
    "Surroundings",
    "Target",
    "Wanted",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """A Service, as far as its load balancer has to tell it from others.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID, by which everything is kept (S8).
        created: When it was made; the older one has the better right to what two want.
    """

    namespace: str
    name: str
    uid: str
    created: datetime.datetime

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class AddressWish:
    """One address that a Service wants.

    Attributes:
        family: Its family; None where the reference or the pool decides.
        reference: The address itself, or the name or id of one that the user brings; empty for any.
        pool: The name or id of the pool that it is to come from; empty for the default one.
        is_required: Whether the Service is of no use without it.
    """

    family: Family | None = None
    reference: str = ""
    pool: str = ""
    is_required: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry of `status.loadBalancer.ingress`.

    Attributes:
        ip: The address.
        mode: `Proxy` where packets arrive with a node's address, `VIP` where they arrive with this one (V1).
    """

    ip: str
    mode: Literal["VIP", "Proxy"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a Service wants.

    Attributes:
        owner: Whose it is.
        ports: Its ports.
        families: The families of its own addresses.
        wishes: The addresses that it wants.
        keeps_address: Whether its addresses are kept when it goes (`reclaim: Retain`).
        is_local: Whether its traffic may only go to endpoints on the node that it arrives at.
        published: What its status says now.
    """

    owner: Owner
    ports: frozenset[Port]
    families: tuple[Family, ...]
    wishes: tuple[AddressWish, ...]
    keeps_address: bool = False
    is_local: bool = False
    published: tuple[Entry, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A node that traffic may be sent to, as Kubernetes has it.

    Attributes:
        name: Its name.
        uid: Its UID.
        instance_id: Its instance.
        families: The families of its internal addresses.
        may_take: Whether it may get traffic that it has not had (S12).
        failing: Why traffic should leave it when another can take over; empty when nothing is wrong (S13).
        closed: Why it must not have any; empty when it may (3.5).
        taken: What its pods occupy by host ports (V6).
        is_control_plane: Whether it belongs to the control plane.
    """

    name: str
    uid: str
    instance_id: UUID
    families: frozenset[Family]
    may_take: bool
    failing: str = ""
    closed: str = ""
    taken: frozenset[Port] = frozenset()
    is_control_plane: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a Service has around it.

    Attributes:
        targets: The nodes.
        wanted: What the Services of type LoadBalancer want, by their UIDs.
        service_uids: The UIDs of all Services that there are.
        node_ports: Who has which port on every node: namespace and name of the Service.
        proxy_mode: How kube-proxy works (`iptables`, `nftables`, `ipvs`); empty when that is not known.
    """

    targets: tuple[Target, ...]
    wanted: Mapping[str, Wanted]
    service_uids: frozenset[str]
    node_ports: Mapping[Port, str]
    proxy_mode: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something that people should know; said as an Event on the Service.

    Attributes:
        reason: One word for programs, the same for the same cause.
        message: The same for the same cause too, so that it is counted and not repeated.
        is_warning: Whether something needs a person, or more time than it should.
    """

    reason: str
    message: str
    is_warning: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why what is wanted cannot be had at all.

    Attributes:
        reason: The Event's reason.
        message: What is wrong, and what to do.
        withdraws: Whether what is published does harm as things are and has to be taken back.
    """

    reason: str
    message: str
    withdraws: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes:
        entries: What the status has to say from now on; None leaves it as it is.
        notices: What people should know.
        retry_seconds: When to look again; None when nothing is awaited.
        is_complete: Whether all that is wanted is there; of a release, whether nothing is left.
        is_waiting: Whether something is missing that another Service may give up.
        has_freed: Whether something was given up that another Service may wait for.
    """

    entries: tuple[Entry, ...] | None = None
    notices: tuple[Notice, ...] = ()
    retry_seconds: float | None = None
    is_complete: bool = False
    is_waiting: bool = False
    has_freed: bool = False
