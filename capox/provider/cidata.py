"""The volume on which an instance finds its user data: how large the rack makes it (semantics 9.1).

It is a FAT12 file system with two files in clusters of one sector: `meta-data`, and `user-data`. Before its first
cluster there are the boot sector, two copies of the table, and the root directory. The rack makes it as large as its
files need and no larger.

Why that matters: Talos with go-blockdevice before 0.4.9 tries all file systems that it knows on every volume, and gives
up on a volume that ends before the place where ISO 9660 keeps its superblock. Small user data would never arrive.
"""

from __future__ import annotations

from typing import Final

__all__ = ["bytes_to_be_read", "volume_bytes"]

SECTOR_BYTES: Final = 512
"""A sector, and a cluster."""

SUPERBLOCK_END_BYTES: Final = 32 * 1024 + 2 * 1024
"""Where the 2 KiB at offset 32 KiB end."""

_BOOT_SECTORS: Final = 1
_TABLE_SECTORS: Final = 2 * 1
"""Two tables of one sector, which is enough for 341 clusters of 1.5 bytes each; larger files take a larger table."""

_ROOT_DIRECTORY_SECTORS: Final = 512 * 32 // SECTOR_BYTES
"""512 entries of 32 bytes."""

_META_DATA_SECTORS: Final = 1
"""The least: an id and a host name. SSH keys only make it more."""


def volume_bytes(user_data_bytes: int) -> int:
    """The least size of a volume with user data of this length."""
    files = _META_DATA_SECTORS + -(-user_data_bytes // SECTOR_BYTES)
    return SECTOR_BYTES * (_BOOT_SECTORS + _TABLE_SECTORS + _ROOT_DIRECTORY_SECTORS + files)


def bytes_to_be_read(user_data_bytes: int) -> int:
    """How long user data has to be so that its volume reaches past the place of an ISO 9660 superblock.

    Args:
        user_data_bytes: How long it is.

    Returns:
        The same number when that is long enough; never more than 32 KiB for data within that limit.
    """
    missing = SUPERBLOCK_END_BYTES - volume_bytes(user_data_bytes)
    if missing <= 0:
        return user_data_bytes
    # Whole sectors, counted from those that the data fills already.
    return -(-user_data_bytes // SECTOR_BYTES) * SECTOR_BYTES + -(-missing // SECTOR_BYTES) * SECTOR_BYTES
