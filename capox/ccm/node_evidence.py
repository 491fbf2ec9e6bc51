"""What is found out about Nodes that are not Ready, and what follows from it: the eyes of the lifecycle controller.

Nothing is written here. One list serves all Nodes of a look (L7); only an absence that is about to be believed costs
calls of its own. What the evidence comes to is decided in `node_lifecycle_plan`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from capox.ccm.deps import Deps
from capox.ccm.kinds import LEASES
from capox.ccm.node_lifecycle_plan import MASS_GRACE_SECONDS, Act, Decision, Evidence, decide, is_mass
from capox.ccm.node_marks import has_shutdown_taint, instance_id_of, is_control_plane
from capox.ccm.rack import Project
from capox.kube.core_objects import Node
from capox.kube.errors import KubeError, NotFound
from capox.oxide.models.instances import InstanceState
from capox.oxide.shared_list import REST_SECONDS
from capox.oxide.snapshots import InstanceSnapshot

__all__ = ["NodeEvidence", "Scene"]

LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where kubelets renew their Leases."""

TROUBLE_LIST_SECONDS: Final = 10.0
"""The age up to which a list serves while a Node's lot is open."""

SETTLED_SECONDS: Final = 120.0
"""After how long a Node that is silent, and whose instance exists, is looked at at the pace of rest."""


@dataclasses.dataclass(slots=True)
class _Suspicion:
    """What was found out about a Node that is not Ready.

    Attributes:
        since: Since when it is not.
        identity: In which project.
        proofs: How often its absence was proven, in an unbroken row.
        first_proof_at: When it was first.
        lease: When its kubelet says that it last renewed its Lease.
        lease_since: Since when we see that, by our own clock: the kubelet's may be wrong.
        is_settled: Whether nothing is open about it.
    """

    since: float
    identity: object = None
    proofs: int = 0
    first_proof_at: float = 0.0
    lease: str | None = None
    lease_since: float | None = None
    is_settled: bool = False

    def clear(self, identity: object = None) -> None:
        """Believe nothing of what was found out about its instance."""
        self.identity, self.proofs, self.lease_since = identity, 0, None


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """What one list says of all Nodes.

    Attributes:
        instances: The list.
        has_anchor: Whether it has the instance of a Ready Node.
        is_mass: Whether too many Nodes are absent from it, those counted that were deleted lately.
    """

    instances: InstanceSnapshot
    has_anchor: bool
    is_mass: bool


class NodeEvidence:
    """The evidence about all Nodes that are not Ready.

    Args:
        deps: What it works with.
        log: Where it is logged.
    """

    def __init__(self, deps: Deps, log: FilteringBoundLogger) -> None:
        self._deps = deps
        self._suspicions: dict[str, _Suspicion] = {}
        self._deleted_at: list[float] = []
        self._log = log

    def note_silent(self, silent: Sequence[Node]) -> None:
        """Begin to suspect, and stop where there is no more reason to."""
        now = self._deps.clock.monotonic()
        uids = {node.metadata.uid for node in silent}
        self._suspicions = {uid: each for uid, each in self._suspicions.items() if uid in uids}
        for uid in uids:
            self._suspicions.setdefault(uid, _Suspicion(since=now))
        self._deleted_at = [at for at in self._deleted_at if now - at < MASS_GRACE_SECONDS]

    def pace_seconds(self, suspects: Sequence[Node], trouble_seconds: float) -> float:
        """How old the list may be that suspects are judged by; `trouble_seconds` at the least while a lot is open."""
        is_settled = all(self._suspicions[node.metadata.uid].is_settled for node in suspects)
        return REST_SECONDS if is_settled else max(TROUBLE_LIST_SECONDS, trouble_seconds)

    def note_deletion(self) -> None:
        """A Node was deleted: it counts for a while among those that are absent."""
        self._deleted_at.append(self._deps.clock.monotonic())

    def clear(self) -> None:
        """Believe nothing of what was found out about instances."""
        for suspicion in self._suspicions.values():
            suspicion.clear()

    def scene(self, instances: InstanceSnapshot, nodes: Sequence[Node]) -> Scene:
        """What all Nodes that are judged in one look have in common (L2)."""
        absent = sum(not _is_in(node, instances) for node in nodes) + len(self._deleted_at)
        return Scene(
            instances=instances,
            has_anchor=any(node.is_ready and _is_in(node, instances, must_be_ours=True) for node in nodes),
            is_mass=is_mass(absent, len(nodes) + len(self._deleted_at)),
        )

    async def judge(self, node: Node, project: Project, scene: Scene) -> Decision:
        """Decide about one Node that is not Ready, proving what has to be proven.

        Raises:
            OxideError: The rack could not be asked. Nothing is concluded from that.
        """
        suspicion, now = self._suspicions[node.metadata.uid], self._deps.clock.monotonic()
        instance_id = instance_id_of(node)
        assert instance_id is not None
        instance = scene.instances.by_id(instance_id)
        is_listed = instance is not None and instance.run_state != InstanceState.DESTROYED
        if is_listed or suspicion.identity != project.identity:
            suspicion.clear(project.identity)
        suspicion.is_settled = is_listed and now - suspicion.since > SETTLED_SECONDS
        if not is_listed and not await self._note_lease(node, suspicion):
            return Decision(Act.KEEP)
        evidence = Evidence(
            is_ready=False,
            has_shutdown_taint=has_shutdown_taint(node),
            run_state=instance.run_state if instance is not None else None,
            has_anchor=scene.has_anchor,
            is_mass=scene.is_mass,
            is_control_plane=is_control_plane(node),
        )
        decision = decide(self._with_suspicion(evidence, suspicion))
        if decision.act is not Act.PROVE:
            return decision
        if not await self._is_proven(project, instance_id, suspicion):
            return Decision(Act.KEEP)
        return decide(self._with_suspicion(evidence, suspicion, is_proven_now=True))

    def _with_suspicion(self, evidence: Evidence, suspicion: _Suspicion, *, is_proven_now: bool = False) -> Evidence:
        now = self._deps.clock.monotonic()
        return dataclasses.replace(
            evidence,
            proofs=suspicion.proofs,
            is_proven_now=is_proven_now,
            absent_seconds=now - suspicion.first_proof_at if suspicion.proofs else 0.0,
            lease_still_seconds=now - suspicion.lease_since if suspicion.lease_since is not None else 0.0,
        )

    async def _note_lease(self, node: Node, suspicion: _Suspicion) -> bool:
        """Look at the kubelet's Lease; False when it could not be read, and nothing can be decided."""
        try:
            lease = await self._deps.kube.get(LEASES, LEASE_NAMESPACE, node.metadata.name)
            renewed = lease.spec.renew_time
        except NotFound:
            renewed = None
        except KubeError as error:
            self._log.warning("Reading a kubelet's lease failed", node=node.metadata.name, error=str(error))
            return False
        if suspicion.lease_since is None or suspicion.lease != renewed:
            suspicion.lease, suspicion.lease_since = renewed, self._deps.clock.monotonic()
        return True

    async def _is_proven(self, project: Project, instance_id: UUID, suspicion: _Suspicion) -> bool:
        """Prove that an instance is absent: not found itself, not in a list that began later, project visible (L1)."""
        if not await project.inventory.is_instance_absent(instance_id):
            suspicion.clear()
            return False
        if not suspicion.proofs:
            suspicion.first_proof_at = self._deps.clock.monotonic()
        suspicion.proofs += 1
        return True


def _is_in(node: Node, instances: InstanceSnapshot, *, must_be_ours: bool = False) -> bool:
    """Whether a Node's instance is in a list. Nodes without one do not count as absent; nor can they be an anchor."""
    instance_id = instance_id_of(node)
    if instance_id is None:
        return not must_be_ours
    instance = instances.by_id(instance_id)
    return instance is not None and instance.run_state != InstanceState.DESTROYED
