"""Where a bench took place, as its page says it."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from pathlib import Path
from typing import Self

from hack.controlplane.programs import ETCD, KUBE_APISERVER

__all__ = ["Machine"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run took place.

    Attributes:
        date: The day, as ISO 8601 has it.
        processors: What the processors are, and how many.
        memory: How much there is.
        versions: What ran, by name.
        is_leader_elected: Whether the provider held a Lease, as its Deployment has it.
    """

    date: str
    processors: str
    memory: str
    versions: dict[str, str]
    is_leader_elected: bool = True

    @classmethod
    def here(cls, *, is_leader_elected: bool = True, **versions: str) -> Self:
        """This machine, today.

        Args:
            is_leader_elected: As above.
            **versions: Of what ran beside Python, etcd and the apiserver; an underscore stands for a space.
        """
        cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "unknown")
        total = int(Path("/proc/meminfo").read_text().splitlines()[0].split()[1]) * 1024
        return cls(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            processors=f"{os.cpu_count()} processors ({model})",
            memory=f"{total / 1024**3:.0f} GiB",
            versions={
                "Python": platform.python_version(),
                "Kubernetes": KUBE_APISERVER.version,
                "etcd": ETCD.version,
                **{name.replace("_", " "): version for name, version in versions.items()},
            },
            is_leader_elected=is_leader_elected,
        )
