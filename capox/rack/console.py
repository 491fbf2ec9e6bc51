"""What guests write to their serial consoles (semantics 9.2).

A console counts the bytes since its instance was started and keeps the last of them. An instance without a guest has
nothing to say, so the rack writes a short text for it whenever it boots.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capox.rack import records

CAPACITY_BYTES = 1024 * 1024


class Console:
    """The output of one instance's serial console since its last start.

    Args:
        capacity_bytes: how much is kept; what is older is dropped, and still counts in offsets.

    Attributes:
        starts: how often the instance was started, so that a reader can tell that offsets begin anew.
        end: how many bytes were written since the last start.
    """

    __slots__ = ("_capacity_bytes", "_kept", "end", "starts")

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._kept = bytearray()
        self.starts = 0
        self.end = 0

    @property
    def beginning(self) -> int:
        """The offset of the first byte that is still kept."""
        return self.end - len(self._kept)

    def restart(self) -> None:
        """Begin anew, as with every start of the instance."""
        self._kept.clear()
        self.end = 0
        self.starts += 1

    def write(self, data: bytes) -> None:
        """Append what the guest wrote."""
        self._kept += data
        self.end += len(data)
        del self._kept[: max(0, len(self._kept) - self._capacity_bytes)]

    def read(self, offset: int, maximum_bytes: int | None = None) -> bytes:
        """What was written from an offset on, as far as it is kept; empty at and behind the end."""
        begin = max(offset, self.beginning) - self.beginning
        end = len(self._kept) if maximum_bytes is None else begin + maximum_bytes
        return bytes(self._kept[begin:end])


def power_on(instance: records.Instance, moment: datetime.datetime) -> None:
    """Write what an instance without a guest says when it has started."""
    instance.console.restart()
    _boot(instance, moment)


def reset(instance: records.Instance, moment: datetime.datetime) -> None:
    """Write what an instance without a guest says when it has been rebooted; offsets go on."""
    _boot(instance, moment)


def _boot(instance: records.Instance, moment: datetime.datetime) -> None:
    lines = (
        f"Booting instance {instance.name} ({instance.id}) at {moment.isoformat(timespec='seconds')}",
        f"{instance.ncpus} vCPUs, {instance.memory_bytes // 1024**2} MiB of memory, host name {instance.hostname}",
        "No guest runs inside this instance: the rack only simulates it.",
    )
    instance.console.write("".join(f"{line}\r\n" for line in lines).encode())
