"""Notices on the rack that a node's instance has stopped, failed or gone, before Kubernetes misses its kubelet.

Each Service looks at the rack when its own turn comes, which at rest is every minute and a half. Here one reading of
the shared list every half a minute, which serves everybody's turn as well, wakes all Services when it shows instances
of the cluster's Nodes in other states than the one before (S14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import structlog

from capox.ccm.credentials import CredentialsError
from capox.ccm.node_marks import instance_id_of
from capox.ccm.rack import Rack
from capox.kube.core_objects import Node
from capox.oxide.clock import Clock
from capox.oxide.errors import OxideError
from capox.oxide.shared_list import REST_SECONDS

__all__ = ["InstanceWatch"]

LEAST_PAUSE_SECONDS: Final = 1.0
"""Between two looks, whatever the list's age."""


class InstanceWatch:
    """The watch.

    Args:
        rack: The source of the project.
        clock: What pauses go by.
        nodes: The Nodes.
        is_needed: Whether anybody would be woken; the rack is not asked for nothing.
        wake: Has all Services looked at.
    """

    def __init__(
        self,
        rack: Rack,
        clock: Clock,
        nodes: Iterable[Node],
        *,
        is_needed: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self._rack = rack
        self._clock = clock
        self._nodes = nodes
        self._is_needed = is_needed
        self._wake = wake
        self._seen: dict[UUID, str] | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                pause_seconds = await self._look()
            except Exception:  # noqa: BLE001  # whatever it was, the next look may do, and without any Services move late
                self._log.exception("Looking at the instances failed")
                pause_seconds = REST_SECONDS
            await self._clock.sleep(pause_seconds)

    async def _look(self) -> float:
        """Look once; gives for how long the list that was seen is fresh."""
        if not self._is_needed():
            self._seen = None
            return REST_SECONDS
        try:
            project = await self._rack.project()
            instances = await project.inventory.instances.recent(REST_SECONDS)
        except (OxideError, CredentialsError) as error:
            # Nothing is known, so nothing has changed; the Services' own passes tell people of it.
            self._log.debug("The instances could not be read", error=str(error))
            return REST_SECONDS
        ids = {instance_id_of(node) for node in self._nodes}
        states = {each.id: str(each.run_state) for each in instances if each.id in ids}
        if self._seen is not None and any(states.get(each) != state for each, state in self._seen.items()):
            self._wake()
        self._seen = states
        return max(LEAST_PAUSE_SECONDS, instances.began.seconds + REST_SECONDS - self._clock.monotonic())
