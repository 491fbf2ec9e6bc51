"""The cloud-node-controller: what a Node is told about its instance, when it joins and afterwards.

A Node joins with a taint that keeps Pods away. Its instance is found, its addresses are written, and then providerID,
labels and the removal of the taint in one write (N1, N3). Afterwards its addresses are looked at every few minutes.
What cannot be found out changes nothing: the taint stays, the addresses stay, and an Event tells why (N4, N5).
"""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

import structlog

from capox.ccm import node_plan as plan
from capox.ccm.address_plan import FAMILIES, Family, NodeIPError, node_addresses
from capox.ccm.credentials import CredentialsError
from capox.ccm.deps import Deps
from capox.ccm.instance_network import InstanceNetworks
from capox.ccm.kinds import NODES
from capox.ccm.node_marks import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, instance_id_of
from capox.ccm.rack import Project
from capox.kube.core_objects import Node, NodeAddress
from capox.kube.errors import Conflict, NotFound
from capox.kube.workqueue import DONE, Request, Result
from capox.oxide.errors import OxideError
from capox.oxide.shared_list import REST_SECONDS
from capox.oxide.snapshots import ObservedInstance

__all__ = ["COMPONENT", "CONTROLLER", "NodeOptions", "NodeReconciler", "NodeTimes"]

CONTROLLER: Final = "cloud-node"
"""The controller's name in metrics, logs and --controllers."""

COMPONENT: Final = "cloud-node-controller"
"""Who the Events are from."""

CONFLICTS_MAX: Final = 20
"""How often a write is tried again after somebody else's; upstream's number."""

CONFLICT_SECONDS: Final = 0.05
"""The shortest pause before that."""

UNMATCHED_SECONDS: Final = 60.0
"""When to look again for an instance that is not there, or does not fit."""

UNSYNCED_SECONDS: Final = 1.0
"""When to look again while not all Nodes are known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What is written on Nodes beyond what the rack tells.

    Attributes:
        region: The region label's value; empty for none.
        zone: The zone label's value; empty for none.
        families: The order of the address families.
        period_seconds: After how long addresses are looked at again.
    """

    region: str = ""
    zone: str = ""
    families: tuple[Family, Family] = FAMILIES
    period_seconds: float = 300.0


class NodeTimes(Protocol):
    """Where it is told how long Nodes took to begin."""

    def on_initialised(self, seconds: float) -> None:
        """A Node has lost its taint so long after it was made."""
        ...


class NodeReconciler:
    """The reconciler of Nodes.

    Args:
        deps: What it works with.
        options: What is written.
        times: Where it is told how long Nodes took to begin; None tells nobody.
    """

    def __init__(self, deps: Deps, options: NodeOptions, times: NodeTimes | None = None) -> None:
        self._deps = deps
        self._options = options
        self._times = times
        self._networks = InstanceNetworks(deps.clock, period_seconds=options.period_seconds, families=options.families)
        # When the addresses of each Node were looked at, by its UID.
        self._looked_at: dict[str, float] = {}
        self._log = structlog.get_logger()

    async def reconcile(self, request: Request) -> Result:
        """One pass over one Node.

        Raises:
            KubeError: Something in Kubernetes could not be read or written.
            OxideError: Something on the rack could not be read.
            CredentialsError: There are no credentials.
        """
        if not self._deps.nodes.is_synced:
            return Result(requeue_after_seconds=UNSYNCED_SECONDS)
        node = self._deps.nodes.get("", request.name)
        if node is None or node.metadata.is_being_deleted:
            self._forget()
            return DONE
        try:
            if node.has_taint(UNINITIALIZED_TAINT):
                return await self._initialise(request.name)
            return await self._look_after(node)
        except NotFound:
            return DONE
        except Conflict:
            # What was decided on is old; the event of the other write may not have come yet.
            return Result(requeue_after_seconds=UNSYNCED_SECONDS * (0.5 + self._deps.randomness.random()))

    # -- the beginning ------------------------------------------------------------------------------------------------

    async def _initialise(self, name: str) -> Result:
        """Find the instance of a tainted Node, and write all that is known of it."""
        node = await self._deps.kube.get(NODES, "", name)
        if node.metadata.is_being_deleted or not node.has_taint(UNINITIALIZED_TAINT):
            return DONE
        found = await self._find(node)
        if found is None:
            return Result(requeue_after_seconds=self._jittered(UNMATCHED_SECONDS))
        project, instance = found
        cloud = await self._addresses(project, instance, node, is_new=True)
        if not cloud:
            self._deps.recorder.warning(
                node, "InstanceLookupFailed", f"instance {instance.id} has no network interface; the taint stays"
            )
            return Result(requeue_after_seconds=self._jittered(UNMATCHED_SECONDS))
        labels = plan.instance_labels(instance, region=self._options.region, zone=self._options.zone)
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._write_beginning(node, instance, cloud, labels)
            except NodeIPError as error:
                self._deps.recorder.warning(node, "NodeIPMismatch", f"{error}; the taint stays")
                return Result(requeue_after_seconds=self._jittered(UNMATCHED_SECONDS))
            except Conflict:
                # Others write Nodes all the time, taints too; theirs are kept, since ours are made anew from them.
                await self._deps.clock.sleep(CONFLICT_SECONDS * (1 + self._deps.randomness.random()))
                again = await self._deps.kube.get(NODES, "", name)
            if again.metadata.uid != node.metadata.uid or not again.has_taint(UNINITIALIZED_TAINT):
                return DONE
            if again.spec.provider_id != node.spec.provider_id:
                # Found by a name, and now it says itself who it is.
                return Result(requeue_after_seconds=UNSYNCED_SECONDS)
            node = again
        raise Conflict(409, "Conflict", f"Node {name} was written by others {CONFLICTS_MAX} times")

    async def _write_beginning(
        self, node: Node, instance: ObservedInstance, cloud: tuple[NodeAddress, ...], labels: dict[str, str]
    ) -> Result:
        """Write addresses, and then all else at once (N1, N3)."""
        wanted = node_addresses(cloud, node.status.addresses, node.metadata.annotations.get(PROVIDED_NODE_IP))
        misfit = plan.misfit(node, instance, cloud)
        patch = plan.addresses_patch(node, wanted)
        if patch is not None:
            node = await self._deps.kube.patch(NODES, "", node.metadata.name, patch, subresource="status")
        written = plan.initialising_patch(node, instance, labels)
        node = await self._deps.kube.patch(NODES, "", node.metadata.name, written)
        self._log.info("Initialised a node", node=node.metadata.name, instance=str(instance.id))
        self._deps.recorder.normal(node, "Synced", "Node synced successfully")
        if misfit is not None:
            self._deps.recorder.warning(node, "InstanceMismatch", misfit)
        self._looked_at[node.metadata.uid] = self._deps.clock.monotonic()
        made = node.metadata.creation_timestamp
        if self._times is not None and made is not None:
            self._times.on_initialised(max(0.0, (self._deps.now() - made).total_seconds()))
        return Result(requeue_after_seconds=self._jittered(self._options.period_seconds))

    # -- afterwards ---------------------------------------------------------------------------------------------------

    async def _look_after(self, node: Node) -> Result:
        """Keep labels consistent, and now and then look at the addresses."""
        patch = plan.labels_patch(node, plan.twin_labels(node))
        if patch is not None:
            node = await self._deps.kube.patch(NODES, "", node.metadata.name, patch)
        now, period_seconds = self._deps.clock.monotonic(), self._options.period_seconds
        looked_at = self._looked_at.get(node.metadata.uid)
        if looked_at is not None and now - looked_at < 0.75 * period_seconds:
            return Result(requeue_after_seconds=looked_at + period_seconds - now)
        found = await self._find(node)
        if found is not None:
            await self._refresh(node, *found)
        self._looked_at[node.metadata.uid] = self._deps.clock.monotonic()
        return Result(requeue_after_seconds=self._jittered(period_seconds))

    async def _refresh(self, node: Node, project: Project, instance: ObservedInstance) -> None:
        """Write the addresses and the type if they have changed."""
        cloud = await self._addresses(project, instance, node, is_new=False)
        if not cloud:
            return
        kube, name = self._deps.kube, node.metadata.name
        try:
            wanted = node_addresses(cloud, node.status.addresses, node.metadata.annotations.get(PROVIDED_NODE_IP))
        except NodeIPError as error:
            self._deps.recorder.warning(node, "NodeIPMismatch", f"{error}; the addresses stay as they are")
            return
        patch = plan.addresses_patch(node, wanted)
        if patch is not None:
            node = await kube.patch(NODES, "", name, patch, subresource="status")
        patch = plan.labels_patch(node, plan.instance_labels(instance))
        if patch is not None:
            await kube.patch(NODES, "", name, patch)

    # -- what both need -----------------------------------------------------------------------------------------------

    async def _find(self, node: Node) -> tuple[Project, ObservedInstance] | None:
        """Find a Node's instance; None, and an Event, where there is none that is surely it.

        Raises:
            OxideError: The rack could not be asked; the Event has been recorded.
            CredentialsError: Nor could it for want of credentials.
        """
        if node.spec.provider_id and instance_id_of(node) is None:
            # Nothing that the rack could say would make it ours.
            self._deps.recorder.warning(node, "ForeignProviderID", f"providerID {node.spec.provider_id!r} is not ours")
            return None
        try:
            project = await self._deps.rack.project()
            found = await self._look_up(project, node)
        except (OxideError, CredentialsError) as error:
            self._lookup_failed(node, error)
            raise
        match found:
            case plan.Found(instance):
                return project, instance
            case plan.Absent(message, is_replaced):
                # Of a Node that is initialised and not Ready the lifecycle controller tells what there is to tell.
                if is_replaced:
                    self._deps.recorder.warning(node, "InstanceReplaced", message)
                elif node.has_taint(UNINITIALIZED_TAINT):
                    self._deps.recorder.warning(node, "InstanceNotFound", message)
            case plan.Foreign(message):
                self._deps.recorder.warning(node, "ForeignProviderID", message)
            case plan.Ambiguous(message):
                self._deps.recorder.warning(node, "InstanceAmbiguous", message)
            case plan.Unmatched(message):
                self._deps.recorder.warning(node, "InstanceNotFound", message)
        return None

    async def _look_up(self, project: Project, node: Node) -> plan.Lookup:
        """Look in the list that there is, then in a new one, then by addresses."""
        claimed = {
            instance_id
            for each in self._deps.nodes
            if each.metadata.name != node.metadata.name and (instance_id := instance_id_of(each)) is not None
        }
        instances = await project.inventory.instances.recent(REST_SECONDS)
        found = plan.look_up(node, instances, claimed=claimed)
        if isinstance(found, plan.Found | plan.Foreign):
            return found
        instances = await project.inventory.instances.fresh_since(project.inventory.now())
        found = plan.look_up(node, instances, claimed=claimed)
        if isinstance(found, plan.Unmatched | plan.Ambiguous) and plan.known_addresses(node):
            found = plan.look_up(node, instances, claimed=claimed, owners=await self._networks.owners(project))
        return found

    async def _addresses(
        self, project: Project, instance: ObservedInstance, node: Node, *, is_new: bool
    ) -> tuple[NodeAddress, ...]:
        try:
            return await self._networks.addresses(project, instance, is_new=is_new)
        except OxideError as error:
            self._lookup_failed(node, error)
            raise

    def _lookup_failed(self, node: Node, error: OxideError | CredentialsError) -> None:
        """Tell why a Node has to wait (N4); a Node that is at work does not wait for anything."""
        if node.has_taint(UNINITIALIZED_TAINT):
            message = error.message if isinstance(error, OxideError) else str(error)
            self._deps.recorder.warning(node, "InstanceLookupFailed", f"{message}; the taint stays")

    def _forget(self) -> None:
        """Keep nothing of Nodes that are gone."""
        nodes = list(self._deps.nodes)
        uids = {node.metadata.uid for node in nodes}
        self._looked_at = {uid: at for uid, at in self._looked_at.items() if uid in uids}
        self._networks.keep(each for node in nodes if (each := instance_id_of(node)) is not None)

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.9 + 0.2 * self._deps.randomness.random())
