"""One pass over one cluster's endpoint: observe, plan, one rack call, observe again (see `machine_pass`)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Final

import structlog

from capox.api import capi
from capox.api.v1alpha1 import CLUSTER_FINALIZER, OxideCluster, Reason
from capox.kube.objects import Secret
from capox.kube.workqueue import Request
from capox.ownership import format_mark
from capox.oxide import errors as oxide
from capox.oxide import models
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot
from capox.provider import cluster_plan as plan
from capox.provider import names
from capox.provider.cluster_firewall import converge_firewall, firewall_sight, is_managed
from capox.provider.cluster_groups import remove_groups
from capox.provider.cluster_mark import cluster_mark
from capox.provider.cluster_rack import API_SERVER_PORT, ClusterRack, EndpointMemory
from capox.provider.cluster_status import ClusterFacts
from capox.provider.credentials import CredentialsError, parse_credentials, read_secret
from capox.provider.deps import Deps
from capox.provider.endpoint_address import parse_address
from capox.provider.kinds import OXIDE_CLUSTERS, OXIDE_MACHINES
from capox.provider.racks import Interest, Project, Sight
from capox.provider.secret_guard import credentials_reference, guard, release
from capox.provider.service_addresses import release_service_addresses
from capox.provider.trouble import Trouble, of_rack_error
from capox.provider.unanswered import UNANSWERED

__all__ = ["ClusterPass"]

STEPS_LIMIT: Final = 12
"""More steps than any endpoint needs; a plan that goes round in circles must not keep a worker."""

FIREWALL_LOOK_SECONDS: Final = 60.0
"""How long what was seen of a firewall that others keep is believed."""

MOVE_PAUSE_SECONDS: Final = 30.0
"""The least time between two moves (M-29)."""


class ClusterPass:
    """The pass.

    Args:
        deps: What it works with.
        cluster: The OxideCluster as it was just read.
        owner: The Cluster that owns it; None when it is gone.
        memory: What is remembered of earlier passes.

    Attributes:
        cluster: The object as it was last read or written.
        facts: What was found out so far.
        is_finished: Whether the cluster is being deleted and nothing of it is left.
    """

    def __init__(self, deps: Deps, cluster: OxideCluster, owner: capi.Cluster | None, memory: EndpointMemory) -> None:
        self._deps = deps
        self._owner = owner
        self._memory = memory
        self._project: Project | None = None
        self._secret: Secret | None = None
        self._log = structlog.get_logger().bind(OxideCluster=f"{cluster.metadata.namespace}/{cluster.metadata.name}")
        self.cluster = cluster
        self.facts = ClusterFacts(is_external=cluster.spec.endpoint_mode == "External")
        self.is_finished = False

    @property
    def is_proving(self) -> bool:
        """Whether a machine that has just got the endpoint still has to answer through it."""
        return self._memory.proving is not None

    async def converge(self) -> oxide.OxideError | None:
        """Bring the endpoint as far as it goes now.

        Returns:
            The error of the rack that ended the pass and that trying again may settle; None when there was none.

        Raises:
            KubeError: Kubernetes could not be read or written.
        """
        is_deleting = self.cluster.metadata.is_being_deleted
        if is_deleting and await self._waits_for_machines():
            return None
        if is_deleting and CLUSTER_FINALIZER not in self.cluster.metadata.finalizers:
            self.facts.step = plan.Finished()
            self.is_finished = True
            return None
        try:
            project = await self._enter_project()
            if project is None:
                return None
            if not is_deleting:
                await self._claim()
                await self._keep_credentials()
            elif not await release_service_addresses(project, self.cluster.spec.cluster_id or "", self._say):
                self.facts.step = plan.Wait("floating IPs of Services are being released")
                return None
            if self.facts.is_external:
                self.facts.step = plan.Finished() if is_deleting else None
                await project.inventory.instances.recent()
                self.facts.are_credentials_proven = True
            else:
                await self._converge(project)
            await self._converge_beside(project)
        except oxide.OxideError as error:
            return self._judge(error)
        return None

    def expect(self, controller: str, wake: Callable[[], None]) -> None:
        """Have the cluster looked at when its floating IP, or an instance that matters to it, changes."""
        floating_ip, last, watched = self.facts.floating_ip, self._memory.last_act, self.facts.instances
        is_firewall_ours = is_managed(self.cluster) and not self.cluster.metadata.is_being_deleted
        if self._project is None or (floating_ip is None and not is_firewall_ours):
            return
        cluster_id = self.cluster.spec.cluster_id if is_firewall_ours else None

        def sight_of(instances: InstanceSnapshot, floating_ips: FloatingIpSnapshot) -> Sight:
            now = floating_ips.by_id(floating_ip.id) if floating_ip is not None else None
            states = [(found := instances.by_id(instance)) and str(found.run_state) for instance in watched]
            beside = firewall_sight(cluster_id, instances, floating_ips) if cluster_id else ()
            return (now and now.instance_id, *states, *beside)

        def look(instances: InstanceSnapshot, floating_ips: FloatingIpSnapshot) -> Sight:
            if last is not None and (floating_ips.began <= last or instances.began <= last):
                return sight
            return sight_of(instances, floating_ips)

        instances, floating_ips = self._project.inventory.instances.latest, self._project.inventory.floating_ips.latest
        if instances is None or floating_ips is None:
            return
        sight = sight_of(instances, floating_ips)
        key = Request(self.cluster.metadata.namespace, self.cluster.metadata.name)
        interest = Interest(look, sight, isinstance(self.facts.step, plan.Wait), wake)
        self._deps.racks.expect(self._project, controller, key, interest)

    def forget(self, controller: str) -> None:
        """Expect nothing any more."""
        self._deps.racks.forget(controller, Request(self.cluster.metadata.namespace, self.cluster.metadata.name))

    # -- the way in ---------------------------------------------------------------------------------------------------

    async def _waits_for_machines(self) -> bool:
        """Whether machines of this cluster are still there, whatever else is deleted (C-IC-12, M-10)."""
        name = self._cluster_name()
        machines = await self._deps.kube.list(
            OXIDE_MACHINES, self.cluster.metadata.namespace, {capi.CLUSTER_NAME_LABEL: name}
        )
        self.facts.waiting_for_machines = tuple(sorted(machine.metadata.name for machine in machines))
        return bool(machines)

    def _cluster_name(self) -> str:
        if self._owner is not None:
            return self._owner.metadata.name
        metadata = self.cluster.metadata
        reference = metadata.owner(group=capi.GROUP, kind="Cluster")
        return metadata.labels.get(capi.CLUSTER_NAME_LABEL) or (reference.name if reference else metadata.name)

    async def _enter_project(self) -> Project | None:
        reference = credentials_reference(self.cluster)
        try:
            self._secret = await read_secret(self._deps.kube, reference, self.cluster.metadata.namespace)
            credentials = parse_credentials(self._secret)
            self._project = self._deps.racks.project(credentials, self.cluster.spec.project)
        except (CredentialsError, ValueError) as error:
            self.facts.credentials = Trouble("CredentialsInvalid", str(error), is_passing=True)
            return None
        self.facts.expires = credentials.expires
        return self._project

    async def _claim(self) -> None:
        """Store the finalizer, and the cluster's id, before anything is made (C-IM-3)."""
        metadata, spec = self.cluster.metadata, self.cluster.spec
        patch: dict[str, object] = {}
        if CLUSTER_FINALIZER not in metadata.finalizers:
            finalizers = [*metadata.finalizers, CLUSTER_FINALIZER]
            patch["metadata"] = {"resourceVersion": metadata.resource_version, "finalizers": finalizers}
        if not spec.cluster_id:
            random_id = uuid.UUID(int=self._deps.randomness.getrandbits(128), version=4)
            patch.setdefault("metadata", {"resourceVersion": metadata.resource_version})
            patch["spec"] = {"clusterID": str(random_id)}
        if patch:
            self.cluster = await self._patch(patch)

    async def _keep_credentials(self) -> None:
        """Have the Secret stay as long as it is needed, and let go of one that was used before."""
        assert self._secret is not None
        await guard(self._deps, self.cluster, self._secret)
        reference, before = credentials_reference(self.cluster), self.cluster.status.credentials_ref
        if before is not None and before != reference:
            await release(self._deps, self.cluster, before)
        self.facts.credentials_ref = reference

    async def _patch(self, patch: dict[str, object]) -> OxideCluster:
        metadata = self.cluster.metadata
        return await self._deps.kube.patch(OXIDE_CLUSTERS, metadata.namespace, metadata.name, patch)

    # -- convergence --------------------------------------------------------------------------------------------------

    async def _converge(self, project: Project) -> None:
        is_deleting = self.cluster.metadata.is_being_deleted
        for _ in range(STEPS_LIMIT):
            endpoint = self._endpoint()
            rack = ClusterRack(self._deps, project, self.cluster, self._cluster_name(), self._memory)
            seen = await rack.observe(endpoint)
            self.facts.are_credentials_proven = True
            step = plan.plan_release(endpoint, seen) if is_deleting else plan.plan_endpoint(endpoint, seen)
            self.facts.step, self.facts.floating_ip = step, seen.floating_ip
            self.facts.instances = tuple(candidate.instance_id for candidate in seen.candidates)
            if isinstance(step, plan.Blocked):
                self.facts.trouble = Trouble(step.reason, step.message)
                self._deps.recorder.warning(self.cluster, step.reason, step.message)
                return
            try:
                goes_on = await self._apply(project, rack, endpoint, step)
            except oxide.OxideError:
                # Whatever the answer was or was not, the act may have been done, and what was seen before it is old.
                rack.acted()
                raise
            if not goes_on:
                return

    async def _converge_beside(self, project: Project) -> None:
        """What there is beside the endpoint; when the cluster goes, after it."""
        is_deleting, spec = self.cluster.metadata.is_being_deleted, self.cluster.spec
        if is_deleting and not isinstance(self.facts.step, plan.Finished):
            return
        if is_deleting or spec.anti_affinity is not None or self._memory.may_have_groups:
            may_have = await remove_groups(self._deps, project, self.cluster, self._cluster_name())
            self._memory.may_have_groups = may_have
            if is_deleting and may_have:
                return
        await self._converge_firewall(project)
        self.is_finished = is_deleting and self.facts.trouble is None and self.facts.firewall is None

    async def _converge_firewall(self, project: Project) -> None:
        """The rules, each time where they are ours to keep; where they are not, a look at them now and then."""
        now_seconds, memory = self._deps.clock.monotonic(), self._memory
        is_deleting = self.cluster.metadata.is_being_deleted
        if memory.firewall is not None and not is_deleting and not is_managed(self.cluster):
            looked_seconds, self.facts.firewall = memory.firewall
            if now_seconds - looked_seconds < FIREWALL_LOOK_SECONDS:
                return
        self.facts.firewall = await converge_firewall(self._deps, project, self.cluster, self._cluster_name())
        if self.facts.firewall is not None:
            memory.firewall = (now_seconds, self.facts.firewall)

    def _endpoint(self) -> plan.Endpoint:
        spec, metadata, memory = self.cluster.spec, self.cluster.metadata, self._memory
        recorded = spec.control_plane_endpoint
        host = (recorded.host or "") if recorded is not None else ""
        address = parse_address(host)
        now_seconds = self._deps.clock.monotonic()
        initialization = self._owner.status.initialization if self._owner is not None else None
        return plan.Endpoint(
            mark=cluster_mark(self.cluster),
            floating_ip_name=names.floating_ip_name(metadata.namespace, metadata.name),
            brought=spec.control_plane_floating_ip,
            address=address,
            host_name=host if host and address is None else "",
            is_recorded=bool(host) and recorded is not None and bool(recorded.port),
            is_initialized=bool(initialization and initialization.control_plane_initialized),
            may_move=memory.moved_at is None or now_seconds - memory.moved_at >= MOVE_PAUSE_SECONDS,
        )

    async def _apply(
        self, project: Project, rack: ClusterRack, endpoint: plan.Endpoint, step: plan.ClusterStep
    ) -> bool:
        """Carry out a step; False when the pass has nothing more to do."""
        match step:
            case plan.Allocate():
                await self._allocate(project, rack, endpoint)
            case plan.RecordEndpoint(floating_ip):
                # The endpoint first, "provisioned" in a later write: Cluster API reads both at once (C-IC-2).
                recorded = self.cluster.spec.control_plane_endpoint
                port = recorded.port if recorded is not None and recorded.port else API_SERVER_PORT
                address = {"host": str(floating_ip.ip), "port": port}
                self.cluster = await self._patch({"spec": {"controlPlaneEndpoint": address}})
            case plan.Attach(floating_ip, candidate):
                await project.client.floating_ip_attach(
                    floating_ip.id, models.FloatingIpAttach(parent=candidate.instance_id)
                )
                rack.attached(candidate.instance_id)
                self._say("FloatingIPAttached", f"Attached {floating_ip.ip} to {candidate.name}")
            case plan.Detach(floating_ip, candidate):
                if candidate is not None:
                    rack.moves(floating_ip.id)
                await project.client.floating_ip_detach(floating_ip.id)
                rack.acted()
                whereto = f" to move it to {candidate.name}" if candidate is not None else ""
                self._say("FloatingIPDetached", f"Detached {floating_ip.ip} from {floating_ip.instance_id}{whereto}")
            case plan.StopFailedHolder(instance_id):
                await project.client.instance_stop(instance_id)
                rack.acted()
                self._say("InstanceStopped", f"Stopped failed instance {instance_id}, to take the endpoint off it")
            case plan.DeleteFloatingIp(floating_ip):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.floating_ip_delete(floating_ip.id)
                rack.acted()
                self._say("FloatingIPDeleted", f"Deleted floating IP {floating_ip.name} ({floating_ip.ip})")
            case _:
                return False
        return True

    async def _allocate(self, project: Project, rack: ClusterRack, endpoint: plan.Endpoint) -> None:
        body = models.FloatingIpCreate(
            name=endpoint.floating_ip_name,
            description=format_mark(endpoint.mark),
            address_allocator=self._allocator(endpoint),
        )
        try:
            made = await project.client.floating_ip_create(body, project=project.name)
        except UNANSWERED:
            self._memory.unanswered_at = self._deps.clock.monotonic()
            raise
        finally:
            # Also after an error: it may have been made, and only a later reading can tell.
            rack.acted()
        self._say("FloatingIPCreated", f"Created floating IP {made.name} ({made.ip})")

    def _allocator(self, endpoint: plan.Endpoint) -> models.AddressAllocator:
        spec = self.cluster.spec
        if endpoint.address is not None:
            return models.ExplicitAddress(ip=endpoint.address)
        if spec.ip_pool is not None:
            return models.AnyAddress(pool_selector=models.ExplicitPool(pool=spec.ip_pool))
        version = models.IpVersion(spec.ip_type) if spec.ip_type is not None else None
        return models.AnyAddress(pool_selector=models.DefaultPool(ip_version=version))

    def _judge(self, error: oxide.OxideError) -> oxide.OxideError | None:
        """Turn an error of the rack into words for the status; returned when trying again soon may settle it."""
        trouble = of_rack_error(error)
        self.facts.trouble = trouble
        if trouble.reason == Reason.CREDENTIALS_INVALID:
            self.facts.credentials = trouble
        elif trouble.reason in {Reason.INVALID_SPEC, Reason.INSUFFICIENT_CAPACITY}:
            self._deps.recorder.warning(self.cluster, trouble.reason, trouble.message)
            return None
        return error

    def _say(self, reason: str, message: str) -> None:
        self._log.info("Acting on the rack", reason=reason, act=message)
        self._deps.recorder.normal(self.cluster, reason, message)
