"""Floating IPs that were made for Services which are not there any more: they are told of, and never touched.

They are left over when somebody takes the finalizer off a Service, or brings a cluster back from an old backup. Nothing
but our mark says whose such an address is, and it may still be in use, so that its end is a person's decision. One that
a Service names in its annotation is taken over by that Service (see `floating_ip_match_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final
from uuid import UUID

import structlog

from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.kinds import NAMESPACES
from capox.ccm.service_mark import KIND
from capox.kube.errors import KubeError
from capox.ownership import OwnerMark, parse_mark
from capox.oxide.errors import OxideError
from capox.oxide.snapshots import ObservedFloatingIp

__all__ = ["Orphans", "orphans_of"]

PERIOD_SECONDS: Final = 300.0
"""The pause between two looks, which at rest cost one call each, or none."""

LIST_SECONDS: Final = 60.0
"""How old a list may be."""

GRACE_SECONDS: Final = 200.0
"""How long the Service of an address has to be absent: caches and lists lag behind, and another look has to agree."""


def orphans_of(
    floating_ips: Iterable[ObservedFloatingIp], cluster_id: str, service_uids: Collection[str]
) -> list[tuple[ObservedFloatingIp, OwnerMark]]:
    """The floating IPs that bear the mark of a Service of this cluster which is not among those that there are."""
    found = [(each, mark) for each in floating_ips if (mark := parse_mark(each.description)) is not None]
    return [
        (each, mark)
        for each, mark in found
        if (mark.kind, mark.cluster_id) == (KIND, cluster_id) and mark.uid not in service_uids
    ]


class Orphans:
    """Looks for them.

    Args:
        deps: What it works with; its Events are about the Namespace kube-system, since the Service is gone.
        cluster_id: Which cluster this is.
        on_found: Told how many there are, at each look.
    """

    def __init__(self, deps: Deps, cluster_id: str, on_found: Callable[[int], None]) -> None:
        self._deps = deps
        self._cluster_id = cluster_id
        self._on_found = on_found
        self._identity: object = None
        # When the list began in which one was first seen, and which ones people know of.
        self._since: dict[UUID, float] = {}
        self._told: set[UUID] = set()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._deps.clock.sleep(PERIOD_SECONDS * (0.95 + 0.1 * self._deps.randomness.random()))
            try:
                await self.look()
            except (KubeError, OxideError, CredentialsError) as error:
                self._log.info("Looking for orphaned floating IPs failed", error=str(error))
            except Exception:  # noqa: BLE001  # whatever it was, nothing depends on this
                self._log.exception("Looking for orphaned floating IPs failed")

    async def look(self) -> None:
        """Look once.

        Raises:
            CredentialsError: There are no credentials.
            OxideError: The rack could not be read. Nothing is concluded from that.
            KubeError: What the Events are about could not be read.
        """
        deps = self._deps
        project = await deps.rack.project()
        if project.identity != self._identity:
            self._identity = project.identity
            self._since.clear()
        listed = await project.inventory.floating_ips.recent(LIST_SECONDS)
        if not deps.services.is_synced:
            # That none is known would not mean that there is none (R9).
            return
        suspects = orphans_of(listed, self._cluster_id, {each.metadata.uid for each in deps.services})
        began = listed.began.seconds
        self._since = {each.id: self._since.get(each.id, began) for each, _ in suspects}
        found = [(each, mark) for each, mark in suspects if began - self._since[each.id] >= GRACE_SECONDS]
        self._on_found(len(found))
        self._told &= {each.id for each, _ in found}
        for each, mark in found:
            if each.id not in self._told:
                await self._tell(each, mark)
                self._told.add(each.id)

    async def _tell(self, floating_ip: ObservedFloatingIp, mark: OwnerMark) -> None:
        where = f", attached to instance {floating_ip.instance_id}," if floating_ip.instance_id is not None else ""
        service = f"Service {mark.namespace}/{mark.name}"
        message = (
            f"floating IP {floating_ip.name} ({floating_ip.ip}){where} was made for {service}, which is gone; "
            "delete it on the rack, or name the address in the annotation oxide.computer/floating-ip of a Service"
        )
        self._log.warning("A floating IP is orphaned", floatingIP=floating_ip.name, uid=mark.uid, message=message)
        namespace = await self._deps.kube.get(NAMESPACES, "", "kube-system")
        self._deps.recorder.warning(namespace, "FloatingIPOrphaned", message)
