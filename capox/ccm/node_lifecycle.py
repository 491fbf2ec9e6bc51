"""The cloud-node-lifecycle-controller: Nodes of stopped instances are tainted, Nodes of absent instances are deleted.

One look at all Nodes every few seconds. As long as all kubelets are well it asks nobody anything. When some are silent,
one shared list of instances serves them all (L7), and only an absence that is about to be believed costs calls of its
own. What is decided, and on which evidence, is in `node_lifecycle_plan`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from uuid import UUID

import structlog

from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.kinds import LEASES, NODES
from capox.ccm.leading import NotLeadingError
from capox.ccm.node_lifecycle_plan import MASS_GRACE_SECONDS, Act, Decision, Evidence, decide, is_mass
from capox.ccm.node_marks import SHUTDOWN_TAINT, UNINITIALIZED_TAINT, instance_id_of, is_control_plane
from capox.ccm.node_plan import taints_patch
from capox.ccm.rack import Project
from capox.kube.core_objects import Node, Taint
from capox.kube.errors import Conflict, KubeError, NotFound
from capox.oxide.errors import NotVisible, OxideError, Unauthorized
from capox.oxide.models.instances import InstanceState
from capox.oxide.shared_list import REST_SECONDS
from capox.oxide.snapshots import InstanceSnapshot

__all__ = ["COMPONENT", "CONTROLLER", "LifecycleCounter", "NodeLifecycle", "OnNodeGoing"]

CONTROLLER: Final = "cloud-node-lifecycle"
"""The controller's name in logs and --controllers."""

COMPONENT: Final = "cloud-node-lifecycle-controller"
"""Who the Events are from."""

LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where kubelets renew their Leases."""

TROUBLE_LIST_SECONDS: Final = 10.0
"""The age up to which a list serves while a Node's lot is open."""

PAUSE_SECONDS_MAX: Final = 60.0
"""The longest pause after looks at which the rack could not be asked; it doubles until then (S23)."""

SETTLED_SECONDS: Final = 120.0
"""After how long a Node that is silent, and whose instance exists, is looked at at the pace of rest."""

GOING_SECONDS: Final = 30.0
"""How long whoever cares for floating IPs may take before a Node is deleted (L9)."""

_SHUTDOWN: Final = Taint(key=SHUTDOWN_TAINT, effect="NoSchedule")

OnNodeGoing = Callable[[Node], Awaitable[None]]
"""Called before a Node is deleted, so that what it carries is moved, or at least put into the queue (L9)."""


class LifecycleCounter(Protocol):
    """Where it is counted what becomes of Nodes."""

    def on_deletion(self, *, is_success: bool) -> None:
        """A Node was deleted, or could not be."""
        ...

    def on_held(self, nodes: int) -> None:
        """So many deletions are held back now."""
        ...


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
class _Scene:
    """What one list says of all Nodes.

    Attributes:
        instances: The list.
        has_anchor: Whether it has the instance of a Ready Node.
        is_mass: Whether too many Nodes are absent from it, those counted that were deleted lately.
    """

    instances: InstanceSnapshot
    has_anchor: bool
    is_mass: bool


class NodeLifecycle:
    """The controller.

    Args:
        deps: What it works with.
        period_seconds: The pause between two looks.
        on_node_going: Called before a Node is deleted.
        counter: Where it is counted what becomes of Nodes; None counts nothing.
    """

    def __init__(
        self,
        deps: Deps,
        *,
        period_seconds: float = 5.0,
        on_node_going: OnNodeGoing | None = None,
        counter: LifecycleCounter | None = None,
    ) -> None:
        self._deps = deps
        self._period_seconds = period_seconds
        self._on_node_going = on_node_going
        self._counter = counter
        self._suspicions: dict[str, _Suspicion] = {}
        self._deleted_at: list[float] = []
        self._looked_at: float | None = None
        # How many looks in a row the rack has failed, and until when it is left alone for that.
        self._failures = 0
        self._quiet_until = 0.0
        self._log = structlog.get_logger().bind(controller=CONTROLLER)

    @property
    def silence_seconds(self) -> float:
        """How long ago the last look ended; 0 before the first."""
        return 0.0 if self._looked_at is None else self._deps.clock.monotonic() - self._looked_at

    async def run(self) -> None:
        """Look until cancelled."""
        self._looked_at = self._deps.clock.monotonic()
        while True:
            await self._deps.clock.sleep(self._period_seconds)
            try:
                await self.look()
            except (KubeError, OxideError, CredentialsError, NotLeadingError) as error:
                self._log.warning("Looking at nodes failed", error=str(error), errorType=type(error).__name__)
            except Exception:  # noqa: BLE001  # whatever it was, the next look has to come
                self._log.exception("Looking at nodes failed")
            self._looked_at = self._deps.clock.monotonic()

    async def look(self) -> None:
        """Look at all Nodes once.

        Raises:
            OxideError: The rack could not be asked. Nothing is concluded from that.
            CredentialsError: Nor could it for want of credentials.
        """
        if not self._deps.nodes.is_synced:
            return
        nodes = [node for node in self._deps.nodes if not node.metadata.is_being_deleted]
        silent = [node for node in nodes if not node.is_ready]
        self._note_silent(silent)
        for node in nodes:
            if node.is_ready and _has_shutdown_taint(node):
                await self._guarded(node, Decision(Act.UNTAINT))
        suspects = [node for node in silent if instance_id_of(node) and not node.has_taint(UNINITIALIZED_TAINT)]
        if not suspects:
            self._tell_held(0)
            return
        if self._deps.clock.monotonic() < self._quiet_until:
            return
        try:
            await self._look_at_silent(suspects, nodes)
        except (OxideError, CredentialsError) as error:
            if isinstance(error, NotVisible | Unauthorized):
                # Nothing that these credentials have shown is worth anything.
                for suspicion in self._suspicions.values():
                    suspicion.clear()
            self._failures += 1
            pause_seconds = min(PAUSE_SECONDS_MAX, self._period_seconds * 2.0 ** min(self._failures, 10))
            self._quiet_until = self._deps.clock.monotonic() + pause_seconds
            raise
        self._failures = 0

    async def _look_at_silent(self, suspects: list[Node], nodes: list[Node]) -> None:
        """Judge each Node that is not Ready, and act.

        Raises:
            OxideError: The rack could not be asked about one of them. Those about which it could have been acted on.
        """
        project = await self._deps.rack.project()
        instances = await project.inventory.instances.recent(self._pace_seconds(suspects))
        scene = self._scene(instances, nodes)
        held, failed = 0, None
        for node in suspects:
            try:
                decision = await self._judge(node, project, scene)
            except (NotVisible, Unauthorized):
                raise
            except OxideError as error:
                failed = error
                continue
            held += decision.act is Act.HOLD
            await self._guarded(node, decision)
        self._tell_held(held)
        if failed is not None:
            raise failed

    # -- evidence -----------------------------------------------------------------------------------------------------

    def _note_silent(self, silent: list[Node]) -> None:
        """Begin to suspect, and stop where there is no more reason to."""
        now = self._deps.clock.monotonic()
        uids = {node.metadata.uid for node in silent}
        self._suspicions = {uid: each for uid, each in self._suspicions.items() if uid in uids}
        for uid in uids:
            self._suspicions.setdefault(uid, _Suspicion(since=now))
        self._deleted_at = [at for at in self._deleted_at if now - at < MASS_GRACE_SECONDS]

    def _pace_seconds(self, suspects: list[Node]) -> float:
        is_settled = all(self._suspicions[node.metadata.uid].is_settled for node in suspects)
        return REST_SECONDS if is_settled else max(TROUBLE_LIST_SECONDS, self._period_seconds)

    def _scene(self, instances: InstanceSnapshot, nodes: list[Node]) -> _Scene:
        """What all Nodes that are judged in one look have in common (L2)."""
        absent = sum(not _is_in(node, instances) for node in nodes) + len(self._deleted_at)
        return _Scene(
            instances=instances,
            has_anchor=any(node.is_ready and _is_in(node, instances, must_be_ours=True) for node in nodes),
            is_mass=is_mass(absent, len(nodes) + len(self._deleted_at)),
        )

    async def _judge(self, node: Node, project: Project, scene: _Scene) -> Decision:
        """Decide about one Node that is not Ready, proving what has to be proven."""
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
            has_shutdown_taint=_has_shutdown_taint(node),
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

    # -- acts ---------------------------------------------------------------------------------------------------------

    async def _guarded(self, node: Node, decision: Decision) -> None:
        """Act on one Node; what fails is tried again at the next look, and does not keep the others waiting."""
        try:
            await self._act(node, decision)
        except (NotFound, Conflict):
            # Gone, or written by somebody else meanwhile: what was decided on is old.
            return
        except KubeError as error:
            self._log.warning("Writing a node failed", node=node.metadata.name, act=decision.act, error=str(error))

    async def _act(self, node: Node, decision: Decision) -> None:
        match decision.act:
            case Act.TAINT:
                await self._write_taints(node, is_shut_down=True)
            case Act.UNTAINT:
                await self._write_taints(node, is_shut_down=False)
            case Act.HOLD:
                self._deps.recorder.warning(
                    node, "NodeDeletionHeld", f"{_absence(node)}, but the Node is kept: {decision.message}"
                )
            case Act.KEEP if decision.message:
                message = f"{_absence(node)}, but the Node is kept: {decision.message}"
                self._deps.recorder.warning(node, "InstanceNotFound", message)
            case Act.DELETE:
                await self._delete(node)

    async def _write_taints(self, seen: Node, *, is_shut_down: bool) -> None:
        """Give or take the taint, on the Node as it is now (L8)."""
        node = await self._deps.kube.get(NODES, "", seen.metadata.name)
        if node.metadata.uid != seen.metadata.uid or node.is_ready is is_shut_down:
            return
        if _has_shutdown_taint(node) is is_shut_down:
            return
        taints = [taint for taint in node.spec.taints if not _is_shutdown(taint)]
        if is_shut_down:
            taints.append(_SHUTDOWN)
        await self._deps.kube.patch(NODES, "", node.metadata.name, taints_patch(node, taints))
        self._log.info("Wrote the shutdown taint", node=node.metadata.name, isShutDown=is_shut_down)

    async def _delete(self, seen: Node) -> None:
        """Delete a Node, if it still is what it was when that was decided (L4)."""
        node = await self._confirmed(seen)
        if node is not None and self._on_node_going is not None:
            await self._let_go(node, self._on_node_going)
            node = await self._confirmed(seen)
        if node is None:
            return
        self._deps.recorder.normal(node, "DeletingNode", f"{_absence(node)}; the Node is deleted")
        metadata = node.metadata
        try:
            await self._deps.kube.delete(
                NODES, "", metadata.name, uid=metadata.uid, resource_version=metadata.resource_version
            )
        except (NotFound, Conflict):
            raise
        except KubeError as error:
            self._count_deletion(is_success=False)
            self._deps.recorder.warning(node, "DeletingNodeFailed", f"the Node cannot be deleted: {error}")
            raise
        self._count_deletion(is_success=True)
        self._deleted_at.append(self._deps.clock.monotonic())
        self._log.info("Deleted a node", node=metadata.name, providerID=node.spec.provider_id)

    async def _confirmed(self, seen: Node) -> Node | None:
        """The Node as it is now; None when it is another one, or well again."""
        node = await self._deps.kube.get(NODES, "", seen.metadata.name)
        is_same = node.metadata.uid == seen.metadata.uid and node.spec.provider_id == seen.spec.provider_id
        return node if is_same and not node.is_ready and not node.metadata.is_being_deleted else None

    async def _let_go(self, node: Node, on_node_going: OnNodeGoing) -> None:
        """Have floating IPs cared for; a Node does not stay for want of that, since its instance is gone already."""
        try:
            async with asyncio.timeout(GOING_SECONDS):
                await on_node_going(node)
        except (TimeoutError, KubeError, OxideError, CredentialsError) as error:
            self._log.warning("Moving what a node carries failed", node=node.metadata.name, error=str(error))

    def _count_deletion(self, *, is_success: bool) -> None:
        if self._counter is not None:
            self._counter.on_deletion(is_success=is_success)

    def _tell_held(self, nodes: int) -> None:
        if self._counter is not None:
            self._counter.on_held(nodes)


def _is_in(node: Node, instances: InstanceSnapshot, *, must_be_ours: bool = False) -> bool:
    """Whether a Node's instance is in a list. Nodes without one do not count as absent; nor can they be an anchor."""
    instance_id = instance_id_of(node)
    if instance_id is None:
        return not must_be_ours
    instance = instances.by_id(instance_id)
    return instance is not None and instance.run_state != InstanceState.DESTROYED


def _is_shutdown(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (_SHUTDOWN.key, _SHUTDOWN.effect)


def _has_shutdown_taint(node: Node) -> bool:
    return any(_is_shutdown(taint) for taint in node.spec.taints)


def _absence(node: Node) -> str:
    return f"instance {instance_id_of(node)} is gone from the project"
