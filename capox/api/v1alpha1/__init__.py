"""The kinds of `infrastructure.cluster.x-k8s.io/v1alpha1`: OxideCluster, OxideMachine, and their templates.

Group, version, kinds, field names and finalizers are those of Oxide's own provider in Go, so that users switch without
editing a manifest, and back. v1alpha1 grows by addition only; every field beyond the Go provider's is optional and
means, when absent, what that provider does.

To add a field: write it in this package with its limits and its description, run `python -m capox.api.crdgen`, and add
its valid and invalid values to tests/unit/api/crd_values.py. Rules for all fields:


- No defaults in the schema: an added default would change existing templates and roll out every ClusterClass cluster
  (C-T-5). Absent means the controller's default.
- `""` is absent, for every optional text.
- No rule compares a template with its former self: it would break ClusterClass' dry runs (C-T-4).
- The docstring of a class or field is what `kubectl explain` shows, so it speaks to users.
"""

from capox.api.reasons import ConditionType, Reason, instance_reason
from capox.api.v1alpha1.cluster import (
    CLUSTER_FINALIZER,
    CREDENTIALS_FINALIZER,
    AntiAffinity,
    CloudControllerManager,
    Firewall,
    FloatingIPStatus,
    LocalSecretReference,
    OxideCluster,
    OxideClusterSpec,
    OxideClusterStatus,
    RoleAntiAffinity,
)
from capox.api.v1alpha1.group import API_VERSION, GROUP, VERSION, Initialization, SecretReference
from capox.api.v1alpha1.machine import (
    DATA_DISK_BLOCK_SIZE_BYTES,
    MACHINE_FINALIZER,
    DataDisk,
    DiskRecord,
    ImageReference,
    MachineAddress,
    NetworkInterface,
    OxideMachine,
    OxideMachineSpec,
    OxideMachineStatus,
    PrimaryNetworkInterface,
)
from capox.api.v1alpha1.template import (
    NodeInfo,
    OxideClusterTemplate,
    OxideClusterTemplateResource,
    OxideClusterTemplateSpec,
    OxideMachineTemplate,
    OxideMachineTemplateResource,
    OxideMachineTemplateSpec,
    OxideMachineTemplateStatus,
    TemplateMetadata,
)

__all__ = [
    "API_VERSION",
    "CLUSTER_FINALIZER",
    "CREDENTIALS_FINALIZER",
    "DATA_DISK_BLOCK_SIZE_BYTES",
    "GROUP",
    "MACHINE_FINALIZER",
    "VERSION",
    "AntiAffinity",
    "CloudControllerManager",
    "ConditionType",
    "DataDisk",
    "DiskRecord",
    "Firewall",
    "FloatingIPStatus",
    "ImageReference",
    "Initialization",
    "LocalSecretReference",
    "MachineAddress",
    "NetworkInterface",
    "NodeInfo",
    "OxideCluster",
    "OxideClusterSpec",
    "OxideClusterStatus",
    "OxideClusterTemplate",
    "OxideClusterTemplateResource",
    "OxideClusterTemplateSpec",
    "OxideMachine",
    "OxideMachineSpec",
    "OxideMachineStatus",
    "OxideMachineTemplate",
    "OxideMachineTemplateResource",
    "OxideMachineTemplateSpec",
    "OxideMachineTemplateStatus",
    "PrimaryNetworkInterface",
    "Reason",
    "RoleAntiAffinity",
    "SecretReference",
    "TemplateMetadata",
    "instance_reason",
]
