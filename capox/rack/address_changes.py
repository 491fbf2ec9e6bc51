"""Attaching and detaching of what leads from outside to an instance: when it is allowed, and how it comes about.

It concerns floating and ephemeral IPs and external subnets alike (semantics 3.2, 6, 8). A change is first recorded,
then brought to the instance's sled, and then it is complete. While it is under way every further operation on the same
address is answered by 503, and a sled that does not answer undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from capox.rack import errors, instance_states, records
from capox.rack.call import Call

_SETTLED = frozenset({"stopped", "running", "rebooting"})
_TRANSIENT = frozenset({"starting", "stopping"})


class Changeable(Protocol):
    """An address or a prefix that can be attached; `change` is as `records.FloatingIp.change`."""

    change: int | None


def check_idle(thing: Changeable) -> None:
    """Refuse a second operation while one is under way.

    Raises:
        Refusal: 503.
    """
    if thing.change is not None:
        raise errors.service_unavailable()


def check_changeable(instance: records.Instance, complaint: str) -> None:
    """Refuse what no later attempt can bring about in the instance's state.

    Args:
        instance: the instance.
        complaint: what to say, with `{state}` in it.

    Raises:
        Refusal: 400, the instance is failed or still being created.
    """
    if instance.state not in _SETTLED | _TRANSIENT:
        raise errors.invalid_request(complaint.format(state=instance.state))


def check_settled(instance: records.Instance) -> None:
    """Refuse what may succeed when the instance has come to rest. Also an operation without effect is refused then.

    Raises:
        Refusal: 503, the instance is starting or stopping; 400, it is failed, its VMM is lost, or it is being created.
    """
    if instance.state in _TRANSIENT:
        raise errors.service_unavailable()
    if instance.state == "creating":
        raise errors.invalid_request("cannot modify instance IPs or subnets, instance is still being created")
    if instance.state == "failed" or instance.is_vmm_lost:
        raise errors.invalid_request("cannot modify instance IPs or subnets, instance is in unhealthy state")


async def carry_out(call: Call, thing: Changeable, instance: records.Instance, undo: Callable[[], None]) -> bool:
    """Bring a recorded change to the instance's sled.

    Args:
        call: the request.
        thing: what is attached or detached.
        instance: to or from what.
        undo: takes the record of the change back.

    Returns:
        Whether the change is still to be completed; not when the instance has been deleted meanwhile, and with it what
        had been attached to it.

    Raises:
        Refusal: 503, the sled does not answer, or the instance has left its state; the change is undone.
    """
    number = next(call.rack.address_changes)
    thing.change = number
    try:
        await call.elapse(call.rack.timing.address_change)
        await instance_states.reach_sled(call, instance)
        if instance.state not in _SETTLED and thing.change == number:
            raise errors.service_unavailable()
    except errors.Refusal:
        if thing.change != number:
            return False
        thing.change = None
        undo()
        raise
    if thing.change != number:
        return False
    thing.change = None
    return True
