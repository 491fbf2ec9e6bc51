"""Starting, stopping and rebooting instances (semantics 3.2). Each answers 202 with the instance as it is then."""

from __future__ import annotations

from capox.rack import instance_states
from capox.rack.call import Call, operation
from capox.rack.json import JSON
from capox.rack.operations import instances


@operation
def instance_start(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/start`."""
    instance = instances.of_path(call, "compute")
    instance_states.begin_start(call, instance)
    return instances.view(call.rack, instance)


@operation
async def instance_stop(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/stop`."""
    instance = instances.of_path(call, "compute")
    await instance_states.begin_stop(call, instance)
    return instances.view(call.rack, instance)


@operation
async def instance_reboot(call: Call) -> JSON:
    """`POST /v1/instances/{instance}/reboot`."""
    instance = instances.of_path(call, "compute")
    await instance_states.begin_reboot(call, instance)
    return instances.view(call.rack, instance)
