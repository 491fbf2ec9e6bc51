"""The operations in use, one module a noun: a table of what each of them is, and a method for each under its own name.

Reading methods are `*_list`, which give a `Paged` over all pages, and `*_view`. Everything else changes the rack, is
sent once and never repeated. Wherever an object is pointed at, its name or its id will do; `project` (for an
interface also `instance`, for a subnet also `vpc`) belongs to a name and must be left out with an id (semantics
1.6).
"""

from capox.oxide.operations.affinity import AffinityOperations
from capox.oxide.operations.disks import DiskOperations
from capox.oxide.operations.external_ips import ExternalIpOperations
from capox.oxide.operations.instances import InstanceOperations
from capox.oxide.operations.network_interfaces import NetworkInterfaceOperations
from capox.oxide.operations.silo import SiloOperations
from capox.oxide.operations.vpcs import VpcOperations

__all__ = ["Operations"]


class Operations(
    AffinityOperations,
    DiskOperations,
    ExternalIpOperations,
    InstanceOperations,
    NetworkInterfaceOperations,
    SiloOperations,
    VpcOperations,
):
    """All of them. What carries them out is left to `capox.oxide.client`."""
