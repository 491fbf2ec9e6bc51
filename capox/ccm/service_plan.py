"""What a Service wants of a load balancer, and what the controller has to do about it: pure.

Only Services of type LoadBalancer are ours that name no class, or ours (3.1). A class of somebody else is left alone
whatever it has of us, until it is deleted.
"""

from __future__ import annotations

import datetime
import enum
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from capox.ccm.placement import Family, Port, Protocol
from capox.ccm.wanted import AddressWish, Entry, Notice, Owner, Refusal, Wanted
from capox.kube.core_objects import LoadBalancerIngress, Service

__all__ = [
    "FINALIZER",
    "FLOATING_IP",
    "LOAD_BALANCER_CLASS",
    "POOL",
    "RECLAIM",
    "VERSION",
    "Task",
    "desired",
    "entries_of",
    "ingress_patch",
    "is_wanted",
    "notices_of",
    "task_of",
]

LOAD_BALANCER_CLASS: Final = "oxide.computer/floating-ip"
"""The one class that is ours; it keeps other controllers off."""

FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
"""The finalizer that every cloud's controller uses; it outlives a change of the controller."""

FLOATING_IP: Final = "oxide.computer/floating-ip"
"""The annotation that names the address itself, or the name or id of a floating IP; two of them with a comma."""

POOL: Final = "oxide.computer/floating-ip-pool"
"""The annotation that names the pool; two of them with a comma."""

VERSION: Final = "oxide.computer/floating-ip-version"
"""The annotation that chooses a family: v4 or v6."""

RECLAIM: Final = "oxide.computer/floating-ip-reclaim"
"""The annotation that says what becomes of an address when its Service goes: Delete or Retain."""

SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
"""The annotation that was there before `spec.loadBalancerSourceRanges`; kube-proxy, which sees to these, ignores it."""

_FAMILIES: Final[Mapping[str, Family]] = {"v4": "IPv4", "v6": "IPv6"}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Task(enum.Enum):
    """What has to be done about a Service."""

    ENSURE = "ensure"
    CLEAN_UP = "clean up"
    NOTHING = "nothing"


def is_wanted(service: Service) -> bool:
    """Whether a Service is one that we serve (3.1)."""
    spec = service.spec
    return spec.type == "LoadBalancer" and spec.load_balancer_class in {None, LOAD_BALANCER_CLASS}


def task_of(service: Service) -> Task:
    """What has to be done; one that is being deleted is never served, whoever else holds it (S4)."""
    has_finalizer = FINALIZER in service.metadata.finalizers
    if service.metadata.is_being_deleted or service.spec.type != "LoadBalancer":
        return Task.CLEAN_UP if has_finalizer else Task.NOTHING
    return Task.ENSURE if is_wanted(service) else Task.NOTHING


def desired(service: Service) -> Wanted | Refusal:
    """What a Service wants, or what is wrong with how it says so."""
    families = cast("tuple[Family, ...]", service.spec.ip_families) or ("IPv4",)
    annotations = service.metadata.annotations
    reclaim = annotations.get(RECLAIM, "").strip()
    if reclaim not in {"", "Delete", "Retain"}:
        return Refusal("InvalidAnnotation", f"{RECLAIM} is {reclaim!r}; it can be Delete or Retain")
    wishes = _wishes(service, families)
    if isinstance(wishes, Refusal):
        return wishes
    return wanted_of(service, wishes, keeps_address=reclaim == "Retain")


def wanted_of(service: Service, wishes: tuple[AddressWish, ...] = (), *, keeps_address: bool = False) -> Wanted:
    """What a Service wants, its wishes given: for one that is given up they need not make sense."""
    metadata, spec = service.metadata, service.spec
    return Wanted(
        owner=Owner(metadata.namespace, metadata.name, metadata.uid, metadata.creation_timestamp or _EPOCH),
        ports=frozenset(Port(cast("Protocol", port.protocol), port.port) for port in spec.ports),
        families=cast("tuple[Family, ...]", spec.ip_families) or ("IPv4",),
        wishes=wishes,
        keeps_address=keeps_address,
        is_local=spec.external_traffic_policy == "Local",
        published=entries_of(service),
    )


def notices_of(service: Service) -> tuple[Notice, ...]:
    """What people should know of what a Service says, though it is served."""
    ranges = service.metadata.annotations.get(SOURCE_RANGES, "").strip()
    if not ranges or service.spec.load_balancer_source_ranges:
        return ()
    message = f"{SOURCE_RANGES} is not followed, and everybody is let in; set spec.loadBalancerSourceRanges"
    return (Notice("SourceRangesIgnored", message),)


def entries_of(service: Service) -> tuple[Entry, ...]:
    """What a Service's status says; an entry without a mode reads as VIP (V1)."""
    ingress = service.status.load_balancer.ingress
    return tuple(Entry(each.ip, "Proxy" if each.ip_mode == "Proxy" else "VIP") for each in ingress if each.ip)


def ingress_patch(service: Service, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What makes a Service's status say this; None when it does already, mode and all (S6)."""
    wanted = tuple(LoadBalancerIngress(ip=entry.ip, ip_mode=entry.mode) for entry in entries)
    if wanted == service.status.load_balancer.ingress:
        return None
    ingress = [{"ip": entry.ip, "ipMode": entry.mode} for entry in entries]
    return {"loadBalancer": {"ingress": ingress} if ingress else {"ingress": None}}


def _wishes(service: Service, families: tuple[Family, ...]) -> tuple[AddressWish, ...] | Refusal:
    annotations = service.metadata.annotations
    given = {key: annotations[key].strip() for key in (FLOATING_IP, POOL, VERSION) if annotations.get(key, "").strip()}
    if len(given) > 1:
        return Refusal("InvalidAnnotation", f"{' and '.join(given)} exclude each other; leave one of them")
    explicit = given.get(FLOATING_IP)
    if explicit is None and not given and service.spec.load_balancer_ip:
        explicit = service.spec.load_balancer_ip
    if explicit is not None:
        return _named(explicit, families)
    if POOL in given:
        pools = _listed(given[POOL])
        if len(pools) > len(families):
            return Refusal("InvalidAnnotation", f"{POOL} names {len(pools)} pools; {_has(families)}")
        return tuple(AddressWish(pool=pool) for pool in pools)
    if VERSION in given:
        family = _FAMILIES.get(given[VERSION])
        if family is None:
            return Refusal("InvalidAnnotation", f"{VERSION} is {given[VERSION]!r}; it can be v4 or v6")
        if family not in families:
            return Refusal("InvalidAnnotation", f"{VERSION} is {given[VERSION]}; {_has(families)}")
        return (AddressWish(family),)
    needs_all = service.spec.ip_family_policy == "RequireDualStack"
    return tuple(AddressWish(family, is_required=place == 0 or needs_all) for place, family in enumerate(families))


def _named(text: str, families: tuple[Family, ...]) -> tuple[AddressWish, ...] | Refusal:
    references = _listed(text)
    wishes = tuple(AddressWish(_family_of(reference), _canonical(reference)) for reference in references)
    if not wishes or len(wishes) > len(families):
        return Refusal("InvalidAnnotation", f"{len(wishes)} floating IPs are named ({text}); {_has(families)}")
    for wish in wishes:
        if wish.family is not None and wish.family not in families:
            return Refusal("InvalidAnnotation", f"{wish.reference} is an {wish.family} address; {_has(families)}")
    if len({wish.reference for wish in wishes}) < len(wishes):
        return Refusal("InvalidAnnotation", f"one floating IP is named twice ({text})")
    return wishes


def _has(families: tuple[Family, ...]) -> str:
    return f"the Service has {' and '.join(families)} (spec.ipFamilies)"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _family_of(reference: str) -> Family | None:
    try:
        return "IPv4" if ipaddress.ip_address(reference).version == 4 else "IPv6"
    except ValueError:
        return None


def _canonical(reference: str) -> str:
    """An address in its one spelling (S19); anything else as it is."""
    try:
        return str(ipaddress.ip_address(reference))
    except ValueError:
        return reference
