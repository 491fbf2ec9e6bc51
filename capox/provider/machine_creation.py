"""How a machine's instance is made: when Cluster API has got so far, with data that is read at that moment, once."""

from __future__ import annotations

from uuid import UUID

from capox.api.v1alpha1 import Reason
from capox.kube.kind import SECRETS
from capox.oxide import errors as oxide
from capox.oxide import models
from capox.oxide.shared_list import TRANSITION_SECONDS
from capox.provider import bootstrap, gate, machine_group
from capox.provider.group_plan import JoinGroup, MakeGroup
from capox.provider.machine_image import ImageNotFoundError, find_image
from capox.provider.machine_instance import InvalidSpecError, instance_create
from capox.provider.machine_rack import MachineRack
from capox.provider.machine_scope import REFUSED_REQUEUE_SECONDS, MachineScope
from capox.provider.racks import Project
from capox.provider.steps import Blocked
from capox.provider.trouble import Trouble
from capox.provider.unanswered import UNANSWERED

__all__ = ["create", "may_be_made"]


def may_be_made(scope: MachineScope) -> bool:
    """Whether Cluster API has got so far that the instance may be made (C-IM-1)."""
    machine, cluster = scope.owners.machine, scope.owners.cluster
    assert machine is not None
    assert cluster is not None
    if not cluster.status.initialization.infrastructure_provisioned:
        scope.facts.bootstrap = Trouble("WaitingForClusterInfrastructure", "the cluster's infrastructure is not ready")
        return False
    if machine.spec.bootstrap.data_secret_name is None:
        waiting = "the bootstrap provider has not made the data yet"
        scope.facts.bootstrap = Trouble(Reason.WAITING_FOR_BOOTSTRAP_DATA, waiting)
        return False
    return True


async def create(scope: MachineScope, project: Project, rack: MachineRack) -> bool:
    """Make the instance; its id is stored before anything else happens (B1).

    Returns:
        Whether to look again at once; False when the pass has nothing more to do.

    Raises:
        OxideError: It was not made, or nobody knows.
        KubeError: Something could not be read or written.
    """
    oxide_cluster = scope.owners.oxide_cluster
    group_id, group = None, machine_group.wanted(scope)
    if group is not None:
        match await machine_group.choose_group(scope, project, group):
            case MakeGroup(name):
                await machine_group.make_group(scope, project, rack, group, name)
                return True
            case JoinGroup(chosen):
                group_id = chosen
            case Blocked(reason, message):
                scope.refuse(reason, message)
                return False
    user_data = await _user_data(scope)
    if user_data is None or oxide_cluster is None:
        return False
    try:
        image_id = await find_image(project, scope.machine.spec)
        body = instance_create(scope.machine, oxide_cluster, image_id=image_id, user_data=user_data, group_id=group_id)
    except (InvalidSpecError, ImageNotFoundError) as error:
        scope.refuse(Reason.INVALID_SPEC, str(error))
        return False
    return await _make(scope, project, rack, body, group_id)


async def _make(
    scope: MachineScope, project: Project, rack: MachineRack, body: models.InstanceCreate, group_id: UUID | None
) -> bool:
    uid = scope.machine.metadata.uid
    if group_id is not None:
        project.seats.take(uid, group_id)
    try:
        instance = await project.client.instance_create(body, project=project.name)
    except oxide.ObjectAlreadyExists as error:
        project.seats.leave(uid)
        rack.acted()
        if scope.facts.trouble is None and not await _is_our_name_taken(rack):
            # Not the instance's name, so one of its disks': nothing that exists is ours to take.
            scope.refuse(Reason.NAME_CONFLICT, f"{error.message}; delete that, or use another project or name")
            return False
        return True
    except (oxide.ObjectNotFound, oxide.InvalidRequest):
        project.seats.leave(uid)
        if group_id is None or await machine_group.takes_members(project, group_id):
            raise
        # The group has gone, or somebody else has filled it, since it was chosen.
        rack.acted()
        return True
    except UNANSWERED:
        scope.acts.unanswered_at = scope.deps.clock.monotonic()
        rack.acted()
        raise
    scope.acted(rack, instance)
    await scope.record_instance(instance.id)
    scope.say("InstanceCreated", f"Created instance {instance.name} ({instance.id})")
    return False


async def _is_our_name_taken(rack: MachineRack) -> bool:
    seen = await rack.observe_present(TRANSITION_SECONDS)
    return seen.instance is not None


async def _user_data(scope: MachineScope) -> bootstrap.UserData | None:
    """The user data, read at this moment (M-34); None with the trouble in the facts."""
    machine = scope.owners.machine
    assert machine is not None
    name = machine.spec.bootstrap.data_secret_name
    assert name is not None
    namespace = scope.machine.metadata.namespace
    secret = await gate.find(scope.deps.kube, SECRETS, namespace, name)
    if secret is None:
        missing = f"the bootstrap Secret {namespace}/{name} does not exist"
        scope.facts.bootstrap = Trouble(Reason.WAITING_FOR_BOOTSTRAP_DATA, missing)
        return None
    config = machine.spec.bootstrap.config_ref
    found = bootstrap.user_data(secret, config.kind if config is not None else "")
    if isinstance(found, bootstrap.BootstrapRefused):
        scope.facts.bootstrap = Trouble(found.reason, found.message)
        if found.reason != Reason.WAITING_FOR_BOOTSTRAP_DATA:
            # A person has to change something; until then it is the same each time.
            scope.retry_after_seconds = REFUSED_REQUEUE_SECONDS
            scope.deps.recorder.warning(scope.machine, found.reason, found.message)
        return None
    return found
