"""The cloud-node-lifecycle-controller: Nodes of stopped instances are tainted, Nodes of absent instances are deleted.

One look at all Nodes every few seconds. As long as all kubelets are well it asks nobody anything. When some are silent,
one shared list of instances serves them all (L7), and only an absence that is about to be believed costs calls of its
own. The evidence is gathered in `node_evidence` and judged in `node_lifecycle_plan`; what follows is in `node_acts`.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.leading import NotLeadingError
from capox.ccm.node_acts import NodeActs, OnNodeGoing
from capox.ccm.node_evidence import NodeEvidence
from capox.ccm.node_lifecycle_plan import Act, Decision
from capox.ccm.node_marks import UNINITIALIZED_TAINT, has_shutdown_taint, instance_id_of
from capox.kube.core_objects import Node
from capox.kube.errors import KubeError
from capox.oxide.errors import NotVisible, OxideError, Unauthorized

__all__ = ["COMPONENT", "CONTROLLER", "LifecycleCounter", "NodeLifecycle"]

CONTROLLER: Final = "cloud-node-lifecycle"
"""The controller's name in logs and --controllers."""

COMPONENT: Final = "cloud-node-lifecycle-controller"
"""Who the Events are from."""

PAUSE_SECONDS_MAX: Final = 60.0
"""The longest pause after looks at which the rack could not be asked; it doubles until then (S23)."""


class LifecycleCounter(Protocol):
    """Where it is counted what becomes of Nodes."""

    def on_deletion(self, *, is_success: bool) -> None:
        """A Node was deleted, or could not be."""
        ...

    def on_held(self, nodes: int) -> None:
        """So many deletions are held back now."""
        ...


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
        self._counter = counter
        self._looked_at: float | None = None
        # How many looks in a row the rack has failed, and until when it is left alone for that.
        self._failures = 0
        self._quiet_until = 0.0
        self._log = structlog.get_logger().bind(controller=CONTROLLER)
        self._evidence = NodeEvidence(deps, self._log)
        self._acts = NodeActs(deps, self._log, on_node_going=on_node_going, on_deletion=self._on_deletion)

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
        self._evidence.note_silent(silent)
        for node in nodes:
            if node.is_ready and has_shutdown_taint(node):
                await self._acts.carry_out(node, Decision(Act.UNTAINT))
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
                self._evidence.clear()
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
        instances = await project.inventory.instances.recent(
            self._evidence.pace_seconds(suspects, self._period_seconds)
        )
        scene = self._evidence.scene(instances, nodes)
        held, failed = 0, None
        for node in suspects:
            try:
                decision = await self._evidence.judge(node, project, scene)
            except (NotVisible, Unauthorized):
                raise
            except OxideError as error:
                failed = error
                continue
            held += decision.act is Act.HOLD
            await self._acts.carry_out(node, decision)
        self._tell_held(held)
        if failed is not None:
            raise failed

    def _on_deletion(self, *, is_success: bool) -> None:
        if is_success:
            self._evidence.note_deletion()
        if self._counter is not None:
            self._counter.on_deletion(is_success=is_success)

    def _tell_held(self, nodes: int) -> None:
        if self._counter is not None:
            self._counter.on_held(nodes)
