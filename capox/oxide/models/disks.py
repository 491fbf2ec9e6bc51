"""Disks, and where their content comes from (semantics 2.3, 5)."""

from enum import StrEnum
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Discriminator, model_validator

from capox.oxide.models.wire import ByteCount, Description, Name, NameOrId, Open, ReadModel, Time, WriteModel

BlockSize = Literal[512, 2048, 4096]
"""Bytes in a block of a blank disk."""


class DiskState(StrEnum):
    """The disk states of the specification. A disk of a newer rack may show a word that is not here."""

    CREATING = "creating"
    DETACHED = "detached"
    IMPORT_READY = "import_ready"
    IMPORTING_FROM_URL = "importing_from_url"
    IMPORTING_FROM_BULK_WRITES = "importing_from_bulk_writes"
    FINALIZING = "finalizing"
    MAINTENANCE = "maintenance"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DESTROYED = "destroyed"
    FAULTED = "faulted"


_STATES_OF_AN_INSTANCE = frozenset({DiskState.ATTACHING, DiskState.ATTACHED, DiskState.DETACHING})


class DiskAttachmentState(ReadModel):
    """A disk's state, together with the instance where the state has one.

    Attributes:
        state: A state of `DiskState`, or the text of one that this client does not know.
        instance: The instance that the disk is, becomes or was attached to; None in every state that has none.
    """

    state: Open[DiskState]
    instance: UUID | None = None

    @model_validator(mode="after")
    def _names_its_instance(self) -> Self:
        if self.state in _STATES_OF_AN_INSTANCE and self.instance is None:
            raise ValueError(f"a disk that is {self.state} must name its instance")
        return self


class Disk(ReadModel):
    """A disk as the rack shows it.

    Attributes:
        size: Bytes.
        block_size: Bytes.
        device_path: Informational; the guest does not have it (semantics 9.2).
        disk_type: `distributed`, `local`, or a word that this client does not know.
        state: Right after disk_create it says `creating` although the disk is ready; the next view says `detached`.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    size: int
    block_size: int
    state: DiskAttachmentState
    device_path: str
    disk_type: str
    image_id: UUID | None = None
    snapshot_id: UUID | None = None
    read_only: bool


class BlankSource(WriteModel):
    """An empty disk."""

    type: Literal["blank"] = "blank"
    block_size: BlockSize


class ImageSource(WriteModel):
    """A disk that begins as a copy of an image; images are named by id only."""

    type: Literal["image"] = "image"
    image_id: UUID
    read_only: bool = False


class SnapshotSource(WriteModel):
    """A disk that begins as a copy of a snapshot."""

    type: Literal["snapshot"] = "snapshot"
    snapshot_id: UUID
    read_only: bool = False


class ImportingBlocksSource(WriteModel):
    """A disk whose blocks will be written through the API."""

    type: Literal["importing_blocks"] = "importing_blocks"
    block_size: BlockSize


DiskSource = Annotated[BlankSource | ImageSource | SnapshotSource | ImportingBlocksSource, Discriminator("type")]
"""Where the first content of a distributed disk comes from."""


class DistributedBackend(WriteModel):
    """Replicated over the rack's sleds."""

    type: Literal["distributed"] = "distributed"
    disk_source: DiskSource


class LocalBackend(WriteModel):
    """On one sled's own drives: always blank, blocks of 4096 bytes, bound to the sled once its instance has started."""

    type: Literal["local"] = "local"


DiskBackend = Annotated[DistributedBackend | LocalBackend, Discriminator("type")]
"""What a disk is made of."""


class DiskCreate(WriteModel):
    """The body of disk_create.

    Attributes:
        size: Bytes; the rack wants multiples of 1 GiB, at most 1023 GiB for a distributed disk.
    """

    name: Name
    description: Description
    size: ByteCount
    disk_backend: DiskBackend


class DiskPath(WriteModel):
    """The body of instance_disk_attach and instance_disk_detach.

    Attributes:
        disk: A name is looked for in the instance's project.
    """

    disk: NameOrId
