"""What is done to a Node on the lifecycle controller's word: its taint, its end, and what people are told.

Each act reads the Node again and does nothing to one that is not what it was when that was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.kinds import NODES
from capox.ccm.node_lifecycle_plan import Act, Decision
from capox.ccm.node_marks import SHUTDOWN, has_shutdown_taint, instance_id_of, is_shutdown
from capox.ccm.node_plan import taints_patch
from capox.kube.core_objects import Node
from capox.kube.errors import Conflict, KubeError, NotFound
from capox.oxide.errors import OxideError

__all__ = ["NodeActs", "OnDeletion", "OnNodeGoing"]

GOING_SECONDS: Final = 30.0
"""How long whoever cares for floating IPs may take before a Node is deleted (L9)."""

OnNodeGoing = Callable[[Node], Awaitable[None]]
"""Called before a Node is deleted, so that what it carries is moved, or at least put into the queue (L9)."""


class OnDeletion(Protocol):
    """Told of a deletion."""

    def __call__(self, *, is_success: bool) -> None:
        """A Node was deleted, or could not be."""
        ...


class NodeActs:
    """The acts.

    Args:
        deps: What they are done with.
        log: Where they are logged.
        on_node_going: Called before a Node is deleted; None where nobody cares.
        on_deletion: Told when a Node was deleted, or could not be.
    """

    def __init__(
        self, deps: Deps, log: FilteringBoundLogger, *, on_node_going: OnNodeGoing | None, on_deletion: OnDeletion
    ) -> None:
        self._deps = deps
        self._on_node_going = on_node_going
        self._on_deletion = on_deletion
        self._log = log

    async def carry_out(self, node: Node, decision: Decision) -> None:
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
        if has_shutdown_taint(node) is is_shut_down:
            return
        taints = [taint for taint in node.spec.taints if not is_shutdown(taint)]
        if is_shut_down:
            taints.append(SHUTDOWN)
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
            self._on_deletion(is_success=False)
            self._deps.recorder.warning(node, "DeletingNodeFailed", f"the Node cannot be deleted: {error}")
            raise
        self._on_deletion(is_success=True)
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


def _absence(node: Node) -> str:
    return f"instance {instance_id_of(node)} is gone from the project"
