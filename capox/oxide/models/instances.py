"""Instances: the machine of every run state, and the bodies that make and change one (semantics 2.2, 3, 4)."""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Discriminator, Field, SecretBytes

from capox.oxide.models.disks import DiskBackend
from capox.oxide.models.external_ips import ExternalIpCreate
from capox.oxide.models.network_interfaces import NetworkInterfaceAttachment
from capox.oxide.models.wire import (
    ByteCount,
    CpuCount,
    Description,
    Hostname,
    Name,
    NameOrId,
    Open,
    ReadModel,
    Time,
    UserData,
    WriteModel,
)


class InstanceState(StrEnum):
    """The run states of the specification. An instance of a newer rack may show a word that is not here."""

    CREATING = "creating"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    REBOOTING = "rebooting"
    MIGRATING = "migrating"
    REPAIRING = "repairing"
    FAILED = "failed"
    DESTROYED = "destroyed"


class AutoRestartPolicy(StrEnum):
    """Whether the rack restarts an instance that failed. Absent behaves like `BEST_EFFORT` (semantics 3.3)."""

    NEVER = "never"
    BEST_EFFORT = "best_effort"


class CpuPlatform(StrEnum):
    """The least CPU generation an instance needs; absent means any."""

    AMD_MILAN = "amd_milan"
    AMD_TURIN = "amd_turin"
    AMD_TURIN_V2 = "amd_turin_v2"


class Instance(ReadModel):
    """An instance as the rack shows it. It holds no addresses, NICs, disks or tags; those are lists of their own.

    Attributes:
        memory: Bytes.
        run_state: A state of `InstanceState`, or the text of one that this client does not know.
        auto_restart_enabled: What the policy, or its absence, amounts to.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    project_id: UUID
    ncpus: int
    memory: int
    hostname: str
    boot_disk_id: UUID | None = None
    run_state: Open[InstanceState]
    time_run_state_updated: Time
    time_last_auto_restarted: Time | None = None
    auto_restart_enabled: bool
    auto_restart_policy: Open[AutoRestartPolicy] | None = None
    auto_restart_cooldown_expiration: Time | None = None
    cpu_platform: Open[CpuPlatform] | None = None
    enable_jumbo_frames: bool

    def as_update(self) -> "InstanceUpdate":
        """Give the update that changes nothing: the rack wants all its fields, changed or not (semantics 2.2)."""
        return InstanceUpdate(
            ncpus=self.ncpus,
            memory=self.memory,
            boot_disk=self.boot_disk_id,
            auto_restart_policy=self.auto_restart_policy,
            cpu_platform=self.cpu_platform,
            enable_jumbo_frames=self.enable_jumbo_frames,
        )


class InstanceDiskCreate(WriteModel):
    """A disk made together with the instance. If its name is taken, nothing at all is made (semantics 4.2)."""

    type: Literal["create"] = "create"
    name: Name
    description: Description
    size: ByteCount
    disk_backend: DiskBackend


class InstanceDiskAttach(WriteModel):
    """A disk that exists already; by name only, the specification knows no id here."""

    type: Literal["attach"] = "attach"
    name: Name


InstanceDiskAttachment = Annotated[InstanceDiskCreate | InstanceDiskAttach, Discriminator("type")]
"""How an instance comes by a disk."""


class InstanceCreate(WriteModel):
    """The body of instance_create.

    Attributes:
        memory: Bytes; the rack wants multiples of 1 GiB.
        ssh_public_keys: Which keys of the token's owner the guest gets. No default on purpose: None means *all* of
            them, an empty tuple means none (semantics 2.2).
        network_interfaces: No default on purpose either: it decides which networks the guest is in.
        start: Whether to start it at once. A start that fails is not reported, the answer is 201 and `stopped`
            (semantics 3.1).
        user_data: What cloud-init reads in the guest. Never shown again by any view, and it cannot be changed.
    """

    name: Name
    description: Description
    hostname: Hostname
    ncpus: CpuCount
    memory: ByteCount
    boot_disk: InstanceDiskAttachment | None = None
    disks: tuple[InstanceDiskAttachment, ...] = ()
    network_interfaces: NetworkInterfaceAttachment
    external_ips: tuple[ExternalIpCreate, ...] = ()
    anti_affinity_groups: tuple[NameOrId, ...] = ()
    ssh_public_keys: tuple[NameOrId, ...] | None
    user_data: UserData = Field(default=SecretBytes(b""), repr=False)
    start: bool = True
    auto_restart_policy: AutoRestartPolicy | None = None
    cpu_platform: CpuPlatform | None = None
    enable_jumbo_frames: bool = False


class InstanceUpdate(WriteModel):
    """The body of instance_update; the specification requires every field. Start from `Instance.as_update()`.

    Attributes:
        memory: Bytes.
        boot_disk: The attached disk to boot from; None for none, which is what a boot disk needs before it can be
            detached.
        auto_restart_policy: Also takes a word that this client does not know, so that what was read can be written
            back.
        cpu_platform: As `auto_restart_policy`.
    """

    ncpus: CpuCount
    memory: ByteCount
    boot_disk: NameOrId | None
    auto_restart_policy: Open[AutoRestartPolicy] | None
    cpu_platform: Open[CpuPlatform] | None
    enable_jumbo_frames: bool
