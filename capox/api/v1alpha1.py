"""The kinds of `infrastructure.cluster.x-k8s.io/v1alpha1`: OxideCluster, OxideMachine, and their templates.

Group, version, kinds, field names and finalizers are those of Oxide's own provider in Go, so that users switch without
editing a manifest, and back. v1alpha1 grows by addition only; every field beyond the Go provider's is optional and
means, when absent, what that provider does.

To add a field: write it here with its limits and its description, run `python -m capox.api.crdgen`, and add its valid
and invalid values to tests/integration/test_crd_validation.py. Rules for all fields:

- No defaults in the schema: an added default would change existing templates and roll out every ClusterClass cluster
  (C-T-5). Absent means the controller's default.
- `""` is absent, for every optional text.
- No rule compares a template with its former self: it would break ClusterClass' dry runs (C-T-4).
- The docstring of a class or field is what `kubectl explain` shows, so it speaks to users.
"""

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import ConfigDict, Field

from capox.api import limits
from capox.api.capi import APIEndpoint
from capox.api.limits import CelRule, Limits
from capox.api.quantity import Quantity
from capox.api.reasons import ConditionType, Reason, instance_reason
from capox.kube.objects import NULL_IS_EMPTY_LIST, Condition, KubeModel, OptionalText, Resource

__all__ = [
    "API_VERSION",
    "CLUSTER_FINALIZER",
    "DATA_DISK_BLOCK_SIZE_BYTES",
    "GROUP",
    "MACHINE_FINALIZER",
    "VERSION",
    "ConditionType",
    "DataDisk",
    "DiskRecord",
    "FloatingIPStatus",
    "ImageReference",
    "Initialization",
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
    "SecretReference",
    "TemplateMetadata",
    "instance_reason",
]

GROUP: Final = "infrastructure.cluster.x-k8s.io"
"""The API group of our kinds."""

VERSION: Final = "v1alpha1"
"""The one version of our kinds."""

API_VERSION: Final = f"{GROUP}/{VERSION}"
"""What stands in `apiVersion` of our objects."""

CLUSTER_FINALIZER: Final = f"oxidecluster.{GROUP}"
"""Our finalizer on an OxideCluster, the Go provider's too."""

MACHINE_FINALIZER: Final = f"oxidemachine.{GROUP}"
"""Our finalizer on an OxideMachine, the Go provider's too (C-IM-3)."""

DATA_DISK_BLOCK_SIZE_BYTES: Final = 4096
"""The block size of a data disk that asks for none."""

_PROVIDER_ID_IS_SET_ONCE: Final = Limits(
    rules=(
        CelRule(
            "!has(oldSelf.providerID) || oldSelf.providerID == ''"
            " || (has(self.providerID) && self.providerID == oldSelf.providerID)",
            '"the provider ID is set once and cannot change from \'" + oldSelf.providerID + "\' to \'"'
            " + (has(self.providerID) ? self.providerID : '') + \"'; make a new Machine instead\"",
            field_path=".providerID",
        ),
    ),
)
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
_ONE_IMAGE: Final = CelRule(
    "(has(self.imageID) && self.imageID != '') != has(self.image)",
    "has(self.image) ? 'imageID and image exclude each other; leave one of them out'"
    " : 'neither imageID nor image is set; set one of them'",
)
_NO_PROVIDER_ID_IN_TEMPLATE: Final = Limits(
    rules=(
        CelRule(
            "!has(self.providerID) || self.providerID == ''",
            '"a template has no provider ID, every machine made from it would claim the instance of \'"'
            ' + self.providerID + "\'; leave the field out"',
            field_path=".providerID",
        ),
    ),
    in_words="without `providerID`",
)


_MACHINE_RULES: Final = Limits(
    rules=(*_PROVIDER_ID_IS_SET_ONCE.rules, _ONE_IMAGE), in_words="either `imageID` or `image`"
)
_MACHINE_TEMPLATE_RULES: Final = Limits(
    rules=(*_NO_PROVIDER_ID_IN_TEMPLATE.rules, _ONE_IMAGE), in_words="without `providerID`; either `imageID` or `image`"
)


class SecretReference(KubeModel):
    """A reference to a Secret."""

    # Atomic, as in the Go provider's CRD: name and namespace have one owner.
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: Annotated[str, limits.secret_name()]
    """Name of the Secret."""

    namespace: Annotated[OptionalText, limits.namespace_name(optional=True)] = None
    """Namespace of the Secret. Absent: the namespace of the object that refers to it."""


class Initialization(KubeModel):
    """Observations that Cluster API waits for when it brings the object up for the first time."""

    provisioned: bool | None = None
    """Whether the infrastructure is there. It turns true once and stays true."""


_Generation: TypeAlias = Annotated[int | None, Limits({"format": "int64", "minimum": 0})]
_Conditions: TypeAlias = Annotated[tuple[Condition, ...], NULL_IS_EMPTY_LIST, limits.list_of("map:type", 32)]


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

    cluster_id: Annotated[OptionalText, limits.cluster_id(optional=True)] = None
    """The identity of this cluster on the rack, part of the owner mark of everything that is made for it. Set once, by
    the provider; it stays the same when the cluster is moved or restored."""


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

    observed_generation: _Generation = None
    """The metadata.generation that was last reconciled with success."""

    control_plane_floating_ip: FloatingIPStatus | None = None
    """The floating IP of the control plane, and where it is."""

    conditions: _Conditions = ()
    """The state of the cluster's infrastructure, one entry an aspect."""


class OxideCluster(Resource):
    """An Oxide project, VPC subnet and floating IP, as the infrastructure of a Cluster."""

    spec: Annotated[OxideClusterSpec, _CLUSTER_ID_IS_SET_ONCE]
    """What is asked for."""

    status: OxideClusterStatus = OxideClusterStatus()
    """What was found."""


class DataDisk(KubeModel):
    """A disk that is made with the instance, attached to it, and deleted with it."""

    size: Annotated[Quantity, limits.quantity_between("1Gi", "1023Gi")]
    """Size in bytes, rounded up to a multiple of 1Gi."""

    block_size: Annotated[int | None, Limits({"format": "int64", "enum": [512, 2048, 4096]})] = None
    """Block size in bytes. Absent: 4096."""

    type: Annotated[OptionalText, Limits({"enum": ["", "distributed", "local"]})] = None
    """Where the disk is. distributed: replicated over the rack's sleds. local: on the drives of the instance's own
    sled, as storage like Longhorn wants it; its blocks have 4096 bytes. Absent: distributed."""

    reclaim_policy: Annotated[OptionalText, Limits({"enum": ["", "Delete", "Retain"]})] = None
    """What becomes of the disk when the machine is deleted. Retain leaves it on the rack, detached. Absent: Delete."""


class ImageReference(KubeModel):
    """An image by name."""

    name: Annotated[str, limits.oxide_name()]
    """Name of the image."""

    project: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """Name or ID of the project that is looked in before the images of the silo. Absent: the cluster's project."""


_IPType: TypeAlias = Annotated[OptionalText, Limits({"enum": ["", "v4", "v6", "dual"]})]
_TransitIPs: TypeAlias = Annotated[
    tuple[Annotated[str, limits.network()], ...], NULL_IS_EMPTY_LIST, limits.list_of("set", 64)
]


class PrimaryNetworkInterface(KubeModel):
    """The network interface that has the instance's first private address."""

    ip_type: _IPType = None
    """IP versions of its private addresses. Absent: dual."""

    transit_ips: _TransitIPs = ()
    """Networks whose addresses may pass through it besides its own, for Pods without an overlay. Absent: none."""


class NetworkInterface(KubeModel):
    """A further network interface, in the cluster's VPC."""

    subnet: Annotated[str, limits.oxide_name()]
    """Name of its VPC subnet, another one than every other interface's."""

    ip_type: _IPType = None
    """IP versions of its private addresses. Absent: dual."""

    transit_ips: _TransitIPs = ()
    """Networks whose addresses may pass through it besides its own. Absent: none."""


class OxideMachineSpec(KubeModel):
    """What an OxideMachine asks for."""

    provider_id: Annotated[OptionalText, limits.provider_id(optional=True)] = None
    """The identity of the instance, oxide:// and the instance's UUID in lower case. Set once, by the provider."""

    n_cpus: Annotated[int, limits.whole_number(1, 254, number_format="int64")]
    """Number of virtual CPUs of the instance."""

    memory: Annotated[Quantity, limits.quantity_between("1Gi", "1536Gi")]
    """Memory of the instance in bytes, rounded up to a multiple of 1Gi."""

    disk_size: Annotated[Quantity, limits.quantity_between("1Gi", "1023Gi")]
    """Size of the boot disk in bytes, rounded up to a multiple of 1Gi; at least the size of the image."""

    image_id: Annotated[OptionalText, limits.uuid(optional=True)] = None
    """ID of the image that the boot disk is made from. Either this or image is set."""

    image: ImageReference | None = None
    """The image that the boot disk is made from, by name; looked up when the instance is made. An object with this
    field cannot be given back to Oxide's own provider, which knows imageID only."""

    anti_affinity_groups: Annotated[
        tuple[Annotated[str, limits.oxide_name_or_id()], ...], NULL_IS_EMPTY_LIST, limits.list_of("set", 16)
    ] = ()
    """Names or IDs of anti-affinity groups that the instance joins. The groups exist already. Absent: none."""

    ssh_public_keys: Annotated[
        tuple[Annotated[str, limits.oxide_name_or_id()], ...], NULL_IS_EMPTY_LIST, limits.list_of("set", 100)
    ] = ()
    """Names or IDs of SSH keys that the instance is given; keys of the user to whom the API token belongs. Absent:
    none."""

    ip_pool: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """Name or ID of the IP pool from which the instance gets an ephemeral external IP. Absent: no external IP."""

    # Atomic: the place in the list is part of the disk's name on the rack. An instance takes 12 disks, one of them to
    # boot from.
    data_disks: Annotated[tuple[DataDisk, ...], NULL_IS_EMPTY_LIST, limits.list_of("atomic", 11)] = ()
    """Disks beside the boot disk. Absent: none."""

    subnet: Annotated[OptionalText, limits.oxide_name(optional=True)] = None
    """Name of the VPC subnet of the primary network interface. Absent: the cluster's."""

    primary_network_interface: PrimaryNetworkInterface | None = None
    """More about the primary network interface."""

    # Atomic: the order is the order of the guest's devices.
    network_interfaces: Annotated[tuple[NetworkInterface, ...], NULL_IS_EMPTY_LIST, limits.list_of("atomic", 7)] = ()
    """Network interfaces beside the primary one. Absent: none."""

    power_policy: Annotated[OptionalText, Limits({"enum": ["", "KeepRunning", "Observe"]})] = None
    """What happens when the instance is found stopped. KeepRunning starts it again, more slowly each time; Observe only
    reports it. Absent: KeepRunning."""

    auto_restart_policy: Annotated[OptionalText, Limits({"enum": ["", "best_effort", "never"]})] = None
    """Whether the rack restarts the instance when it has failed. Absent: the rack's default."""

    cpu_platform: Annotated[OptionalText, Limits({"enum": ["", "amd_milan", "amd_turin", "amd_turin_v2"]})] = None
    """The CPU generation that the instance needs at least. Absent: any."""


class MachineAddress(KubeModel):
    """One address of a machine."""

    type: Annotated[str, Limits({"enum": ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"]})]
    """What kind of address this is."""

    address: Annotated[str, Limits({"minLength": 1, "maxLength": 256})]
    """The address."""


class DiskRecord(KubeModel):
    """A disk on the rack."""

    id: Annotated[str, limits.uuid()]
    """ID of the disk."""

    name: Annotated[str, limits.oxide_name()]
    """Name of the disk."""


class OxideMachineStatus(KubeModel):
    """What was found of an OxideMachine."""

    initialization: Initialization = Initialization()
    """Observations that Cluster API waits for when it brings the machine up for the first time."""

    addresses: Annotated[tuple[MachineAddress, ...], NULL_IS_EMPTY_LIST, limits.list_of("atomic", 32)] = ()
    """Addresses of the instance."""

    observed_generation: _Generation = None
    """The metadata.generation that was last reconciled with success."""

    disks: Annotated[tuple[DiskRecord, ...] | None, limits.list_of("atomic", 12)] = None
    """The disks that go with the instance, written down before anything is deleted."""

    project: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """The project of the instance, copied from the OxideCluster so that deletion does not need it."""

    credentials_ref: SecretReference | None = None
    """The Secret with the credentials, copied from the OxideCluster so that deletion does not need it."""

    conditions: _Conditions = ()
    """The state of the instance, one entry an aspect."""


class OxideMachine(Resource):
    """An Oxide instance, as the infrastructure of a Machine."""

    spec: Annotated[OxideMachineSpec, _MACHINE_RULES]
    """What is asked for."""

    status: OxideMachineStatus = OxideMachineStatus()
    """What was found."""


class TemplateMetadata(KubeModel):
    """Labels and annotations for the objects that are made from a template."""

    labels: Annotated[Mapping[str, Annotated[str, Limits({"maxLength": 63})]], Limits({"maxProperties": 256})] = Field(
        default_factory=dict
    )
    """Labels by key."""

    annotations: Annotated[
        Mapping[str, Annotated[str, Limits({"maxLength": 262144})]], Limits({"maxProperties": 256})
    ] = Field(default_factory=dict)
    """Annotations by key."""


class OxideClusterTemplateResource(KubeModel):
    """The OxideCluster that a template makes."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the OxideClusters made from this template."""

    spec: OxideClusterSpec
    """Spec of the OxideClusters made from this template."""


class OxideClusterTemplateSpec(KubeModel):
    """What an OxideClusterTemplate holds."""

    template: OxideClusterTemplateResource
    """The OxideCluster that is made."""


class OxideClusterTemplate(Resource):
    """A template for OxideClusters, for use in a ClusterClass."""

    spec: OxideClusterTemplateSpec
    """What the template holds."""


class OxideMachineTemplateResource(KubeModel):
    """The OxideMachine that a template makes."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the OxideMachines made from this template."""

    spec: Annotated[OxideMachineSpec, _MACHINE_TEMPLATE_RULES]
    """Spec of the OxideMachines made from this template."""


class OxideMachineTemplateSpec(KubeModel):
    """What an OxideMachineTemplate holds."""

    template: OxideMachineTemplateResource
    """The OxideMachine that is made."""


class NodeInfo(KubeModel):
    """What kind of Node a machine becomes."""

    architecture: Annotated[str, Limits({"enum": ["amd64"]})]
    """CPU architecture."""

    operating_system: Annotated[str, Limits({"enum": ["linux"]})]
    """Operating system."""


class OxideMachineTemplateStatus(KubeModel):
    """What a machine made from the template offers, for the autoscaler to scale from zero (C-T-7)."""

    # cpu, memory and ephemeral-storage.
    capacity: Annotated[
        Mapping[str, Annotated[Quantity, limits.quantity_of_resource()]], Limits({"maxProperties": 16})
    ] = Field(default_factory=dict)
    """Amounts by resource: cpu, memory, ephemeral-storage."""

    node_info: NodeInfo | None = None
    """What kind of Node it becomes."""


class OxideMachineTemplate(Resource):
    """A template for OxideMachines, for use in a control plane, a MachineDeployment or a ClusterClass.

    To change machines, make a new template and refer to it: machines that exist keep what they were made from.
    """

    spec: OxideMachineTemplateSpec
    """What the template holds."""

    status: OxideMachineTemplateStatus = OxideMachineTemplateStatus()
    """What a machine made from the template offers."""
