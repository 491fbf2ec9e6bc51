"""What the API's views have in common."""

from __future__ import annotations

import datetime

from capox.rack import records
from capox.rack.json import JSON


def timestamp(moment: datetime.datetime | None) -> str | None:
    """A time as the API writes it (RFC 3339, UTC)."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def identity(record: records.Named) -> dict[str, JSON]:
    """The fields with which every view of a named resource begins (schema `IdentityMetadata`)."""
    return {
        "id": record.id,
        "name": record.name,
        "description": record.description,
        "time_created": timestamp(record.time_created),
        "time_modified": timestamp(record.time_modified),
    }
