"""OxideCluster: an Oxide project, VPC subnet and floating IP, as the infrastructure of a Cluster."""

from typing import Annotated, Final

from capox.api import limits
from capox.api.capi import APIEndpoint
from capox.api.limits import CelRule, Limits
from capox.api.v1alpha1.group import GROUP, Conditions, Generation, Initialization, SecretReference
from capox.kube.objects import NULL_IS_EMPTY_LIST, KubeModel, OptionalText, Resource

__all__ = [
    "CLUSTER_FINALIZER",
    "CREDENTIALS_FINALIZER",
    "AntiAffinity",
    "CloudControllerManager",
    "Firewall",
    "FloatingIPStatus",
    "LocalSecretReference",
    "OxideCluster",
    "OxideClusterSpec",
    "OxideClusterStatus",
    "RoleAntiAffinity",
]

CLUSTER_FINALIZER: Final = f"oxidecluster.{GROUP}"
"""Our finalizer on an OxideCluster, the Go provider's too."""

CREDENTIALS_FINALIZER: Final = f"oxidecluster.{GROUP}/credentials"
"""Our finalizer on the Secrets of `spec.credentialsRef` and `spec.cloudControllerManager.credentialsRef`, while a
cluster uses them. Kubernetes' own kinds take none without a slash."""

_CLUSTER_ID_IS_SET_ONCE: Final = Limits(
    rules=(
        CelRule(
            "!has(oldSelf.clusterID) || oldSelf.clusterID == ''"
            " || (has(self.clusterID) && self.clusterID == oldSelf.clusterID)",
            '"the cluster ID is set once and cannot change from \'" + oldSelf.clusterID + "\' to \'"'
            " + (has(self.clusterID) ? self.clusterID : '') + \"'; leave it as it is\"",
            field_path=".clusterID",
        ),
    )
)


class LocalSecretReference(KubeModel):
    """A reference to a Secret in the namespace of the object that refers to it."""

    name: Annotated[str, limits.secret_name()]
    """Name of the Secret."""


class CloudControllerManager(KubeModel):
    """The cloud controller manager that the provider brings along."""

    mode: Annotated[OptionalText, Limits({"enum": ["", "Managed", "Unmanaged", "Orphan"]})] = None
    """Managed: the provider installs it in the cluster, upgrades and repairs it. Unmanaged: the provider removes what
    it has installed, its Secret included. Orphan: what is installed stays as it is. Absent: Managed where the cluster
    is new or ours is installed already; hands off where another cloud controller manager has initialized the Nodes."""

    credentials_ref: LocalSecretReference | None = None
    """The Secret with the credentials that go into the cluster, keys as in the cluster's own. Best those of a user that
    has the role limited_collaborator on the one project. Absent: the cluster's own credentials."""

    image: Annotated[OptionalText, limits.image_reference(optional=True)] = None
    """Image to run. Absent: the provider's own, which holds both."""

    version: Annotated[OptionalText, limits.image_tag(optional=True)] = None
    """Tag of the image, to stay at one version when the provider is upgraded. Absent: the image's own."""

    placement: Annotated[OptionalText, Limits({"enum": ["", "WorkloadCluster", "ManagementCluster"]})] = None
    """Where it runs. ManagementCluster: beside this object, so that neither the credentials nor the process is in
    reach of the cluster's users; the provider needs further rights for that. Absent: WorkloadCluster."""


class RoleAntiAffinity(KubeModel):
    """How the machines of one role are kept on sleds of their own."""

    policy: Annotated[str, Limits({"enum": ["allow", "fail"]})]
    """What happens when no further sled is free at an instance's start. allow: it starts beside another one. fail: it
    stays stopped until there is one."""


class AntiAffinity(KubeModel):
    """Which machines are kept on sleds of their own."""

    control_plane: RoleAntiAffinity | None = None
    """The control plane machines, apart from each other. Absent: they are not kept apart."""

    workers: RoleAntiAffinity | None = None
    """The workers, those of each MachineDeployment apart from each other. Absent: they are not kept apart."""


class Firewall(KubeModel):
    """Who keeps the rules of the VPC's firewall that let the cluster's traffic in."""

    mode: Annotated[OptionalText, Limits({"enum": ["", "Managed", "Unmanaged"]})] = None
    """Managed: the provider keeps rules for the API server's port and for the ports of the cluster's load balancers,
    for this cluster's instances only, and takes them away at the end; its user needs the role collaborator on the
    project. Unmanaged: you do; the condition FirewallReady names a rule that is missing. Absent: Unmanaged."""

    api_server_sources: Annotated[
        tuple[Annotated[str, limits.network()], ...], NULL_IS_EMPTY_LIST, limits.list_of("set", 64)
    ] = ()
    """Networks from which the API server can be reached where the mode is Managed; the addresses under which the
    cluster's own instances appear outside are let in as well. Absent: from everywhere."""


class OxideClusterSpec(KubeModel):
    """What an OxideCluster asks for."""

    credentials_ref: SecretReference
    """The Secret with the rack's address (key oxide-host) and an API token (key oxide-token)."""

    project: Annotated[str, limits.oxide_name_or_id()]
    """Name or ID of the project in which everything for this cluster is made. One project is one trust domain."""

    vpc: Annotated[OptionalText, limits.oxide_name(optional=True)] = None
    """Name of the VPC that the instances' network interfaces are in. Absent: default."""

    subnet: Annotated[OptionalText, limits.oxide_name(optional=True)] = None
    """Name of the VPC subnet that the instances' network interfaces are in. Absent: default."""

    control_plane_endpoint: APIEndpoint | None = None
    """The address of the control plane. With an IP address as host, the floating IP with exactly this address is used
    or allocated; without one the provider allocates an address and writes it here. Absent port: 6443."""

    ip_pool: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """Name or ID of the IP pool from which the floating IP of the control plane is allocated; wins over ipType. Absent:
    the silo's default pool."""

    ip_type: Annotated[OptionalText, Limits({"enum": ["", "v4", "v6"]})] = None
    """IP version of the floating IP, for a silo with default pools of both. Absent: the rack decides."""

    control_plane_floating_ip: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """Name or ID of a floating IP of the project that is yours: the provider attaches and moves it, and neither makes
    nor deletes it. The host of controlPlaneEndpoint may be a DNS name then. Absent: the provider allocates one."""

    endpoint_mode: Annotated[OptionalText, Limits({"enum": ["", "FloatingIP", "External"]})] = None
    """Who leads traffic to the control plane. FloatingIP: a floating IP on one of its machines. External: somebody
    else, at the address in controlPlaneEndpoint; the provider touches no floating IP. Absent: FloatingIP."""

    anti_affinity: AntiAffinity | None = None
    """Anti-affinity groups that the provider makes, fills and removes: one for the control plane and one for each
    MachineDeployment, and further ones where a group is full at 32 instances; instances of different groups may share
    a sled. A change is for machines that are made afterwards. Absent: no groups are made."""

    firewall: Firewall | None = None
    """The firewall of the VPC. The rack replaces all rules at once: a rule that somebody else writes in the same moment
    as the provider can be lost. Absent: Unmanaged."""

    cluster_id: Annotated[OptionalText, limits.cluster_id(optional=True)] = None
    """The identity of this cluster on the rack, part of the owner mark of everything that is made for it. Set once, by
    the provider; it stays the same when the cluster is moved or restored."""

    cloud_controller_manager: CloudControllerManager | None = None
    """The cloud controller manager, which makes Nodes usable and gives Services of type LoadBalancer their addresses.
    Absent: as its mode, absent, says."""


class FloatingIPStatus(KubeModel):
    """The floating IP of a control plane."""

    id: Annotated[str, limits.uuid()]
    """ID of the floating IP."""

    ip: Annotated[str, Limits({"minLength": 1, "maxLength": 45})]
    """Its address."""

    machine: Annotated[str | None, Limits({"maxLength": 253})] = None
    """Name of the Machine whose instance has it; absent while none has."""


class OxideClusterStatus(KubeModel):
    """What was found of an OxideCluster."""

    initialization: Initialization = Initialization()
    """Observations that Cluster API waits for when it brings the cluster up for the first time."""

    observed_generation: Generation = None
    """The metadata.generation that was last reconciled with success."""

    control_plane_floating_ip: FloatingIPStatus | None = None
    """The floating IP of the control plane, and where it is."""

    credentials_ref: SecretReference | None = None
    """The Secret that is kept from being deleted as long as this cluster uses it."""

    cloud_controller_manager_credentials_ref: SecretReference | None = None
    """The Secret of spec.cloudControllerManager.credentialsRef, kept likewise; absent while that names none."""

    released: bool | None = None
    """Whether the cluster is being deleted and nothing of it is left on the rack, so that its credentials may go."""

    conditions: Conditions = ()
    """The state of the cluster's infrastructure, one entry an aspect."""


class OxideCluster(Resource):
    """An Oxide project, VPC subnet and floating IP, as the infrastructure of a Cluster."""

    spec: Annotated[OxideClusterSpec, _CLUSTER_ID_IS_SET_ONCE]
    """What is asked for."""

    status: OxideClusterStatus = OxideClusterStatus()
    """What was found."""
