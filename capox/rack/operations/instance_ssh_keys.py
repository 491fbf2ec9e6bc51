"""The SSH keys that an instance was made with (semantics 2.2)."""

from __future__ import annotations

from capox.rack import select
from capox.rack.call import Call, operation
from capox.rack.json import JSON
from capox.rack.operations import session


@operation
def instance_ssh_public_key_list(call: Call) -> JSON:
    """`GET /v1/instances/{instance}/ssh-public-keys`: of the keys chosen at creation, those that still exist."""
    rack = call.rack
    instance = select.in_project(call, rack.instances, call.path["instance"], select.INSTANCE)
    found = (rack.ssh_keys.by_id(identity) for identity in instance.ssh_keys)
    return call.page_of([key for key in found if key is not None], session.ssh_key_view)
