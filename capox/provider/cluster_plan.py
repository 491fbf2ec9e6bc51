"""What to do next about a cluster's endpoint: pure, from what is wanted and what was seen.

As for machines, a plan is one step and is made anew after each. Attach and detach are two calls on the rack, and every
pass begins with where the floating IP is now, so a crash between them is repaired like anything else (M-30).
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, is_made_for, parse_mark
from capox.oxide.models import InstanceState
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider.endpoint_holder import Candidate, choose_holder, next_to_come
from capox.provider.steps import Blocked, Finished, Wait

__all__ = [
    "Allocate",
    "Attach",
    "Blocked",
    "ClusterStep",
    "DeleteFloatingIp",
    "Detach",
    "Endpoint",
    "Finished",
    "Placed",
    "RecordEndpoint",
    "Seen",
    "StopFailedHolder",
    "Wait",
    "is_ours",
    "plan_endpoint",
    "plan_release",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The endpoint that is wanted.

    Attributes:
        mark: The owner mark of the cluster.
        floating_ip_name: The deterministic name, the Go provider's too.
        brought: The name or id of a floating IP that the user brings; None when the provider allocates one.
        address: The address that it is to have; None takes any.
        host_name: The DNS name that `spec.controlPlaneEndpoint` has for a host; empty when it has none or an address.
        is_recorded: Whether `spec.controlPlaneEndpoint` has a host.
        is_initialized: Whether the control plane has answered once.
        may_move: Whether the last move is long enough ago for another (M-29).
    """

    mark: OwnerMark
    floating_ip_name: str
    brought: str | None
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    host_name: str
    is_recorded: bool
    is_initialized: bool
    may_move: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen.

    Attributes:
        floating_ip: The floating IP that the endpoint means: the one that was brought, else the one with the
            endpoint's address, else the one with the deterministic name.
        namesake: The floating IP that has the deterministic name; another one than `floating_ip`, or the same.
        candidates: The control plane machines that have instances.
        is_settled: Whether no request to make the floating IP can still be under way.
    """

    floating_ip: ObservedFloatingIp | None
    namesake: ObservedFloatingIp | None
    candidates: Sequence[Candidate]
    is_settled: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Allocate:
    """Make the floating IP."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordEndpoint:
    """Write the floating IP's address into `spec.controlPlaneEndpoint`."""

    floating_ip: ObservedFloatingIp


@dataclasses.dataclass(frozen=True, slots=True)
class Attach:
    """Attach the floating IP to a machine's instance."""

    floating_ip: ObservedFloatingIp
    to: Candidate


@dataclasses.dataclass(frozen=True, slots=True)
class Detach:
    """Detach the floating IP from where it is; `to` is who gets it next."""

    floating_ip: ObservedFloatingIp
    to: Candidate | None


@dataclasses.dataclass(frozen=True, slots=True)
class StopFailedHolder:
    """Stop a failed instance, because nothing can be detached from it before (semantics 3.2)."""

    instance_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteFloatingIp:
    """Delete the floating IP, which is ours and attached to nothing."""

    floating_ip: ObservedFloatingIp


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """The endpoint is where it should be.

    Attributes:
        holder: Who has it; None while there is nobody who could.
        warning: What is wrong with that and cannot be helped now; empty when nothing is.
    """

    holder: Candidate | None
    warning: str = ""


ClusterStep: TypeAlias = (
    Allocate
    | RecordEndpoint
    | Attach
    | Detach
    | StopFailedHolder
    | DeleteFloatingIp
    | Placed
    | Wait
    | Blocked
    | Finished
)


def is_ours(floating_ip: ObservedFloatingIp, endpoint: Endpoint) -> bool:
    """Whether the floating IP was made for this cluster: by its mark, or, unmarked, by the Go provider's name."""
    if endpoint.brought is not None:
        return False
    mark = parse_mark(floating_ip.description)
    if mark is None:
        # The Go provider's: its name, and that this very cluster has recorded its address. A name alone is anybody's.
        return floating_ip.name == endpoint.floating_ip_name and floating_ip.ip == endpoint.address
    return is_made_for(mark, endpoint.mark)


def plan_endpoint(endpoint: Endpoint, seen: Seen) -> ClusterStep:
    """The next step towards an endpoint that is recorded and on the right machine."""
    floating_ip = seen.floating_ip
    if endpoint.host_name and endpoint.brought is None:
        return Blocked(
            Reason.INVALID_SPEC,
            f"spec.controlPlaneEndpoint.host is {endpoint.host_name!r}, a name; a floating IP that the provider "
            "allocates needs an address there or nothing; bring your own with spec.controlPlaneFloatingIP, or set "
            "spec.endpointMode to External",
        )
    if floating_ip is None:
        return _plan_allocation(endpoint, seen)
    refusal = _refusal(endpoint, floating_ip, seen.candidates)
    if refusal is not None:
        return refusal
    if not endpoint.is_recorded:
        return RecordEndpoint(floating_ip)
    return _plan_holder(endpoint, floating_ip, seen.candidates)


def plan_release(endpoint: Endpoint, seen: Seen) -> ClusterStep:
    """The next step towards nothing being left of the endpoint, when all machines are gone."""
    floating_ip = seen.floating_ip
    if floating_ip is None and not seen.is_settled:
        return Wait("finding out whether the floating IP was made")
    if floating_ip is None or _refusal(endpoint, floating_ip, seen.candidates) is not None:
        return Finished()
    own = is_ours(floating_ip, endpoint)
    if floating_ip.instance_id is not None:
        # It is on an instance that no machine of ours has: left over from one that was deleted by force.
        return Detach(floating_ip, None)
    return DeleteFloatingIp(floating_ip) if own else Finished()


def _plan_allocation(endpoint: Endpoint, seen: Seen) -> ClusterStep:
    if endpoint.brought is not None:
        return Blocked(
            Reason.INVALID_SPEC,
            f"spec.controlPlaneFloatingIP: there is no floating IP {endpoint.brought!r} in the project; "
            "make it, or leave the field out to have one allocated",
        )
    namesake = seen.namesake
    if namesake is not None:
        if is_ours(namesake, endpoint):
            return Blocked(
                Reason.INVALID_SPEC,
                f"spec.controlPlaneEndpoint.host is {endpoint.address}, but floating IP {namesake.name} of this "
                f"cluster has the address {namesake.ip}; set the host to that, or leave it out",
            )
        return Blocked(
            Reason.NAME_CONFLICT,
            f"floating IP {namesake.name} ({namesake.ip}) exists and is not this object's; "
            "rename the cluster, use another project, or delete that floating IP",
        )
    return Allocate()


def _refusal(endpoint: Endpoint, floating_ip: ObservedFloatingIp, candidates: Sequence[Candidate]) -> Blocked | None:
    """Why the floating IP must not be touched; None when it may be."""
    is_on_stranger = floating_ip.instance_id is not None and all(
        candidate.instance_id != floating_ip.instance_id for candidate in candidates
    )
    if is_ours(floating_ip, endpoint) and (parse_mark(floating_ip.description) is not None or not is_on_stranger):
        return None
    if endpoint.brought is None:
        mark = parse_mark(floating_ip.description)
        if mark is not None:
            return Blocked(
                Reason.NAME_CONFLICT,
                f"floating IP {floating_ip.name} ({floating_ip.ip}) belongs to {mark.kind} "
                f"{mark.namespace}/{mark.name}; use another address, name or project",
            )
    if is_on_stranger:
        return Blocked(
            Reason.NAME_CONFLICT,
            f"floating IP {floating_ip.name} ({floating_ip.ip}) is attached to instance {floating_ip.instance_id}, "
            "which is not of this cluster's control plane; detach it there",
        )
    return None


def _plan_holder(endpoint: Endpoint, floating_ip: ObservedFloatingIp, candidates: Sequence[Candidate]) -> ClusterStep:
    holder_id = floating_ip.instance_id
    chosen = choose_holder(candidates, holder_id, is_initialized=endpoint.is_initialized)
    if chosen is None:
        coming = next_to_come(candidates, is_initialized=endpoint.is_initialized)
        # Where nobody comes, nobody could take it. An instance that is going away takes it off by itself.
        return Placed(None) if coming is None else Wait(f"the instance of {coming.name} is {coming.run_state}")
    if chosen.instance_id == holder_id:
        return Placed(chosen, _warning(chosen))
    if holder_id is None:
        if not chosen.can_be_attached:
            return Wait(f"the instance of {chosen.name} is {chosen.run_state}")
        return Attach(floating_ip, chosen)
    if not endpoint.may_move:
        return Wait("the endpoint has moved a moment ago; it stays where it is for a while")
    holder = next((candidate for candidate in candidates if candidate.instance_id == holder_id), None)
    match holder.run_state if holder is not None else None:
        case InstanceState.FAILED:
            return StopFailedHolder(holder_id)
        case InstanceState.STARTING | InstanceState.STOPPING | InstanceState.CREATING:
            return Wait("the endpoint cannot be moved while its holder is changing its state")
        case _:
            return Detach(floating_ip, chosen)


def _warning(holder: Candidate) -> str:
    if holder.is_being_deleted:
        return f"{holder.name} is being deleted, and no other machine's apiserver is proven to live"
    if holder.run_state != InstanceState.RUNNING:
        return f"the instance of {holder.name} is {holder.run_state or 'gone'}, and there is no other to take over"
    if holder.is_api_server_healthy is False or holder.is_given_up:
        return f"the apiserver of {holder.name} does not answer, and there is no other to take over"
    return ""
