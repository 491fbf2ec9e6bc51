"""Cluster API's Cluster and Machine (`cluster.x-k8s.io/v1beta2`), as far as capox reads them.

These are views: fields that nobody here reads are not named, so a change of Cluster API elsewhere in the object is none
of ours. References have no version and no namespace in v1beta2: the object they name is in the referrer's namespace.
"""

from typing import Annotated, Final

from capox.api import limits
from capox.kube.objects import NULL_IS_EMPTY_LIST, KubeModel, OptionalText, Resource

__all__ = [
    "CLUSTER_NAME_LABEL",
    "CONTROL_PLANE_LABEL",
    "DEPLOYMENT_NAME_LABEL",
    "GROUP",
    "PAUSED_ANNOTATION",
    "APIEndpoint",
    "Bootstrap",
    "BootstrapConfigReference",
    "Cluster",
    "ClusterInitialization",
    "ClusterSpec",
    "ClusterStatus",
    "ContractReference",
    "Machine",
    "MachineSpec",
    "MachineStatus",
    "NodeReference",
    "ReportedCondition",
]

GROUP: Final = "cluster.x-k8s.io"
"""Cluster API's group; owners are found by it and their kind, whatever their version (C-IC-10)."""

CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
"""The label with the name of the Cluster that an object belongs to (C-IM-6)."""

CONTROL_PLANE_LABEL: Final = "cluster.x-k8s.io/control-plane"
"""The label that is present, with any value, on what belongs to a control plane (C-IM-6)."""

DEPLOYMENT_NAME_LABEL: Final = "cluster.x-k8s.io/deployment-name"
"""The label with the name of the MachineDeployment that a machine belongs to, or a hash of one that is too long."""

PAUSED_ANNOTATION: Final = "cluster.x-k8s.io/paused"
"""The annotation that pauses an object when present, with any value, `false` and empty included (C-PA-1)."""


class APIEndpoint(KubeModel):
    """The address of a control plane's API server."""

    host: Annotated[OptionalText, limits.dns_name_or_address(optional=True)] = None
    """IP address or DNS name at which the API server answers."""

    port: Annotated[int | None, limits.whole_number(1, 65535)] = None
    """TCP port at which the API server answers."""


class ContractReference(KubeModel):
    """A reference to an object of another provider, in the same namespace."""

    api_group: str = ""
    """API group of the object."""

    kind: str
    """Kind of the object."""

    name: str
    """Name of the object."""


class ClusterSpec(KubeModel):
    """What a Cluster asks for."""

    paused: bool | None = None
    """Whether all controllers leave this cluster's objects alone (C-PA-1)."""

    control_plane_endpoint: APIEndpoint | None = None
    """The endpoint as Cluster API knows it; written once, never changed (C-IC-3)."""

    infrastructure_ref: ContractReference | None = None
    """The InfraCluster, an OxideCluster where it is ours (C-IC-11)."""

    control_plane_ref: ContractReference | None = None
    """The control plane object, such as a KubeadmControlPlane."""


class ClusterInitialization(KubeModel):
    """How far the Cluster has come; each of these turns true once and stays so."""

    infrastructure_provisioned: bool | None = None
    """Whether the InfraCluster reported that machines can be made (C-IM-1)."""

    control_plane_initialized: bool | None = None
    """Whether the control plane has answered once."""


class ClusterStatus(KubeModel):
    """What Cluster API found of a Cluster."""

    initialization: ClusterInitialization = ClusterInitialization()
    """How far the Cluster has come."""


class Cluster(Resource):
    """A Cluster of Cluster API."""

    spec: ClusterSpec = ClusterSpec()
    """What is asked for."""

    status: ClusterStatus = ClusterStatus()
    """What was found."""


class BootstrapConfigReference(KubeModel):
    """The bootstrap configuration of a machine, as far as its data depends on it."""

    kind: str = ""
    """Kind of the object, such as KubeadmConfig."""


class Bootstrap(KubeModel):
    """Where a machine's bootstrap data is."""

    data_secret_name: OptionalText = None
    """Name of the Secret with the bootstrap data; absent until the bootstrap provider has made it (C-IM-1)."""

    config_ref: BootstrapConfigReference | None = None
    """The bootstrap configuration, such as a KubeadmConfig; absent where somebody makes the Secret by hand."""


class MachineSpec(KubeModel):
    """What a Machine asks for."""

    cluster_name: str = ""
    """Name of the Cluster; the way from a machine to its cluster (C-IC-11)."""

    bootstrap: Bootstrap = Bootstrap()
    """Where the bootstrap data is."""

    infrastructure_ref: ContractReference | None = None
    """The InfraMachine, an OxideMachine where it is ours."""

    provider_id: OptionalText = None
    """The provider ID that Cluster API copied from the InfraMachine."""

    version: OptionalText = None
    """Kubernetes version of the machine, with a leading `v`."""


class NodeReference(KubeModel):
    """The Node that belongs to a Machine."""

    name: str
    """Name of the Node."""


class ReportedCondition(KubeModel):
    """A condition that Cluster API reports. Unlike our own it is taken as it comes."""

    type: str = ""
    """Which aspect of the state this is."""

    status: str = ""
    """True, False or Unknown."""


class MachineStatus(KubeModel):
    """What Cluster API found of a Machine."""

    conditions: Annotated[tuple[ReportedCondition, ...], NULL_IS_EMPTY_LIST] = ()
    """The state of the Machine, such as APIServerPodHealthy of a control plane machine (M-28)."""

    node_ref: NodeReference | None = None
    """The Node with the same provider ID; absent until it has registered (C-IM-8)."""


class Machine(Resource):
    """A Machine of Cluster API."""

    spec: MachineSpec = MachineSpec()
    """What is asked for."""

    status: MachineStatus = MachineStatus()
    """What was found."""

    @property
    def is_control_plane(self) -> bool:
        """Whether the Machine belongs to the control plane."""
        return CONTROL_PLANE_LABEL in self.metadata.labels
