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
    "Initialization",
    "MachineAddress",
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


class OxideClusterStatus(KubeModel):
    """What was found of an OxideCluster."""

    initialization: Initialization = Initialization()
    """Observations that Cluster API waits for when it brings the cluster up for the first time."""

    observed_generation: _Generation = None
    """The metadata.generation that was last reconciled with success."""

    conditions: _Conditions = ()
    """The state of the cluster's infrastructure, one entry an aspect."""


class OxideCluster(Resource):
    """An Oxide project, VPC subnet and floating IP, as the infrastructure of a Cluster."""

    spec: OxideClusterSpec
    """What is asked for."""

    status: OxideClusterStatus = OxideClusterStatus()
    """What was found."""


class DataDisk(KubeModel):
    """A disk that is made with the instance, attached to it, and deleted with it."""

    size: Annotated[Quantity, limits.quantity_between("1Gi", "1023Gi")]
    """Size in bytes, rounded up to a multiple of 1Gi."""

    block_size: Annotated[int | None, Limits({"format": "int64", "enum": [512, 2048, 4096]})] = None
    """Block size in bytes. Absent: 4096."""


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

    image_id: Annotated[str, limits.uuid()]
    """ID of the image that the boot disk is made from."""

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


class MachineAddress(KubeModel):
    """One address of a machine."""

    type: Annotated[str, Limits({"enum": ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"]})]
    """What kind of address this is."""

    address: Annotated[str, Limits({"minLength": 1, "maxLength": 256})]
    """The address."""


class OxideMachineStatus(KubeModel):
    """What was found of an OxideMachine."""

    initialization: Initialization = Initialization()
    """Observations that Cluster API waits for when it brings the machine up for the first time."""

    addresses: Annotated[tuple[MachineAddress, ...], NULL_IS_EMPTY_LIST, limits.list_of("atomic", 32)] = ()
    """Addresses of the instance."""

    observed_generation: _Generation = None
    """The metadata.generation that was last reconciled with success."""

    conditions: _Conditions = ()
    """The state of the instance, one entry an aspect."""


class OxideMachine(Resource):
    """An Oxide instance, as the infrastructure of a Machine."""

    spec: Annotated[OxideMachineSpec, _PROVIDER_ID_IS_SET_ONCE]
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

    spec: Annotated[OxideMachineSpec, _NO_PROVIDER_ID_IN_TEMPLATE]
    """Spec of the OxideMachines made from this template."""


class OxideMachineTemplateSpec(KubeModel):
    """What an OxideMachineTemplate holds."""

    template: OxideMachineTemplateResource
    """The OxideMachine that is made."""


class OxideMachineTemplate(Resource):
    """A template for OxideMachines, for use in a control plane, a MachineDeployment or a ClusterClass.

    To change machines, make a new template and refer to it: machines that exist keep what they were made from.
    """

    spec: OxideMachineTemplateSpec
    """What the template holds."""
