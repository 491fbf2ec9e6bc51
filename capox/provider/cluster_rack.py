"""One cluster's endpoint as it is seen on the rack and in Cluster API: its floating IP, and who could carry it."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Final
from uuid import UUID

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, OxideMachine
from capox.kube.conditions import Finding
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot, ObservedFloatingIp
from capox.provider import cluster_plan as plan
from capox.provider.deps import Deps
from capox.provider.endpoint_holder import Candidate
from capox.provider.kinds import MACHINES, OXIDE_MACHINES
from capox.provider.racks import Project
from capox.provider.unanswered import CREATE_SETTLES_SECONDS
from capox.provider_id import parse_provider_id

__all__ = ["API_SERVER_PORT", "ClusterRack", "EndpointMemory"]

API_SERVER_PORT: Final = 6443
"""The port of an endpoint that names none."""

MOVING_SECONDS: Final = 10.0
"""How long a move may rest on the lists by which it was decided. A pass that could not go on, such as that of a cluster
that was paused, leaves it undone for longer, and who could carry the address is another question then."""

PROVING_SECONDS: Final = 60.0
"""How long a machine that has just got the endpoint may take until its apiserver answers through it (M-29)."""

GIVEN_UP_SECONDS: Final = 300.0
"""How long a machine that did not answer is passed over."""

_HEALTHY: Final = "APIServerPodHealthy"
_TRUTH: Final = {"True": True, "False": False}
_LONG_AGO: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(slots=True)
class EndpointMemory:
    """What this process remembers of a cluster's endpoint between passes; empty after a restart, which is safe.

    Attributes:
        last_act: Right after the last act; readings from before say nothing about it.
        moving: The floating IP that was to be detached just now, to be attached elsewhere at once; and on the clock,
            when.
        moved_at: On the clock, when the endpoint was last attached.
        unanswered_at: On the clock, when a request to make the floating IP may have been sent whose outcome is not
            known: given up by this process, or by one before it.
        proving: The instance that has to show that it answers through the endpoint.
        may_have_groups: Whether anti-affinity groups of the cluster may be there, though the spec asks for none.
        firewall: When the firewall was last looked at, on the clock, and what was found.
        given_up: Instances that did not, and until when they are passed over.
    """

    last_act: Moment | None = None
    moving: tuple[UUID, float] | None = None
    moved_at: float | None = None
    unanswered_at: float | None = None
    proving: UUID | None = None
    may_have_groups: bool = True
    firewall: tuple[float, Finding] | None = None
    given_up: dict[UUID, float] = dataclasses.field(default_factory=dict)


class ClusterRack:
    """A cluster's view of its project.

    Args:
        deps: What it works with.
        project: The project.
        cluster: The OxideCluster.
        cluster_name: The name of the Cluster that it belongs to.
        memory: What is remembered of earlier passes.
    """

    def __init__(
        self, deps: Deps, project: Project, cluster: OxideCluster, cluster_name: str, memory: EndpointMemory
    ) -> None:
        self._deps = deps
        self._project = project
        self._cluster = cluster
        self._cluster_name = cluster_name
        self._memory = memory

    async def observe(self, endpoint: plan.Endpoint) -> plan.Seen:
        """What there is of the endpoint.

        Raises:
            OxideError: The rack could not be read.
            KubeError: Kubernetes could not be read.
        """
        is_settled = self._cluster.status.initialization.provisioned and not self._cluster.metadata.is_being_deleted
        age_seconds = REST_SECONDS if is_settled else TRANSITION_SECONDS
        inventory, last = self._project.inventory, self._memory.last_act
        moving = self._taken_moving()
        if moving is not None:
            # Nobody reaches the cluster until the address is attached again, so nothing is waited for but the address
            # itself. Who could carry it is known: the lists are those by which it was decided to move it.
            age_seconds, last = REST_SECONDS, None
        floating_ips = await inventory.floating_ips.recent(age_seconds, after=last)
        instances = await inventory.instances.recent(age_seconds, after=last)
        namesake = floating_ips.by_name(endpoint.floating_ip_name)
        floating_ip: ObservedFloatingIp | None
        if moving is not None:
            floating_ip = ObservedFloatingIp.of(await self._project.client.floating_ip_view(moving))
        elif endpoint.brought is not None:
            floating_ip = _by_name_or_id(floating_ips, endpoint.brought)
        elif endpoint.address is not None:
            floating_ip = floating_ips.by_address(endpoint.address)
        else:
            floating_ip = namesake if namesake is not None and plan.is_ours(namesake, endpoint) else None
        return plan.Seen(
            floating_ip=floating_ip,
            namesake=namesake,
            candidates=await self._candidates(instances, endpoint, floating_ip),
            is_settled=self._memory.unanswered_at is None
            or floating_ips.began.seconds - self._memory.unanswered_at >= CREATE_SETTLES_SECONDS,
        )

    def acted(self) -> None:
        """Remember that something was done just now."""
        self._memory.last_act = self._project.inventory.now()

    def moves(self, floating_ip_id: UUID) -> None:
        """Remember that the endpoint is about to be nobody's, so that it is looked at by itself next."""
        self._memory.moving = (floating_ip_id, self._deps.clock.monotonic())

    def _taken_moving(self) -> UUID | None:
        """The floating IP that is on its way now; each move is asked for once, and a cluster that goes has none."""
        moving, self._memory.moving = self._memory.moving, None
        if moving is None or self._cluster.metadata.is_being_deleted:
            return None
        floating_ip_id, since = moving
        return floating_ip_id if self._deps.clock.monotonic() - since < MOVING_SECONDS else None

    def attached(self, instance_id: UUID) -> None:
        """Remember who has got the endpoint, and that it has to prove itself."""
        self.acted()
        self._memory.moved_at = self._deps.clock.monotonic()
        self._memory.proving = instance_id

    async def _candidates(
        self, instances: InstanceSnapshot, endpoint: plan.Endpoint, floating_ip: ObservedFloatingIp | None
    ) -> tuple[Candidate, ...]:
        """The control plane machines that have instances."""
        if floating_ip is None:
            return ()
        namespace = self._cluster.metadata.namespace
        labels = {capi.CLUSTER_NAME_LABEL: self._cluster_name, capi.CONTROL_PLANE_LABEL: None}
        oxide_machines = await self._deps.kube.list(OXIDE_MACHINES, namespace, labels)
        machines = {
            machine.metadata.name: machine for machine in await self._deps.kube.list(MACHINES, namespace, labels)
        }
        pairs = [
            (oxide_machine, machines.get(_owner_name(oxide_machine)))
            for oxide_machine in oxide_machines
            if oxide_machine.spec.provider_id
        ]
        proven = await self._prove_endpoint(endpoint, floating_ip)
        found = [
            self._candidate(oxide_machine, machine, instances, floating_ip, is_proven=proven)
            for oxide_machine, machine in pairs
        ]
        return tuple(sorted(found, key=lambda candidate: candidate.name))

    def _candidate(
        self,
        oxide_machine: OxideMachine,
        machine: capi.Machine | None,
        instances: InstanceSnapshot,
        floating_ip: ObservedFloatingIp,
        *,
        is_proven: bool,
    ) -> Candidate:
        instance_id = UUID(parse_provider_id(oxide_machine.spec.provider_id or ""))
        instance = instances.by_id(instance_id)
        reported = machine.status.conditions if machine is not None else ()
        healthy = next((_TRUTH.get(each.status) for each in reported if each.type == _HEALTHY), None)
        given_up_until = self._memory.given_up.get(instance_id)
        return Candidate(
            name=machine.metadata.name if machine is not None else oxide_machine.metadata.name,
            instance_id=instance_id,
            run_state=str(instance.run_state) if instance is not None else None,
            is_being_deleted=oxide_machine.metadata.is_being_deleted
            or machine is None
            or machine.metadata.is_being_deleted,
            has_node=machine is not None and machine.status.node_ref is not None,
            is_api_server_healthy=healthy,
            is_api_server_proven=is_proven and floating_ip.instance_id == instance_id,
            is_given_up=given_up_until is not None and given_up_until > self._deps.clock.monotonic(),
            version=(machine.spec.version or "") if machine is not None else "",
            created=oxide_machine.metadata.creation_timestamp or _LONG_AGO,
        )

    async def _prove_endpoint(self, endpoint: plan.Endpoint, floating_ip: ObservedFloatingIp) -> bool:
        """Whether the machine that got the endpoint a while ago answers through it; gives it up when it does not."""
        memory, holder = self._memory, floating_ip.instance_id
        if not endpoint.is_initialized or memory.proving is None or holder != memory.proving:
            return False
        recorded = self._cluster.spec.control_plane_endpoint
        port = recorded.port if recorded is not None and recorded.port else API_SERVER_PORT
        if await self._deps.probe(str(floating_ip.ip), port):
            memory.proving = None
            return True
        now_seconds = self._deps.clock.monotonic()
        if memory.moved_at is not None and now_seconds - memory.moved_at > PROVING_SECONDS:
            memory.given_up[holder] = now_seconds + GIVEN_UP_SECONDS
            memory.proving = None
        return False


def _owner_name(oxide_machine: OxideMachine) -> str:
    reference = oxide_machine.metadata.owner(group=capi.GROUP, kind="Machine")
    return reference.name if reference is not None else oxide_machine.metadata.name


def _by_name_or_id(floating_ips: FloatingIpSnapshot, reference: str) -> ObservedFloatingIp | None:
    try:
        return floating_ips.by_id(UUID(reference))
    except ValueError:
        return floating_ips.by_name(reference)
