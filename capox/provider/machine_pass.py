"""One pass over one machine: observe, plan, one rack call, observe again, until there is nothing more to do now.

Whatever ends a pass early comes out as data in `facts`, so that the status can tell it; only what trying again may
settle comes out as an error, after the status was written.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import structlog

from capox.api.v1alpha1 import MACHINE_FINALIZER, ConditionType, DiskRecord, OxideMachine, Reason, SecretReference
from capox.kube.conditions import is_condition_true
from capox.kube.kind import SECRETS
from capox.kube.workqueue import Request
from capox.oxide import errors as oxide
from capox.oxide.models import Instance, InstanceState
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS, Moment
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot, ObservedInstance
from capox.provider import bootstrap, gate, names
from capox.provider import machine_plan as plan
from capox.provider.credentials import CredentialsError, read_credentials
from capox.provider.deps import Deps
from capox.provider.gate import MachineOwners
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.machine_image import ImageNotFoundError, find_image
from capox.provider.machine_instance import InvalidSpecError, instance_create
from capox.provider.machine_rack import Acts, MachineRack
from capox.provider.machine_status import MachineFacts
from capox.provider.racks import Interest, Project, Sight
from capox.provider.trouble import Trouble, of_rack_error
from capox.provider.unanswered import UNANSWERED
from capox.provider_id import format_provider_id, parse_provider_id

__all__ = ["CAPACITY_REQUEUE_SECONDS", "REFUSED_REQUEUE_SECONDS", "MachinePass"]

STEPS_LIMIT: Final = 16
"""More steps than any machine needs; a plan that goes round in circles must not keep a worker."""

CAPACITY_REQUEUE_SECONDS: Final = 60.0
"""When to try again where there was no room: waiting helps, hurrying does not."""

REFUSED_REQUEUE_SECONDS: Final = 120.0
"""When to try again what a person has to put right, on the rack or in the spec."""

ENDPOINT_WAIT_SECONDS: Final = 60.0
"""How long a machine that is deleted waits for the endpoint to move to another one (M-32)."""

RESTART_FIRST_SECONDS: Final = 10.0
"""The wait between two starts of an instance that does not stay up; it doubles each time."""

RESTART_CAP_SECONDS: Final = 600.0
"""The longest wait between two starts; an instance that ran for longer has recovered."""


class MachinePass:
    """The pass.

    Args:
        deps: What it works with.
        machine: The OxideMachine as it was just read.
        owners: Its owners, as they were just read.
        acts: What this process has done to it before.
        started_seconds: When this process began, on the clock.

    Attributes:
        machine: The object as it was last read or written.
        facts: What was found out so far.
        retry_after_seconds: When to try again what was refused; None where nothing was.
    """

    def __init__(
        self, deps: Deps, machine: OxideMachine, owners: MachineOwners, acts: Acts, started_seconds: float
    ) -> None:
        self._deps = deps
        self._owners = owners
        self._acts = acts
        self._started_seconds = started_seconds
        self._project: Project | None = None
        self._log = structlog.get_logger().bind(OxideMachine=str(_key(machine)))
        self.machine = machine
        self.facts = MachineFacts()
        self.retry_after_seconds: float | None = None

    async def converge(self) -> oxide.OxideError | None:
        """Bring the rack as far as it goes now.

        Returns:
            The error of the rack that ended the pass and that trying again may settle; None when there was none.

        Raises:
            KubeError: Kubernetes could not be read or written.
        """
        try:
            project = await self._enter_project()
            if project is None:
                return None
            if self.machine.metadata.is_being_deleted:
                await self._converge_absent(project)
            else:
                await self._converge_present(project)
        except oxide.OxideError as error:
            return self._judge(error)
        return None

    def expect(self, controller: str, wake: Callable[[], None]) -> None:
        """Have the machine looked at when its instance changes."""
        if self._project is None:
            return
        request, last = _key(self.machine), self._acts.last
        identity, sight = self._identity(), _sight(self.facts.instance)

        def look(instances: InstanceSnapshot, floating_ips: FloatingIpSnapshot) -> Sight:
            del floating_ips
            if last is not None and instances.began <= last:
                # From before our own act: it has nothing to tell.
                return sight
            recorded = identity.instance_id
            return _sight(instances.by_id(recorded) if recorded else instances.by_name(identity.name))

        is_in_transition = not isinstance(self.facts.step, plan.Steady | plan.Vanished | plan.Blocked)
        interest = Interest(look, sight, is_in_transition, wake, self._address_reader(self._project))
        self._deps.racks.expect(self._project, controller, request, interest)

    def forget(self, controller: str) -> None:
        """Expect nothing any more."""
        self._deps.racks.forget(controller, _key(self.machine))

    def _address_reader(self, project: Project) -> Callable[[Moment], Awaitable[None]] | None:
        """What reads the addresses that the machine will want when it has come up; None when it has them or goes."""
        oxide_cluster = self._owners.oxide_cluster
        is_known = bool(self.facts.addresses or self.machine.status.addresses)
        if oxide_cluster is None or self.machine.metadata.is_being_deleted or is_known:
            return None
        rack = self._rack(project)
        return lambda began: rack.read_interfaces(oxide_cluster, began)

    # -- the way in ---------------------------------------------------------------------------------------------------

    async def _enter_project(self) -> Project | None:
        """The project to work in; None with the trouble in `facts` when it cannot be known or used."""
        oxide_cluster = self._owners.oxide_cluster
        status = self.machine.status
        if oxide_cluster is not None:
            reference = oxide_cluster.spec.credentials_ref
            namespace = reference.namespace or oxide_cluster.metadata.namespace
            self.facts.project = oxide_cluster.spec.project
            self.facts.credentials_ref = SecretReference(name=reference.name, namespace=namespace)
        else:
            # Only on the way out: what an earlier pass has copied is enough then (M-4).
            self.facts.project, self.facts.credentials_ref = status.project, status.credentials_ref
        if self.facts.project is None or self.facts.credentials_ref is None:
            self._refuse(
                Reason.CREDENTIALS_INVALID,
                "the OxideCluster is gone and neither project nor credentials were recorded; "
                "make the OxideCluster again, or remove the instance by hand and then the finalizer",
            )
            return None
        try:
            credentials = await read_credentials(
                self._deps.kube, self.facts.credentials_ref, self.machine.metadata.namespace
            )
            self._project = self._deps.racks.project(credentials, self.facts.project)
        except (CredentialsError, ValueError) as error:
            self._refuse(Reason.CREDENTIALS_INVALID, str(error))
        return self._project

    def _identity(self) -> plan.Identity:
        metadata, recorded = self.machine.metadata, self.machine.spec.provider_id
        oxide_cluster = self._owners.oxide_cluster
        return plan.Identity(
            instance_id=UUID(parse_provider_id(recorded)) if recorded is not None else None,
            name=names.instance_name(metadata.namespace, metadata.name),
            uid=metadata.uid,
            owner=(metadata.namespace, metadata.name),
            cluster_id=(oxide_cluster.spec.cluster_id or "") if oxide_cluster is not None else "",
        )

    def _rack(self, project: Project) -> MachineRack:
        return MachineRack(project, self.machine, self._identity(), self._acts)

    # -- towards an instance ------------------------------------------------------------------------------------------

    async def _converge_present(self, project: Project) -> None:
        is_known = self.machine.spec.provider_id is not None
        if not is_known and not await self._may_be_made():
            return
        self.machine = await gate.add_finalizer(self._deps.kube, OXIDE_MACHINES, self.machine, MACHINE_FINALIZER)
        for _ in range(STEPS_LIMIT):
            rack = self._rack(project)
            is_settled = is_known and self.machine.status.initialization.provisioned and self._acts.last is None
            seen = await rack.observe_present(REST_SECONDS if is_settled else TRANSITION_SECONDS)
            keeps_running = self.machine.spec.power_policy != "Observe"
            step = plan.plan_present(self._identity(), seen, keeps_running=keeps_running)
            self.facts.step, self.facts.instance, self.facts.was_observed = step, seen.instance, True
            if isinstance(step, plan.Start) and is_settled:
                # Judged by a reading at rest; looked at once more before anything is done about it.
                self._acts.last = project.inventory.now()
                continue
            if isinstance(step, plan.Blocked):
                self._refuse(step.reason, step.message)
                return
            if not await self._apply_present(project, rack, step):
                break
        if isinstance(self.facts.step, plan.Steady):
            self._acts.last = None
            await self._read_addresses(project)

    async def _read_addresses(self, project: Project) -> None:
        """Read the addresses when the instance has come up; at rest they are those of the status."""
        instance, oxide_cluster = self.facts.instance, self._owners.oxide_cluster
        was_up = is_condition_true(self.machine.status.conditions, ConditionType.READY)
        if instance is None or oxide_cluster is None or (was_up and self.machine.status.addresses):
            return
        self.facts.addresses = await self._rack(project).addresses(instance, oxide_cluster)

    async def _apply_present(self, project: Project, rack: MachineRack, step: plan.MachineStep) -> bool:
        """Carry out a step; False when the pass has nothing more to do."""
        match step:
            case plan.Create():
                return await self._create(project, rack)
            case plan.RecordInstance(instance_id):
                await self._record_instance(instance_id)
                return True
            case plan.Start(instance_id):
                await self._start(project, rack, instance_id)
                return False
            case _:
                return False

    async def _start(self, project: Project, rack: MachineRack, instance_id: UUID) -> None:
        """Start the instance, unless it was started a moment ago and did not stay up (C-IM-10)."""
        acts, now_seconds = self._acts, self._deps.clock.monotonic()
        if acts.started_at is not None:
            pause = min(RESTART_CAP_SECONDS, RESTART_FIRST_SECONDS * 2.0 ** (acts.starts - 1))
            passed = now_seconds - acts.started_at
            if passed > RESTART_CAP_SECONDS:
                acts.starts = 0
            elif passed < pause:
                self.retry_after_seconds = pause - passed
                return
        acts.starts, acts.started_at = acts.starts + 1, now_seconds
        instance = await project.client.instance_start(instance_id)
        self._acted(rack, instance)
        self._say("InstanceStarting", f"Starting instance {instance.name}, which was stopped")

    async def _may_be_made(self) -> bool:
        """Whether Cluster API has got so far that the instance may be made (C-IM-1)."""
        machine, cluster = self._owners.machine, self._owners.cluster
        assert machine is not None
        assert cluster is not None
        if not cluster.status.initialization.infrastructure_provisioned:
            self.facts.bootstrap = Trouble(
                "WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready"
            )
            return False
        if machine.spec.bootstrap.data_secret_name is None:
            waiting = "the bootstrap provider has not made the data yet"
            self.facts.bootstrap = Trouble(Reason.WAITING_FOR_BOOTSTRAP_DATA, waiting)
            return False
        return True

    async def _create(self, project: Project, rack: MachineRack) -> bool:
        """Make the instance; its id is stored before anything else happens (B1)."""
        oxide_cluster = self._owners.oxide_cluster
        user_data = await self._user_data()
        if user_data is None or oxide_cluster is None:
            return False
        try:
            image_id = await find_image(project, self.machine.spec)
            body = instance_create(self.machine, oxide_cluster, image_id=image_id, user_data=user_data)
        except (InvalidSpecError, ImageNotFoundError) as error:
            self._refuse(Reason.INVALID_SPEC, str(error))
            return False
        try:
            instance = await project.client.instance_create(body, project=project.name)
        except oxide.ObjectAlreadyExists as error:
            rack.acted()
            if self.facts.trouble is None and not await self._is_our_name_taken(rack):
                # Not the instance's name, so one of its disks': nothing that exists is ours to take.
                self._refuse(Reason.NAME_CONFLICT, f"{error.message}; delete that, or use another project or name")
                return False
            return True
        except (*UNANSWERED, oxide.RateLimited):
            # A 429 may be the page of a gateway that has passed the request on already.
            self._acts.unanswered_at = self._deps.clock.monotonic()
            rack.acted()
            raise
        self._acted(rack, instance)
        await self._record_instance(instance.id)
        self._say("InstanceCreated", f"Created instance {instance.name} ({instance.id})")
        return False

    async def _is_our_name_taken(self, rack: MachineRack) -> bool:
        seen = await rack.observe_present(TRANSITION_SECONDS)
        return seen.instance is not None

    async def _user_data(self) -> bootstrap.UserData | None:
        """The user data, read at this moment (M-34); None with the trouble in `facts`."""
        machine = self._owners.machine
        assert machine is not None
        name = machine.spec.bootstrap.data_secret_name
        assert name is not None
        namespace = self.machine.metadata.namespace
        secret = await gate.find(self._deps.kube, SECRETS, namespace, name)
        if secret is None:
            missing = f"the bootstrap Secret {namespace}/{name} does not exist"
            self.facts.bootstrap = Trouble(Reason.WAITING_FOR_BOOTSTRAP_DATA, missing)
            return None
        found = bootstrap.user_data(secret)
        if isinstance(found, bootstrap.BootstrapRefused):
            self.facts.bootstrap = Trouble(found.reason, found.message)
            if found.reason != Reason.WAITING_FOR_BOOTSTRAP_DATA:
                # A person has to change something; until then it is the same each time.
                self.retry_after_seconds = REFUSED_REQUEUE_SECONDS
                self._deps.recorder.warning(self.machine, found.reason, found.message)
            return None
        return found

    # -- towards nothing ----------------------------------------------------------------------------------------------

    async def _converge_absent(self, project: Project) -> None:
        for _ in range(STEPS_LIMIT):
            rack = self._rack(project)
            seen = await rack.observe_absent(self._started_seconds)
            if seen.is_endpoint_holder and not self._waits_for_endpoint():
                seen = dataclasses.replace(seen, is_endpoint_holder=False)
            step = plan.plan_absent(self._identity(), seen)
            self.facts.step, self.facts.instance, self.facts.was_observed = step, seen.instance, True
            if isinstance(step, plan.Blocked):
                self._refuse(step.reason, step.message)
                return
            if not await self._apply_absent(project, rack, step):
                return

    async def _apply_absent(self, project: Project, rack: MachineRack, step: plan.MachineStep) -> bool:
        """Carry out a step; False when the pass has nothing more to do."""
        match step:
            case plan.RecordInstance(instance_id):
                await self._record_instance(instance_id)
                return True
            case plan.RecordDisks(instance_id):
                await self._record_disks(await rack.attached_disks(instance_id))
                return True
            case plan.Stop(instance_id):
                stopped = await project.client.instance_stop(instance_id)
                self._acted(rack, stopped)
                # A failed instance is stopped at once; any other takes its time.
                return stopped.run_state == InstanceState.STOPPED
            case plan.DeleteInstance(instance_id):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.instance_delete(instance_id)
                rack.acted()
                self.facts.instance = None
                self._say("InstanceDeleted", f"Deleted instance {instance_id}")
                return False
            case plan.DeleteDisk(disk_id):
                with contextlib.suppress(oxide.ObjectNotFound):
                    await project.client.disk_delete(disk_id)
                rack.acted()
                return True
            case _:
                return False

    def _waits_for_endpoint(self) -> bool:
        """Whether the endpoint can be expected to move away first: not when the cluster goes, and not for ever."""
        cluster, deleted = self._owners.cluster, self.machine.metadata.deletion_timestamp
        if cluster is None or cluster.metadata.is_being_deleted or deleted is None:
            return False
        return (self._deps.now() - deleted).total_seconds() < ENDPOINT_WAIT_SECONDS

    # -- what is written down -----------------------------------------------------------------------------------------

    async def _record_instance(self, instance_id: UUID) -> None:
        """Store the provider ID. It is set once, so no precondition is needed, and none could make it fail."""
        metadata = self.machine.metadata
        patch = {"spec": {"providerID": format_provider_id(str(instance_id))}}
        self.machine = await self._deps.kube.patch(OXIDE_MACHINES, metadata.namespace, metadata.name, patch)

    async def _record_disks(self, disks: tuple[DiskRecord, ...]) -> None:
        """Store which disks are ours, before anything is destroyed."""
        metadata = self.machine.metadata
        self.facts.disks = disks
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version},
            "status": {"disks": [disk.dump() for disk in disks]},
        }
        self.machine = await self._deps.kube.patch(
            OXIDE_MACHINES, metadata.namespace, metadata.name, patch, subresource="status"
        )

    def _acted(self, rack: MachineRack, instance: Instance) -> None:
        rack.acted()
        self.facts.instance = ObservedInstance.of(instance)

    def _refuse(self, reason: str, message: str, retry_after_seconds: float = REFUSED_REQUEUE_SECONDS) -> None:
        self.facts.trouble = Trouble(reason, message)
        self.retry_after_seconds = retry_after_seconds
        self._deps.recorder.warning(self.machine, reason, message)

    def _say(self, reason: str, message: str) -> None:
        self._log.info("Acting on the rack", reason=reason, act=message)
        self._deps.recorder.normal(self.machine, reason, message)

    def _judge(self, error: oxide.OxideError) -> oxide.OxideError | None:
        """Turn an error of the rack into words for the status; returned when trying again may settle it."""
        trouble = of_rack_error(error)
        self.facts.trouble = trouble
        if trouble.reason == Reason.INSUFFICIENT_CAPACITY:
            self.retry_after_seconds = CAPACITY_REQUEUE_SECONDS
        elif trouble.reason == Reason.INVALID_SPEC and not self.machine.metadata.is_being_deleted:
            self.retry_after_seconds = REFUSED_REQUEUE_SECONDS
        else:
            return error
        self._deps.recorder.warning(self.machine, trouble.reason, trouble.message)
        return None


def _key(machine: OxideMachine) -> Request:
    return Request(machine.metadata.namespace, machine.metadata.name)


def _sight(instance: ObservedInstance | None) -> Sight:
    return () if instance is None else (instance.id, str(instance.run_state))
