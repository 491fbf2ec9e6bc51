"""OxideMachine: an Oxide instance, as the infrastructure of a Machine."""

from typing import Annotated, Final, TypeAlias

from capox.api import limits
from capox.api.limits import CelRule, Limits
from capox.api.quantity import Quantity
from capox.api.v1alpha1.group import GROUP, Conditions, Generation, Initialization, SecretReference
from capox.kube.objects import NULL_IS_EMPTY_LIST, KubeModel, OptionalText, Resource

__all__ = [
    "DATA_DISK_BLOCK_SIZE_BYTES",
    "MACHINE_FINALIZER",
    "ONE_IMAGE",
    "DataDisk",
    "DiskRecord",
    "ImageReference",
    "MachineAddress",
    "NetworkInterface",
    "OxideMachine",
    "OxideMachineSpec",
    "OxideMachineStatus",
    "PrimaryNetworkInterface",
]

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
ONE_IMAGE: Final = CelRule(
    "(has(self.imageID) && self.imageID != '') != has(self.image)",
    "has(self.image) ? 'imageID and image exclude each other; leave one of them out'"
    " : 'neither imageID nor image is set; set one of them'",
)
"""A machine is made from exactly one image."""

_MACHINE_RULES: Final = Limits(
    rules=(*_PROVIDER_ID_IS_SET_ONCE.rules, ONE_IMAGE), in_words="either `imageID` or `image`"
)


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

    observed_generation: Generation = None
    """The metadata.generation that was last reconciled with success."""

    disks: Annotated[tuple[DiskRecord, ...] | None, limits.list_of("atomic", 12)] = None
    """The disks that go with the instance, written down before anything is deleted."""

    project: Annotated[OptionalText, limits.oxide_name_or_id(optional=True)] = None
    """The project of the instance, copied from the OxideCluster so that deletion does not need it."""

    credentials_ref: SecretReference | None = None
    """The Secret with the credentials, copied from the OxideCluster so that deletion does not need it."""

    conditions: Conditions = ()
    """The state of the instance, one entry an aspect."""


class OxideMachine(Resource):
    """An Oxide instance, as the infrastructure of a Machine."""

    spec: Annotated[OxideMachineSpec, _MACHINE_RULES]
    """What is asked for."""

    status: OxideMachineStatus = OxideMachineStatus()
    """What was found."""
