"""What a silo may use and what it uses (semantics 8)."""

from __future__ import annotations

from capox.rack.call import Call, operation
from capox.rack.json import JSON


@operation
def utilization_view(call: Call) -> JSON:
    """`GET /v1/utilization`: the silo's quotas, and what its instances with a VMM, disks and snapshots take of them."""
    silo = call.actor.silo
    return {
        "capacity": {
            "cpus": silo.quota_cpus,
            "memory": silo.quota_memory_bytes,
            "storage": silo.quota_storage_bytes,
        },
        "provisioned": {
            "cpus": silo.provisioned_cpus,
            "memory": silo.provisioned_memory_bytes,
            "storage": silo.provisioned_storage_bytes,
        },
    }
