"""What a process costs, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds", "peak_bytes", "resident_bytes"]


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has taken, in user mode and in the kernel, with its children that have ended."""
    # The name in parentheses may hold spaces; the fields are counted from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory that a process has now."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    return _status_bytes(pid, "VmHWM")


def _status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(f"/proc/{pid}/status has no {field}")
