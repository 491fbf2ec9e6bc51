"""What becomes of a Node whose kubelet is silent or whose instance is gone. Pure: evidence in, one act out.

A Node that is deleted wrongly is an outage: its Pods go, and its kubelet does not register again before it is
restarted. So a deletion needs everything at once: proof of absence twice, an anchor that shows that the right project
was looked at, a kubelet that has fallen silent, and time (L1, L2). Everything else keeps the Node.
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Final

from capox.oxide.models.instances import InstanceState

__all__ = [
    "CONTROL_PLANE_GRACE_SECONDS",
    "GRACE_SECONDS",
    "LEASE_SECONDS",
    "MASS_GRACE_SECONDS",
    "Act",
    "Decision",
    "Evidence",
    "decide",
    "is_mass",
]

GRACE_SECONDS: Final = 30.0
"""How long an absence has to last."""

CONTROL_PLANE_GRACE_SECONDS: Final = 300.0
"""The same for a Node of the control plane, whose deletion may cost a member of etcd."""

MASS_GRACE_SECONDS: Final = 600.0
"""The same when many Nodes would go (L2)."""

LEASE_SECONDS: Final = 40.0
"""For how long a kubelet must not have renewed its Lease; it does so every 10 s while it lives."""

PROOFS: Final = 2
"""How often the absence has to be proven, from the first time to the last."""


class Act(StrEnum):
    """What is done."""

    KEEP = "keep"
    TAINT = "taint"
    UNTAINT = "untaint"
    PROVE = "prove"
    HOLD = "hold"
    DELETE = "delete"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a Node now.

    Attributes:
        act: What.
        message: Why, for people, where they should hear of it; empty where not.
    """

    act: Act
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a Node at this moment.

    Attributes:
        is_ready: Whether its kubelet says that it is well.
        has_shutdown_taint: Whether it has the taint of a stopped instance.
        is_ours: Whether its providerID names an Oxide instance (L5, N10).
        is_initialised: Whether it has ever been matched: it has not the taint of Nodes that were not (L5).
        run_state: The state of its instance in the list; None when it is not in the list.
        proofs: How often its absence was proven, in an unbroken row.
        is_proven_now: Whether it was in this very look.
        absent_seconds: How long ago the first of these proofs was; 0 without one.
        lease_still_seconds: For how long we have seen its kubelet's Lease without a change.
        has_anchor: Whether the same list has the instance of a Ready Node of this cluster (L2).
        is_mass: Whether too many Nodes would go at once (L2).
        is_control_plane: Whether it belongs to the control plane.
    """

    is_ready: bool
    has_shutdown_taint: bool = False
    is_ours: bool = True
    is_initialised: bool = True
    run_state: str | None = None
    proofs: int = 0
    is_proven_now: bool = False
    absent_seconds: float = 0.0
    lease_still_seconds: float = 0.0
    has_anchor: bool = False
    is_mass: bool = False
    is_control_plane: bool = False


_KEEP: Final = Decision(Act.KEEP)
_PROVE: Final = Decision(Act.PROVE)


def decide(evidence: Evidence) -> Decision:
    """Decide what becomes of a Node.

    `PROVE` asks for a proof of absence in this very look, after which it has to be decided again.
    """
    if evidence.is_ready:
        return Decision(Act.UNTAINT) if evidence.has_shutdown_taint else _KEEP
    if not (evidence.is_ours and evidence.is_initialised):
        return _KEEP
    if evidence.run_state not in (None, InstanceState.DESTROYED):
        is_stopped = evidence.run_state == InstanceState.STOPPED
        return Decision(Act.TAINT) if is_stopped and not evidence.has_shutdown_taint else _KEEP
    return _of_absent(evidence)


def is_mass(absent: int, nodes: int) -> bool:
    """Whether so many absent Nodes of so many are more than a third."""
    return 3 * absent > nodes


def _of_absent(evidence: Evidence) -> Decision:
    if not evidence.proofs:
        return _PROVE
    if not evidence.has_anchor:
        return Decision(
            Act.HOLD,
            "no instance of a Ready Node is in the same list; check OXIDE_PROJECT and the rights of the token",
        )
    if evidence.lease_still_seconds <= LEASE_SECONDS:
        # Without words: every Node that goes is seen like this for a while. A kubelet that lives on is told of later.
        is_alive = evidence.absent_seconds > 2 * LEASE_SECONDS
        return Decision(Act.KEEP, "its kubelet still renews its Lease" if is_alive else "")
    if evidence.is_mass and evidence.absent_seconds < MASS_GRACE_SECONDS:
        return Decision(
            Act.HOLD, f"more than a third of the Nodes would go at once; held for {MASS_GRACE_SECONDS / 60:.0f} minutes"
        )
    if evidence.absent_seconds < (CONTROL_PLANE_GRACE_SECONDS if evidence.is_control_plane else GRACE_SECONDS):
        return _KEEP
    if not evidence.is_proven_now:
        return _PROVE
    return Decision(Act.DELETE) if evidence.proofs >= PROOFS else _KEEP
