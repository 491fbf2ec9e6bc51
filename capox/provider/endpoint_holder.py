"""Which control plane machine should carry the endpoint's floating IP: pure (rules M-20 to M-33).

Until the control plane has answered once, the oldest machine carries it, because `kubeadm init` there is what makes it
answer. Afterwards only a machine whose apiserver is proven to live may get it: on a machine that is joining, `kubeadm
join` would talk to itself (M-26). The holder keeps it as long as it is well, and nothing moves without need.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from uuid import UUID

from capox.oxide.models import InstanceState

__all__ = ["Candidate", "choose_holder", "is_fit_to_keep", "next_to_come"]

_CAN_BE_ATTACHED = frozenset({InstanceState.STOPPED, InstanceState.RUNNING, InstanceState.REBOOTING})
_COMES_UP = frozenset({InstanceState.CREATING, InstanceState.STARTING, InstanceState.STOPPING})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A control plane machine with an instance.

    Attributes:
        name: The Machine's name.
        instance_id: Its instance.
        run_state: The instance's run state; None when the rack does not have the instance.
        is_being_deleted: Whether deletion of the Machine or the OxideMachine was asked for (M-24).
        has_node: Whether its Node has registered.
        is_api_server_healthy: What KubeadmControlPlane says of its apiserver; None when it says nothing or does not
            know, as it cannot while the endpoint is dark.
        is_api_server_proven: Whether an apiserver has answered us at one of its addresses just now.
        is_given_up: Whether it had the endpoint a moment ago and did not answer through it (M-29).
        version: Its Kubernetes version.
        created: When the Machine was made.
    """

    name: str
    instance_id: UUID
    run_state: str | None
    is_being_deleted: bool
    has_node: bool
    is_api_server_healthy: bool | None
    is_api_server_proven: bool
    is_given_up: bool
    version: str
    created: datetime.datetime

    @property
    def can_be_attached(self) -> bool:
        """Whether the rack would attach a floating IP to the instance now (semantics 3.2)."""
        return self.run_state in _CAN_BE_ATTACHED


def is_fit_to_keep(holder: Candidate, *, is_initialized: bool) -> bool:
    """Whether the present holder may stay what it is (M-28)."""
    if holder.is_being_deleted or holder.run_state in {None, InstanceState.FAILED}:
        return False
    if not is_initialized:
        return True
    if holder.is_given_up:
        return False
    return holder.run_state != InstanceState.STOPPED and holder.is_api_server_healthy is not False


def choose_holder(candidates: Sequence[Candidate], holder_id: UUID | None, *, is_initialized: bool) -> Candidate | None:
    """The machine that should have the endpoint.

    Args:
        candidates: The control plane machines that have instances.
        holder_id: The instance that has it now.
        is_initialized: Whether the control plane has answered once.

    Returns:
        The machine; the present holder when nothing better is there, None when there is nobody at all.
    """
    holder = next((candidate for candidate in candidates if candidate.instance_id == holder_id), None)
    if holder is not None and is_fit_to_keep(holder, is_initialized=is_initialized):
        return holder
    others = [candidate for candidate in candidates if candidate is not holder and not candidate.is_being_deleted]
    fit = [other for other in others if other.can_be_attached and _may_take_over(other, is_initialized=is_initialized)]
    if not fit:
        return holder
    if not is_initialized:
        return min(fit, key=lambda candidate: (candidate.created, candidate.name))
    return max(fit, key=_preference)


def next_to_come(candidates: Sequence[Candidate], *, is_initialized: bool) -> Candidate | None:
    """The machine that could have the endpoint once its instance has come up; None when there is none to wait for."""
    coming = [
        candidate
        for candidate in candidates
        if candidate.run_state in _COMES_UP
        and not candidate.is_being_deleted
        and (candidate.has_node or not is_initialized)
    ]
    return min(coming, key=lambda candidate: (candidate.created, candidate.name), default=None)


def _may_take_over(candidate: Candidate, *, is_initialized: bool) -> bool:
    if not is_initialized:
        return True
    if candidate.run_state != InstanceState.RUNNING or candidate.is_given_up:
        return False
    if candidate.is_api_server_proven:
        return True
    # A node that has registered once joined with success; silence about its apiserver may only mean a dark endpoint.
    return candidate.has_node and candidate.is_api_server_healthy is not False


def _preference(candidate: Candidate) -> tuple[bool, bool, tuple[int, ...], float, str]:
    """Proof first, then word of it, then the newest version: the next step of a rollout moves nothing then (M-28)."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", candidate.version)[:3])
    return (
        candidate.is_api_server_proven,
        candidate.is_api_server_healthy is True,
        numbers,
        -candidate.created.timestamp(),
        candidate.name,
    )
