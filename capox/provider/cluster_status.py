"""What an OxideCluster's status says: pure, from the facts of a pass to the whole status."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Final
from uuid import UUID

from capox.api.v1alpha1 import (
    ConditionType,
    FloatingIPStatus,
    Initialization,
    OxideCluster,
    OxideClusterStatus,
    Reason,
)
from capox.kube.conditions import Finding, is_condition_true, set_condition
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider import cluster_plan as plan
from capox.provider.trouble import Trouble

__all__ = ["EXPIRY_WARNING", "ClusterFacts", "cluster_status", "paused_cluster_status"]

EXPIRY_WARNING: Final = datetime.timedelta(days=14)
"""How long before a token's end the condition CredentialsValid begins to warn."""


@dataclasses.dataclass(slots=True, kw_only=True)
class ClusterFacts:
    """What a pass found out.

    Attributes:
        is_external: Whether somebody else balances the endpoint.
        floating_ip: The endpoint's floating IP as last seen.
        step: What the planner said last.
        instances: The instances of the control plane, whose states matter to the endpoint.
        credentials: Why the credentials cannot be used; None when they can, or when nothing is known.
        are_credentials_proven: Whether the rack has accepted the credentials in this pass.
        is_ccm_secret_missing: Whether the cloud controller manager is to have credentials that are not there.
        expires: When the token ends, where the Secret tells.
        waiting_for_machines: Names of machines that have to go before the endpoint does.
        firewall: What is to be told of the firewall; None when it was not looked at.
        trouble: Why the pass ended early; None when it did not.
    """

    is_external: bool = False
    floating_ip: ObservedFloatingIp | None = None
    step: plan.ClusterStep | None = None
    instances: tuple[UUID, ...] = ()
    credentials: Trouble | None = None
    are_credentials_proven: bool = False
    is_ccm_secret_missing: bool = False
    expires: datetime.datetime | None = None
    waiting_for_machines: tuple[str, ...] = ()
    firewall: Finding | None = None
    trouble: Trouble | None = None


def cluster_status(cluster: OxideCluster, facts: ClusterFacts, now: datetime.datetime) -> OxideClusterStatus:
    """The status after a pass.

    Args:
        cluster: The object as it was last read or written.
        facts: What the pass found out.
        now: For the times of transitions and the warning before a token's end.
    """
    before = cluster.status
    endpoint = cluster.spec.control_plane_endpoint
    has_endpoint = endpoint is not None and bool(endpoint.host)
    is_there = facts.is_external or facts.floating_ip is not None
    is_provisioned = before.initialization.provisioned or (has_endpoint and is_there)
    conditions = before.conditions
    for finding in (
        Finding(ConditionType.PAUSED, "False", Reason.NOT_PAUSED),
        *_deleting(cluster, facts),
        *_credentials(facts, now),
        *_attached(facts),
        *([facts.firewall] if facts.firewall is not None else []),
        _ready(cluster, facts),
    ):
        conditions = set_condition(
            conditions, finding, observed_generation=cluster.metadata.generation or None, now=now
        )
    return before.model_copy(
        update={
            "initialization": Initialization(provisioned=True) if is_provisioned else before.initialization,
            "control_plane_floating_ip": _floating_ip(facts) or before.control_plane_floating_ip,
            "observed_generation": before.observed_generation
            if facts.trouble is not None
            else cluster.metadata.generation or None,
            "conditions": conditions,
        }
    )


def paused_cluster_status(cluster: OxideCluster, causes: tuple[str, ...], now: datetime.datetime) -> OxideClusterStatus:
    """The status of a cluster that is left alone: only the condition Paused changes (C-CO-4)."""
    conditions = set_condition(
        cluster.status.conditions,
        Finding(ConditionType.PAUSED, "True", Reason.PAUSED, "; ".join(causes)),
        observed_generation=cluster.metadata.generation or None,
        now=now,
    )
    return cluster.status.model_copy(update={"conditions": conditions})


def _floating_ip(facts: ClusterFacts) -> FloatingIPStatus | None:
    floating_ip = facts.floating_ip
    if floating_ip is None:
        return None
    holder = facts.step.holder if isinstance(facts.step, plan.Placed) else None
    return FloatingIPStatus(
        id=str(floating_ip.id), ip=str(floating_ip.ip), machine=holder.name if holder is not None else None
    )


def _deleting(cluster: OxideCluster, facts: ClusterFacts) -> list[Finding]:
    if not cluster.metadata.is_being_deleted:
        return [Finding(ConditionType.DELETING, "False", Reason.NOT_DELETING)]
    return [Finding(ConditionType.DELETING, "True", Reason.DELETING, _waiting_for(facts))]


def _waiting_for(facts: ClusterFacts) -> str:
    if facts.trouble is not None:
        return facts.trouble.message
    if facts.waiting_for_machines:
        shown = ", ".join(facts.waiting_for_machines[:5])
        more = len(facts.waiting_for_machines) - 5
        return f"waiting for machines to go: {shown}" + (f" and {more} more" if more > 0 else "")
    return "" if isinstance(facts.step, plan.Finished) else "releasing the floating IP"


def _credentials(facts: ClusterFacts, now: datetime.datetime) -> list[Finding]:
    if facts.credentials is not None:
        return [Finding(ConditionType.CREDENTIALS_VALID, "False", facts.credentials.reason, facts.credentials.message)]
    if not facts.are_credentials_proven:
        return []
    if facts.expires is not None and facts.expires - now <= EXPIRY_WARNING:
        ends = facts.expires.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        return [
            Finding(
                ConditionType.CREDENTIALS_VALID,
                "True",
                "CredentialsExpireSoon",
                f"the token ends at {ends}; put a new one into the Secret, it is taken up without a restart",
            )
        ]
    return [Finding(ConditionType.CREDENTIALS_VALID, "True", "CredentialsAccepted")]


def _attached(facts: ClusterFacts) -> list[Finding]:
    kind = ConditionType.FLOATING_IP_ATTACHED
    match facts.step:
        case plan.Placed(holder=None):
            return [Finding(kind, "False", Reason.WAITING_FOR_CONTROL_PLANE_MACHINE, "no machine can have it yet")]
        case plan.Placed(holder=holder, warning=warning) if holder is not None:
            return [Finding(kind, "True", Reason.FLOATING_IP_ATTACHED, warning)]
        case plan.Wait(message):
            return [Finding(kind, "False", Reason.WAITING_FOR_CONTROL_PLANE_MACHINE, message)]
        case _:
            return []


def _ready(cluster: OxideCluster, facts: ClusterFacts) -> Finding:
    """The summary. It does not flap: machine health checks rest while it is not True (C-IC-7)."""
    kind = ConditionType.READY
    if cluster.metadata.is_being_deleted:
        return Finding(kind, "False", Reason.DELETING, _waiting_for(facts))
    trouble = facts.credentials or facts.trouble
    was_ready = is_condition_true(cluster.status.conditions, kind)
    if trouble is not None:
        if was_ready and trouble.is_passing:
            return Finding(kind, "True", Reason.FLOATING_IP_PROVISIONED)
        return Finding(kind, "False", trouble.reason, trouble.message)
    if isinstance(facts.step, plan.Blocked):
        return Finding(kind, "False", facts.step.reason, facts.step.message)
    if facts.is_external:
        endpoint = cluster.spec.control_plane_endpoint
        if endpoint is None or not endpoint.host:
            return Finding(kind, "False", "WaitingForControlPlaneEndpoint", "nobody has set the endpoint yet")
        return Finding(kind, "True", "EndpointProvided")
    if facts.floating_ip is None:
        return Finding(kind, "False", "Provisioning", "the floating IP is being made")
    return Finding(kind, "True", Reason.FLOATING_IP_PROVISIONED)
