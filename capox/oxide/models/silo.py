"""What a user finds in a silo: projects, images, the user itself and its SSH keys (semantics 8)."""

from uuid import UUID

from capox.oxide.models.wire import ReadModel, Time


class Ping(ReadModel):
    """The rack's sign of life."""

    status: str


class CurrentUser(ReadModel):
    """Whom the token belongs to.

    Attributes:
        display_name: Whatever the identity provider gives; not necessarily an e-mail address.
        fleet_viewer: Whether the user may see the whole fleet.
        silo_admin: Whether the user may do everything in the silo.
    """

    id: UUID
    display_name: str
    silo_id: UUID
    silo_name: str
    fleet_viewer: bool
    silo_admin: bool
    time_created: Time
    time_modified: Time


class SshKey(ReadModel):
    """A public SSH key of a user."""

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    public_key: str
    silo_user_id: UUID


class Project(ReadModel):
    """A project as the rack shows it."""

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time


class Digest(ReadModel):
    """The digest of an image.

    Attributes:
        type: The algorithm; `sha256` today.
    """

    type: str
    value: str


class Image(ReadModel):
    """An image as the rack shows it.

    Attributes:
        size: Bytes; a disk made from it must not be smaller.
        block_size: Bytes.
        project_id: None for an image of the silo.
    """

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    os: str
    version: str
    size: int
    block_size: int
    digest: Digest | None = None
    project_id: UUID | None = None
